//! A launcher's report as conditions of its pod.
//!
//! Until the controller has placed a VMI its node agent may not write it, and a write of the controller only for that would
//! cost too much: the first report goes onto the pod, together with the readiness gate. Conditions of a pod are written by its
//! kubelet and by the agent of its node, and by no tenant (`deploy/base/node-policy.yaml`).

use garboard_api::conditions::{ConditionStatus, NewCondition, PodConditionType, Reason};
use garboard_protocol::control::{self, Status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};

/// The readiness gate of launcher pods: the guest's processors run (KubeVirt's name).
pub const UNPAUSED: &str = PodConditionType::Unpaused.name();
/// Not KubeVirt's: the launcher's first report, as JSON in the condition's message.
pub const REPORTED: &str = PodConditionType::LauncherReport.name();
/// The longest message, in bytes; a longer report waits until the VMI is placed.
const LONGEST: usize = 32 << 10;

/// What a pod is to report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodUpdate {
    /// The readiness gate, if it changes.
    pub unpaused: Option<bool>,
    /// The report, if it is to be on the pod.
    pub report: Option<Box<Status>>,
}

impl PodUpdate {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unpaused.is_none() && self.report.is_none()
    }

    /// The conditions, for a strategic merge patch: each is merged into the others by its type.
    #[must_use]
    pub fn conditions(&self, now: Timestamp) -> Vec<Value> {
        let gate = self.unpaused.map(|unpaused| {
            let (reason, message) = match unpaused {
                true => (Reason::NotPaused, "the virtual machine is not paused"),
                false => (Reason::Paused, "the virtual machine is paused"),
            };
            NewCondition::new(PodConditionType::Unpaused, unpaused, reason, message)
        });
        let report = self.report.as_ref().and_then(|report| encode(report));
        let report =
            report.map(|message| NewCondition::new(PodConditionType::LauncherReport, true, Reason::Reported, message));
        gate.into_iter().chain(report).map(|new| json_of(&new, now)).collect()
    }
}

fn json_of(new: &NewCondition<'_, PodConditionType>, now: Timestamp) -> Value {
    json!({
        "type": new.kind.name(),
        "status": new.status.name(),
        "reason": new.reason,
        "message": new.message,
        "lastTransitionTime": format!("{now:.0}"),
    })
}

/// Whether a report makes the controller write: the guest runs, or its run is over.
#[must_use]
pub fn is_milestone(report: &Status) -> bool {
    let runs = report.phase == control::ReportedPhase::Running && !report.machine.is_empty();
    (report.ended.is_some() || runs) && encode(report).is_some()
}

fn encode(report: &Status) -> Option<String> {
    serde_json::to_string(report).ok().filter(|text| text.len() <= LONGEST)
}

/// The first report of a pod's launcher, if its agent has passed it on and it is about the VMI of this UID.
#[must_use]
pub fn reported(pod: &Pod, vmi_uid: &str) -> Option<Status> {
    let message =
        condition(pod, REPORTED).filter(|each| each.status == ConditionStatus::True.name())?.message.as_deref()?;
    serde_json::from_str::<Status>(message).ok().filter(|report| report.uid == vmi_uid)
}

/// A condition of a pod.
#[must_use]
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|each| each.type_ == kind)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn pod(update: &PodUpdate) -> Pod {
        let conditions = update.conditions(Timestamp::UNIX_EPOCH);
        serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn the_agents_policy_lets_it_change_these_conditions() {
        let policy = std::fs::read_to_string("../deploy/base/node-policy.yaml").unwrap();
        assert!(policy.contains(&format!("['{UNPAUSED}', '{REPORTED}']")), "deploy/base/node-policy.yaml");
    }

    #[test]
    fn what_is_put_on_a_pod_is_found_there() {
        let update = PodUpdate { unpaused: Some(true), report: Some(Box::new(report(1))) };
        let pod = pod(&update);
        assert_eq!(reported(&pod, &report(1).uid), Some(report(1)));
        assert_eq!(reported(&pod, "another"), None, "it is about another machine");
        assert_eq!(condition(&pod, UNPAUSED).map(|each| each.status.as_str()), Some("True"));
        assert_eq!(reported(&self::pod(&PodUpdate { unpaused: Some(false), report: None }), &report(1).uid), None);
    }

    #[test]
    fn a_report_that_is_too_long_is_not_put_there() {
        let mut long = report(1);
        assert!(is_milestone(&long));
        long.machine = "m".repeat(LONGEST);
        assert!(!is_milestone(&long));
        let update = PodUpdate { unpaused: None, report: Some(Box::new(long)) };
        assert_eq!(update.conditions(Timestamp::UNIX_EPOCH), [] as [Value; 0]);
    }

    #[test]
    fn before_the_guest_runs_nothing_is_reported() {
        let early = Status { phase: control::ReportedPhase::Scheduled, ..report(1) };
        let unnamed = Status { machine: String::new(), ..report(1) };
        assert!(!is_milestone(&early) && !is_milestone(&unnamed));
    }
}
