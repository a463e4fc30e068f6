//! From a VirtualMachine to the VirtualMachineInstance that runs it, as KubeVirt's `pkg/virt-controller/watch/vm` makes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use uuid::{Uuid, uuid};

use super::devices::disk_for_every_volume;
use crate::instancetype::{Matcher, Role};
use crate::kind::Kind;
use crate::metadata::{annotation, label};
use crate::v1::{API_VERSION, Input, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec};

/// The namespace in which KubeVirt derives a machine's UUID from its name, so that a guest keeps its identity over
/// restarts. Both values are visible in guests of today, so neither may change.
const FIRMWARE_UUID_NAMESPACE: Uuid = uuid!("6a1a24a1-4061-4607-8bf4-a3963d0c5895");
/// The name of the input device that `autoattachInputDevice` makes.
const AUTOMATIC_INPUT: &str = "default-0";

/// The instance that runs a VirtualMachine: its template under its own name, not defaulted yet.
///
/// The same VirtualMachine always gives the same instance; the UUID of the firmware follows from the name where the
/// template has none. Instancetypes and preferences are applied by the caller, before
/// ([`sized`](crate::instancetype::sized)); annotations name them.
pub fn vmi_of(vm: &VirtualMachine) -> VirtualMachineInstance {
    let template = &vm.spec.template;
    let mut metadata = template.metadata.clone().unwrap_or_default();
    metadata.name.clone_from(&vm.metadata.name);
    metadata.namespace.clone_from(&vm.metadata.namespace);
    metadata.generate_name = None;
    // It describes the supervisor of an instance, and a new instance has a current one.
    metadata.labels.iter_mut().for_each(|labels| drop(labels.remove(label::OUTDATED_LAUNCHER_IMAGE)));
    metadata.owner_references = owner(vm).map(|owner| vec![owner]);
    if let Some(generation) = vm.metadata.generation {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::VM_GENERATION.to_owned(), generation.to_string());
    }
    for (key, name) in Role::BOTH.into_iter().filter_map(|role| named(vm, role)) {
        metadata.annotations.get_or_insert_default().insert(key.to_owned(), name.to_owned());
    }
    let mut spec = template.spec.clone().unwrap_or_default();
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        let name = vm.metadata.name.as_deref().unwrap_or_default();
        firmware.uuid = Some(Uuid::new_v5(&FIRMWARE_UUID_NAMESPACE, name.as_bytes()).to_string());
    }
    disk_for_every_volume(&mut spec);
    automatic_input(&mut spec);
    VirtualMachineInstance {
        api_version: API_VERSION.to_owned(),
        kind: Kind::VirtualMachineInstance.name().to_owned(),
        metadata,
        spec,
        status: None,
    }
}

/// The annotation that names what an instance was sized by, and its value.
fn named(vm: &VirtualMachine, role: Role) -> Option<(&'static str, &str)> {
    let matcher = Matcher::of(vm, role).filter(|matcher| !matcher.name.is_empty())?;
    let kind = matcher.object_kind().ok()?;
    Some((annotation::sized_by(kind)?, matcher.name))
}

/// What makes the instance go when its VirtualMachine goes. A VirtualMachine that no cluster has stored owns nothing.
fn owner(vm: &VirtualMachine) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Kind::VirtualMachine.name().to_owned(),
        name: vm.metadata.name.clone()?,
        uid: vm.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

pub(super) fn automatic_input(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    if devices.autoattach_input_device == Some(true) && devices.inputs.is_empty() {
        devices.inputs.push(Input { name: AUTOMATIC_INPUT.to_owned(), ..Input::default() });
    }
}
