//! Which fields of an instance's status are the controller's. Pure.
//!
//! Until the machine runs it speaks about the phase; from then on the node agent does, until the pod is over and the agent
//! has said nothing. An end is said again with every write that follows: what is applied once goes with the next apply that
//! leaves it out, and an instance without a phase would be started.

use garboard_api::Phase;
use garboard_api::conditions::{ConditionWriter, VmiConditionType};
use garboard_api::v1::VirtualMachineInstanceStatus;

/// What a write of the controller is about. How a run ended is the agent's to say until it is over: then it is said again
/// with the phase, by what the pod knows of it.
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
    let is_told = phase <= Phase::Scheduled || phase.is_final() || before.phase != after.phase;
    if is_told { FieldOwnership::Phase } else { FieldOwnership::Place }
}

/// The part of a status that is the controller's to say.
pub(super) fn owned(status: &VirtualMachineInstanceStatus, ownership: FieldOwnership) -> VirtualMachineInstanceStatus {
    let is_over = ownership == FieldOwnership::Phase && Phase::of_status(status).is_final();
    let is_ours = |kind: VmiConditionType| {
        kind.writer() == ConditionWriter::Controller || (is_over && kind == VmiConditionType::Ended)
    };
    let conditions = status.conditions.iter();
    let conditions = conditions.filter(|each| VmiConditionType::of_word(&each.r#type).is_some_and(is_ours));
    let mut told = VirtualMachineInstanceStatus {
        active_pods: status.active_pods.clone(),
        node_name: status.node_name.clone(),
        qos_class: status.qos_class.clone(),
        conditions: conditions.cloned().collect(),
        ..VirtualMachineInstanceStatus::default()
    };
    if ownership == FieldOwnership::Phase {
        told.phase.clone_from(&status.phase);
        told.reason.clone_from(&status.reason);
        told.phase_transition_timestamps.clone_from(&status.phase_transition_timestamps);
    }
    told
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
    fn the_controller_speaks_about_the_phase_before_the_agent_does_and_when_it_changes_it() {
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
    fn what_the_agent_says_is_never_told_by_the_controller() {
        let told = owned(&status("Running"), FieldOwnership::Place);
        assert_eq!((told.phase, told.interfaces.len(), told.conditions.len()), (None, 0, 1));
        assert_eq!(told.node_name.as_deref(), Some("n"));
    }
}
