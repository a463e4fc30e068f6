//! A machine with its instancetype and its preference in its template.

use serde_json::Value;

use super::matcher::Role;
use super::{
    VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec, apply, matcher, prefer, requirements, topology,
};
use crate::cluster::ClusterConfig;
use crate::defaults;
use crate::fault::{Fault, FieldPath};
use crate::v1::{VirtualMachine, non_empty};
use crate::validate::printable;

/// What is known of the objects that a machine names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizing {
    /// The instancetype.
    pub instancetype: Option<VirtualMachineInstancetypeSpec>,
    /// The preference.
    pub preference: Option<VirtualMachinePreferenceSpec>,
    /// Why what is named is not among them.
    pub missing: Vec<Fault>,
}

impl Sizing {
    /// Whether everything that a machine names is known.
    #[must_use]
    pub fn is_complete(&self, vm: &VirtualMachine) -> bool {
        let has = |named: bool, known: bool| known || !named;
        has(vm.spec.instancetype.is_some(), self.instancetype.is_some())
            && has(vm.spec.preference.is_some(), self.preference.is_some())
    }

    /// Takes the specification of an object in.
    ///
    /// # Errors
    /// It has another shape.
    pub fn take(&mut self, role: Role, spec: &Value) -> serde_json::Result<()> {
        match role {
            Role::Instancetype => self.instancetype = Some(serde_json::from_value(spec.clone())?),
            Role::Preference => self.preference = Some(serde_json::from_value(spec.clone())?),
        }
        Ok(())
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instancetype.is_none() && self.preference.is_none()
    }
}

/// The machine with both in its template; the names of both stay. Devices that are there without being written are added first, so
/// that a preference reaches them, too.
///
/// # Errors
/// What template and instancetype both set; else what the preference requires and the machine lacks.
pub fn sized(vm: &VirtualMachine, sizing: &Sizing, config: &ClusterConfig) -> Result<VirtualMachine, Vec<Fault>> {
    let (at, is_complete) = (FieldPath::from("spec.template"), sizing.is_complete(vm));
    let (mut vm, preference) = (vm.clone(), sizing.preference.as_ref());
    let template = &mut vm.spec.template;
    let spec = template.spec.get_or_insert_default();
    if let Some(preference) = preference {
        prefer::automatic(preference, &mut spec.domain.devices);
    }
    defaults::attach(spec, config);
    if let Some(size) = &sizing.instancetype {
        let mut faults = apply::apply(size, preference, template, &at);
        faults.extend(topology::indivisible(&size.cpu, preference));
        if !faults.is_empty() {
            return Err(faults.into_iter().map(printable).collect());
        }
    }
    if let Some(preference) = preference {
        prefer::apply(preference, template);
    }
    // What an instancetype gives that is not known is not missing.
    if is_complete && preference.is_some_and(|preference| preference.requirements.is_some()) {
        let mut filled = template.spec.clone().unwrap_or_default();
        defaults::fill_in(&mut filled, config);
        let unmet = requirements::unmet(sizing, &filled, &at.child("spec"));
        if !unmet.is_empty() {
            return Err(unmet.into_iter().map(printable).collect());
        }
    }
    Ok(vm)
}

/// The machine as its expansion shows it: with both and every default in its template, and naming neither.
///
/// # Errors
/// As of [`sized`].
pub fn expanded(vm: &VirtualMachine, sizing: &Sizing, config: &ClusterConfig) -> Result<VirtualMachine, Vec<Fault>> {
    let mut vm = sized(vm, sizing, config)?;
    defaults::fill_in(vm.spec.template.spec.get_or_insert_default(), config);
    for role in Role::BOTH {
        matcher::clear(&mut vm, role);
    }
    if let Some(status) = &mut vm.status {
        status.instancetype_ref = None;
        status.preference_ref = None;
    }
    Ok(vm)
}

/// What admission writes into a machine of its preference: what the cluster's defaults would set otherwise, and the storage class of
/// its DataVolumes, which are made before its instance.
pub fn settle(vm: &mut VirtualMachine, preference: &VirtualMachinePreferenceSpec) {
    prefer::platform(preference, vm.spec.template.spec.get_or_insert_default());
    let volumes = preference.volumes.as_ref();
    let Some(class) = volumes.and_then(|volumes| non_empty(&volumes.preferred_storage_class_name)) else { return };
    for template in &mut vm.spec.data_volume_templates {
        let claim = template.spec.pvc.as_mut().map(|claim| &mut claim.storage_class_name);
        let storage = template.spec.storage.as_mut().map(|storage| &mut storage.storage_class_name);
        for field in [claim, storage].into_iter().flatten() {
            field.get_or_insert_with(|| class.to_owned());
        }
    }
}
