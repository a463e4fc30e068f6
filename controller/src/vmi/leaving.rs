//! Events about an instance that is deleted, which no report of its launcher shows. Pure.

use garboard_api::conditions::Reason;
use garboard_api::metadata::finalizer;
use garboard_api::v1::non_empty;
use garboard_api::{Phase, VirtualMachineInstance};

use crate::events::NewEvent;

/// That its guest is asked to shut down, once its pod is being removed. Without a grace period QEMU ends at once.
pub(super) fn shutting_down(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let is_asked = vmi.spec.termination_grace_period_seconds != Some(0);
    let note = "the guest is asked to shut down: the instance is deleted";
    (is_asked && Phase::of(vmi) == Phase::Running).then(|| NewEvent::normal(Reason::ShuttingDown, note))
}

/// That its machine has ended, as soon as that is reported: its pod may be there for some seconds more, and programs that wait for
/// KubeVirt's event do so for a few seconds after the grace period.
pub(super) fn ended(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let is_held = vmi.metadata.finalizers.iter().flatten().any(|name| is_ours(name));
    let is_over = vmi.metadata.deletion_timestamp.is_some() && Phase::of(vmi).is_final();
    deleted(vmi).filter(|_| is_over && is_held)
}

/// The same once its finalizer is removed, however it ended. One that was on no node has left nothing.
pub(super) fn deleted(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let node = non_empty(&vmi.status.as_ref()?.node_name)?;
    Some(NewEvent::normal(Reason::Deleted, format!("the machine does not run on the node {node} any more")))
}

/// Whether a finalizer is removed by this controller.
pub(super) fn is_ours(name: &str) -> bool {
    name == finalizer::FOREGROUND_DELETE || name == finalizer::CONTROLLER
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::EventReason;

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
        assert!(recorded.note.contains("the node node-1"), "{}", recorded.note);
        let mut never = vmi("Pending", None);
        never.status.as_mut().unwrap().node_name = None;
        assert_eq!(deleted(&never), None);
    }

    #[test]
    fn an_instance_that_is_deleted_has_ended_as_soon_as_its_phase_says_so() {
        let leaving = |phase| {
            let mut vmi = vmi(phase, Some(5));
            vmi.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-26T12:00:00Z")).unwrap();
            vmi.metadata.finalizers = Some(vec![finalizer::CONTROLLER.to_owned()]);
            vmi
        };
        let leaves = |phase| ended(&leaving(phase)).map(|event| event.reason);
        assert_eq!(leaves("Succeeded"), Some(EventReason::Of(Reason::Deleted)));
        assert_eq!(leaves("Failed"), Some(EventReason::Of(Reason::Deleted)));
        assert_eq!(leaves("Running"), None, "its guest shuts down");
        assert_eq!(ended(&vmi("Succeeded", Some(5))), None, "it is not deleted");
        let mut released = leaving("Succeeded");
        released.metadata.finalizers = Some(vec!["another.dev/finalizer".to_owned()]);
        assert_eq!(ended(&released), None, "it was recorded when ours was removed");
    }
}
