//! The conditions that the controller sets: `Ready`, `PodScheduled`, `Synchronized`. Pure.

use std::time::Duration;

use garboard_api::Phase;
use garboard_api::v1::{VirtualMachineInstanceCondition, VirtualMachineInstanceStatus};
use garboard_cluster::report::condition::{self, UNPAUSED};
use k8s_openapi::api::core::v1::PodCondition;

use super::decide::{Decision, World};
use super::remains;
use crate::time::{elapsed, stamp};

/// How long a kubelet may need to see that a pod's containers run; one or two seconds are usual.
const KUBELET_LOOKS: Duration = Duration::from_secs(10);

/// `Ready` follows the pod; `PodScheduled` is mirrored while it is false.
pub(super) fn readiness(world: &World, decision: &mut Decision) {
    let status = &mut decision.status;
    let condition = |kind: &str| condition::condition(world.pod.as_ref()?, kind).cloned();
    let runs = Phase::of_status(status) == Phase::Running;
    let foreseen = condition("Ready").filter(|_| runs).and_then(|ready| about_to_be_ready(world, &ready));
    // Nothing will be heard of a kubelet that never looks.
    decision.recheck = [decision.recheck, foreseen].into_iter().flatten().min();
    let (value, reason, message) = match (&world.pod, condition("Ready")) {
        (None, _) => ("False".to_owned(), "PodNotExists".to_owned(), remains::sentence(world)),
        (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
            ("False".to_owned(), "PodTerminating".to_owned(), "the launcher pod is being removed".to_owned())
        }
        // A pod may be ready without a word of its guest.
        (Some(_), Some(ready)) if ready.status == "True" && runs => ("True".to_owned(), String::new(), String::new()),
        (Some(_), Some(_)) if foreseen.is_some() => ("True".to_owned(), String::new(), String::new()),
        (Some(_), Some(ready)) if Phase::of_status(status) < Phase::Running || ready.status == "True" => {
            ("False".to_owned(), "GuestNotRunning".to_owned(), "the guest does not run".to_owned())
        }
        (Some(_), Some(ready)) => (
            ready.status,
            ready.reason.unwrap_or_else(|| "PodConditionMissing".to_owned()),
            ready.message.unwrap_or_default(),
        ),
        (Some(_), None) => (
            "False".to_owned(),
            "PodConditionMissing".to_owned(),
            "the launcher pod has no Ready condition yet".to_owned(),
        ),
    };
    set(world.now, status, ("Ready", &value), (&reason, &message));
    mirror_scheduling(world, condition("PodScheduled"), status);
}

/// For how long a pod is taken for ready although its kubelet has not looked yet: a launcher whose guest runs says that its
/// containers do, so that without a probe nothing is left to find out. What the kubelet says after that counts, and one that
/// says nothing for long is on a node that is away.
fn about_to_be_ready(world: &World, ready: &PodCondition) -> Option<Duration> {
    let pod = world.pod.as_ref().filter(|pod| pod.metadata.deletion_timestamp.is_none())?;
    let since = |condition: &PodCondition| condition.last_transition_time.as_ref().map(|time| time.0);
    let gate = since(condition::condition(pod, UNPAUSED).filter(|gate| gate.status == "True")?)?;
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let is_probed = containers.any(|each| each.readiness_probe.is_some());
    let is_older = ready.status != "True" && since(ready)?.as_second() <= gate.as_second();
    let rest = KUBELET_LOOKS.saturating_sub(elapsed(gate, world.now));
    (is_older && !is_probed && !rest.is_zero()).then_some(rest)
}

fn mirror_scheduling(world: &World, scheduled: Option<PodCondition>, status: &mut VirtualMachineInstanceStatus) {
    match scheduled.filter(|each| each.status == "False") {
        Some(each) => {
            let (reason, message) = (each.reason.unwrap_or_default(), each.message.unwrap_or_default());
            set(world.now, status, ("PodScheduled", "False"), (&reason, &message));
        }
        None => forget(status, "PodScheduled"),
    }
}

/// Takes a condition away.
pub(super) fn forget(status: &mut VirtualMachineInstanceStatus, kind: &str) {
    status.conditions.retain(|each| each.r#type != kind);
}

/// A condition keeps its time while it says the same.
pub(super) fn set(
    now: jiff::Timestamp,
    status: &mut VirtualMachineInstanceStatus,
    (kind, value): (&str, &str),
    (reason, message): (&str, &str),
) {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let old = status.conditions.iter().find(|each| each.r#type == kind && each.status == value);
    let since = old.and_then(|old| old.last_transition_time.clone()).unwrap_or_else(|| stamp(now));
    let condition = VirtualMachineInstanceCondition {
        last_probe_time: None,
        last_transition_time: Some(since),
        message: text(message),
        reason: text(reason),
        status: value.to_owned(),
        r#type: kind.to_owned(),
    };
    match status.conditions.iter_mut().find(|each| each.r#type == kind) {
        Some(each) => *each = condition,
        None => status.conditions.push(condition),
    }
}
