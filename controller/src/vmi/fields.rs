//! Which fields of an instance's status are the controller's. Pure.
//!
//! Until the machine runs it writes the phase; from then on the node agent does, until the pod is over and the agent
//! has reported nothing. An end is written again with every write that follows: what is applied once goes with the next apply that
//! leaves it out, and an instance without a phase would be started.

use garboard_api::Phase;
use garboard_api::conditions::{ConditionWriter, VmiConditionType};
use garboard_api::v1::VirtualMachineInstanceStatus;

/// What a write of the controller is about. How a run ended is the agent's to write until it is over: then it is written again
/// with the phase, by what is in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldOwnership {
    /// The phase, and everything that goes with it.
    Phase,
    /// Only where the machine is, and whether it is ready.
    Place,
}

/// What a change of the status is about.
pub(super) fn ownership(before: &VirtualMachineInstanceStatus, after: &VirtualMachineInstanceStatus) -> FieldOwnership {
    let phase = Phase::of_status(after);
    let is_phase = phase <= Phase::Scheduled || phase.is_final() || before.phase != after.phase;
    if is_phase { FieldOwnership::Phase } else { FieldOwnership::Place }
}

/// The part of a status that the controller writes.
pub(super) fn owned(status: &VirtualMachineInstanceStatus, ownership: FieldOwnership) -> VirtualMachineInstanceStatus {
    let is_over = ownership == FieldOwnership::Phase && Phase::of_status(status).is_final();
    let is_ours = |kind: VmiConditionType| {
        kind.writer() == ConditionWriter::Controller || (is_over && kind == VmiConditionType::Ended)
    };
    let conditions = status.conditions.iter();
    let conditions = conditions.filter(|each| VmiConditionType::from_name(&each.r#type).is_some_and(is_ours));
    let mut owned = VirtualMachineInstanceStatus {
        active_pods: status.active_pods.clone(),
        node_name: status.node_name.clone(),
        qos_class: status.qos_class.clone(),
        launcher_container_image_version: status.launcher_container_image_version.clone(),
        conditions: conditions.cloned().collect(),
        ..VirtualMachineInstanceStatus::default()
    };
    if ownership == FieldOwnership::Phase {
        owned.phase.clone_from(&status.phase);
        owned.reason.clone_from(&status.reason);
        owned.phase_transition_timestamps.clone_from(&status.phase_transition_timestamps);
    }
    owned
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(phase: &str) -> VirtualMachineInstanceStatus {
        let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "True"}]);
        let status =
            json!({"phase": phase, "nodeName": "n", "conditions": conditions, "interfaces": [{"name": "default"}]});
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_controller_writes_the_phase_before_the_agent_does_and_when_it_changes_it() {
        assert_eq!(ownership(&status("Scheduling"), &status("Scheduled")), FieldOwnership::Phase);
        assert_eq!(ownership(&status("Running"), &status("Running")), FieldOwnership::Place);
        assert_eq!(ownership(&status("Running"), &status("Failed")), FieldOwnership::Phase);
        assert_eq!(
            ownership(&status("Failed"), &status("Failed")),
            FieldOwnership::Phase,
            "or the next apply would take it away"
        );
    }

    #[test]
    fn what_the_agent_writes_is_never_written_by_the_controller() {
        let written = owned(&status("Running"), FieldOwnership::Place);
        assert_eq!((written.phase, written.interfaces.len(), written.conditions.len()), (None, 0, 1));
        assert_eq!(written.node_name.as_deref(), Some("n"));
    }
}
