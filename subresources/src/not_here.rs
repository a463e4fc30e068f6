//! Routes of KubeVirt for what is not in this version. Each answers as KubeVirt does where its feature gate is off, or where the
//! machine does not have what it is about, so that clients read what they know; the text goes on with what to do instead. Pure.

use garboard_api::{VirtualMachine, VirtualMachineInstance};

use crate::instance::{VM_NOT_RUNNING, bad, conflict, is_running};
use crate::refusal::Refusal;

/// What is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotHere {
    /// `migrate`.
    Migration,
    /// `addvolume`.
    AddVolume,
    /// `removevolume`.
    RemoveVolume,
    /// `addinterface`, of earlier releases of KubeVirt.
    AddInterface,
    /// `removeinterface`, of the same.
    RemoveInterface,
    /// `memorydump`.
    MemoryDump,
    /// `removememorydump`.
    RemoveMemoryDump,
    /// `objectgraph`.
    ObjectGraph,
    /// `vsock`.
    Vsock,
    /// `backup`.
    Backup,
    /// `redefine-checkpoint`.
    Checkpoint,
    /// `sev/…`.
    Sev,
}

/// What has to exist before the answer is given; what does not is answered 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: a gate is looked at first.
    Nothing,
    /// The VirtualMachine.
    Machine,
    /// The instance.
    Instance,
    /// The VirtualMachine and its instance.
    MachineAndItsInstance,
}

/// What there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    /// The VirtualMachine, where it was needed.
    pub vm: Option<&'a VirtualMachine>,
    /// The instance, where it was needed and exists.
    pub vmi: Option<&'a VirtualMachineInstance>,
}

const AT_THE_NEXT_START: &str = "In this version no gate brings it, and nothing is plugged in or out while a guest runs: change volumes and disks of spec.template, and restart the machine";
/// KubeVirt's message for what needs one of two feature gates.
const NO_HOTPLUG: &str = "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate to use this API.";
const NO_INTERFACES: &str = "is not a route of this version: no interface is plugged in or out while a guest runs. Change interfaces and networks of spec.template, and restart the machine";
const NO_SPACE: &str = "In this version no gate brings it, and a machine has no space for a copy of its guest's memory: have the guest write its own (kdump)";
const BY_STORAGE: &str = "back its claims up with their storage (VolumeSnapshot)";

impl NotHere {
    /// What has to exist.
    #[must_use]
    pub const fn needs(self) -> Needs {
        match self {
            Self::Migration => Needs::MachineAndItsInstance,
            Self::RemoveMemoryDump => Needs::Machine,
            Self::Backup | Self::Checkpoint => Needs::Instance,
            Self::AddVolume
            | Self::RemoveVolume
            | Self::AddInterface
            | Self::RemoveInterface
            | Self::MemoryDump
            | Self::ObjectGraph
            | Self::Vsock
            | Self::Sev => Needs::Nothing,
        }
    }

