//! A machine as it is judged: with its instancetype and its preference in its template, where both are known.

use std::borrow::Cow;

use serde_json::Value;

use super::admit::of_instance;
use super::verdict;
use crate::cluster::ClusterConfig;
use crate::fault::{Fault, FieldPath};
use crate::instancetype::{Sizing, sized};
use crate::v1::VirtualMachine;

/// The machine to judge.
pub(super) struct Whole<'a> {
    /// With both in its template, or as it is written.
    pub(super) vm: Cow<'a, VirtualMachine>,
    /// Why it cannot have both.
    pub(super) conflicts: Vec<Fault>,
    /// Whether it has all that it names.
    pub(super) is_complete: bool,
}

/// Makes it of a machine that has its defaults.
pub(super) fn of<'a>(vm: &'a VirtualMachine, sizing: &Sizing, config: &ClusterConfig) -> Whole<'a> {
    let is_complete = sizing.is_complete(vm);
    if sizing.is_empty() {
        return Whole { vm: Cow::Borrowed(vm), conflicts: Vec::new(), is_complete };
    }
    match sized(vm, sizing, config) {
        Ok(sized) => Whole { vm: Cow::Owned(sized), conflicts: Vec::new(), is_complete },
        Err(conflicts) => Whole { vm: Cow::Borrowed(vm), conflicts, is_complete: false },
    }
}

impl Whole<'_> {
    /// The template's specification, where it is another one than in the manifest.
    pub(super) fn template(&self) -> Option<Value> {
        match &self.vm {
            Cow::Owned(vm) => serde_json::to_value(vm.spec.template.spec.as_ref()?).ok(),
            Cow::Borrowed(_) => None,
        }
    }

    /// The template's metadata, where it is another one than in the manifest.
    pub(super) fn annotated(&self) -> Option<Value> {
        match &self.vm {
            Cow::Owned(vm) => serde_json::to_value(vm.spec.template.metadata.as_ref()?).ok(),
            Cow::Borrowed(_) => None,
        }
    }

    /// Says of mistakes that the manifest does not have where they come from; `vm` is the machine as it is written.
    pub(super) fn name_the_source(&self, faults: &mut [Fault], vm: &VirtualMachine, config: &ClusterConfig) {
        if faults.is_empty() || matches!(self.vm, Cow::Borrowed(_)) {
            return;
        }
        let written = serde_json::to_value(&vm.spec.template.spec).unwrap_or_default();
        let mut own = verdict(vm, config, false).faults;
        own.extend(of_instance(&written, &FieldPath::from("spec.template.spec"), config).refused);
        let of_template = faults.iter_mut().filter(|fault| fault.path.as_str().starts_with("spec.template."));
        for fault in of_template.filter(|fault| !own.iter().any(|known| known.path == fault.path)) {
            fault.message.push_str(" (from the instancetype or the preference)");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::ClusterConfig;
    use crate::instancetype::{Role, Sizing};
    use crate::validate::{Object, review_sized};

    #[test]
    fn what_a_preference_prefers_precedes_the_defaults_of_the_cluster() {
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
            "spec": {"runStrategy": "Always", "preference": {"name": "p"},
                "template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}}},
        });
        let mut sizing = Sizing::default();
        sizing.take(Role::Preference, &json!({"machine": {"preferredMachineType": "pc-q35-7.2"}})).unwrap();
        let admission = review_sized(&vm, &ClusterConfig::offline(), &sizing);
        assert_eq!(admission.faults, []);
        let Some(Object::VirtualMachine(vm)) = admission.object else { panic!("no machine") };
        let machine = vm.spec.template.spec.unwrap().domain.machine.unwrap();
        assert_eq!(machine.r#type.as_deref(), Some("pc-q35-7.2"));
    }
}
