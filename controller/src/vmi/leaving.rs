//! Events about an instance that is deleted, which no report of its launcher shows. Pure.

use garboard_api::conditions::Reason;
use garboard_api::v1::non_empty;
use garboard_api::{Phase, VirtualMachineInstance};

use crate::events::NewEvent;

/// That its guest is asked to shut down, once its pod is being removed. Without a grace period QEMU ends at once.
pub(super) fn shutting_down(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let is_asked = vmi.spec.termination_grace_period_seconds != Some(0);
    let note = "the guest is asked to shut down: the instance is deleted";
    (is_asked && Phase::of(vmi) == Phase::Running).then(|| NewEvent::normal(Reason::ShuttingDown, note))
}

/// That nothing is left of it, once its finalizer is removed. One that was on no node has left nothing.
pub(super) fn deleted(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let node = non_empty(&vmi.status.as_ref()?.node_name)?;
    Some(NewEvent::normal(Reason::Deleted, format!("nothing of the machine is left on the node {node}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(phase: &str, grace_seconds: Option<i64>) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm"},
            "spec": {"domain": {"devices": {}}, "terminationGracePeriodSeconds": grace_seconds},
            "status": {"phase": phase, "nodeName": "node-1"},
        }))
        .unwrap()
    }

    #[test]
    fn a_guest_that_runs_and_has_time_is_asked_to_shut_down() {
        let asked = |phase, grace_seconds| shutting_down(&vmi(phase, grace_seconds)).is_some();
        assert!(asked("Running", None) && asked("Running", Some(30)));
        assert!(!asked("Running", Some(0)), "it ends at once");
        assert!(!asked("Scheduled", None) && !asked("Succeeded", None), "there is no guest");
    }

    #[test]
    fn an_instance_that_was_on_a_node_is_deleted_there() {
        let recorded = deleted(&vmi("Succeeded", None)).unwrap();
        assert!(recorded.note.ends_with("the node node-1"), "{}", recorded.note);
        let mut never = vmi("Pending", None);
        never.status.as_mut().unwrap().node_name = None;
        assert_eq!(deleted(&never), None);
    }
}