    /// The answer.
    #[must_use]
    pub fn refusal(self, found: Found<'_>) -> Refusal {
        let runs = found.vmi.is_some_and(is_running);
        match self {
            Self::Migration if !runs => conflict(VM_NOT_RUNNING),
            Self::Migration => bad("migrate is not supported in this version: a guest is not moved to another node. \
                 Stop the machine and start it again, or drain its node with kubectl drain: \
                 with spec.evictionStrategy None its guest is shut down, and starts on another node by its run strategy"),
            Self::AddVolume | Self::RemoveVolume => bad(&format!("{NO_HOTPLUG} {AT_THE_NEXT_START}")),
            Self::AddInterface => Refusal::NoLonger(format!("addinterface {NO_INTERFACES}")),
            Self::RemoveInterface => Refusal::NoLonger(format!("removeinterface {NO_INTERFACES}")),
            Self::MemoryDump => bad(&format!("{NO_HOTPLUG} {NO_SPACE}")),
            Self::RemoveMemoryDump => {
                let name = found.vm.and_then(|vm| vm.metadata.name.as_deref()).unwrap_or_default();
                conflict(&format!(
                    "can't remove memory dump association for vm {name}, no association found: there are no memory dumps here"
                ))
            }
            Self::ObjectGraph => bad("ObjectGraph feature gate not enabled: Unable to return object graph. \
                 What a machine uses is named in its spec: kubectl get -o yaml shows it"),
            Self::Vsock => {
                bad("'VSOCK' feature gate is not enabled: autoattachVSOCK is not supported in this version. \
                 Use the network (portforward), or the guest agent")
            }
            Self::Backup if !runs => conflict(VM_NOT_RUNNING),
            Self::Backup | Self::Checkpoint => {
                conflict(&format!("ChangedBlockTracking is not enabled, nor supported in this version: {BY_STORAGE}"))
            }
            Self::Sev => bad(
                "'WorkloadEncryptionSEV' feature gate is not enabled: launchSecurity is not supported in this version. \
                 Leave it out; the guest's memory is not encrypted then",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::routes::{Action, ROUTES};

    fn vm() -> VirtualMachine {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}}}}}))
        .unwrap()
    }

    fn vmi(phase: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase}}))
        .unwrap()
    }

    /// The route, the phase of the instance, what has to exist, the code, KubeVirt's message, and what to do instead.
    const TABLE: &[(NotHere, &str, Needs, u16, &str, &str)] = &[
        (NotHere::Migration, "Scheduled", Needs::MachineAndItsInstance, 409, "VM is not running", ""),
        (
            NotHere::Migration,
            "Running",
            Needs::MachineAndItsInstance,
            400,
            "not supported in this version",
            "kubectl drain",
        ),
        (NotHere::AddVolume, "Running", Needs::Nothing, 400, NO_HOTPLUG, "spec.template"),
        (NotHere::RemoveVolume, "Running", Needs::Nothing, 400, NO_HOTPLUG, "spec.template"),
        (NotHere::AddInterface, "Running", Needs::Nothing, 404, "addinterface is not a route", "spec.template"),
        (NotHere::RemoveInterface, "Running", Needs::Nothing, 404, "removeinterface is not a route", "spec.template"),
        (NotHere::MemoryDump, "Running", Needs::Nothing, 400, NO_HOTPLUG, "kdump"),
        (
            NotHere::RemoveMemoryDump,
            "Running",
            Needs::Machine,
            409,
            "can't remove memory dump association for vm web, no association found",
            "",
        ),
        (
            NotHere::ObjectGraph,
            "Running",
            Needs::Nothing,
            400,
            "ObjectGraph feature gate not enabled: Unable to return object graph.",
            "kubectl get",
        ),
        (NotHere::Vsock, "Running", Needs::Nothing, 400, "'VSOCK' feature gate is not enabled", "portforward"),
        (NotHere::Backup, "Scheduled", Needs::Instance, 409, "VM is not running", ""),
        (NotHere::Backup, "Running", Needs::Instance, 409, "ChangedBlockTracking is not enabled", "VolumeSnapshot"),
        (NotHere::Checkpoint, "Running", Needs::Instance, 409, "ChangedBlockTracking is not enabled", "VolumeSnapshot"),
        (
            NotHere::Sev,
            "Running",
            Needs::Nothing,
            400,
            "'WorkloadEncryptionSEV' feature gate is not enabled",
            "Leave it out",
        ),
    ];

    #[test]
    fn each_is_answered_as_kubevirt_does_and_names_what_to_do_instead() {
        for &(what, phase, needs, code, text, instead) in TABLE {
            let (vm, vmi) = (vm(), vmi(phase));
            let refusal = what.refusal(Found { vm: Some(&vm), vmi: Some(&vmi) });
            let message = refusal.status(None).message.unwrap();
            assert_eq!((what.needs(), refusal.code()), (needs, code), "{what:?}: {message}");
            assert!(message.contains(text) && message.contains(instead), "{what:?}: {message}");
        }
    }

    #[test]
    fn each_refused_route_has_a_row() {
        for route in ROUTES {
            if let Action::Refuse(what) = route.action {
                assert!(TABLE.iter().any(|row| row.0 == what), "{}", route.name());
            }
        }
    }
}
