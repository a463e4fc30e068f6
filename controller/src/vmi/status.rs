//! What the status of a VirtualMachineInstance says as far as its pod shows it. Pure.

use std::time::Duration;

use garboard_api::VirtualMachineInstance;
use garboard_api::metadata::label;
use garboard_api::v1::{
    VirtualMachineInstanceCondition, VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus,
};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::decide::{Decision, KILLED_BY_FORCE, LAST_REPORT, Step, World};
use super::phase::Phase;
use crate::pod::PodRefusal;
use crate::time::stamp;
use crate::vm::status::FAILED_CREATE;

/// Brings phase and conditions up to what the pod shows.
pub(super) fn fill(world: &World, decision: &mut Decision) {
    let makes_pod = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_)));
    let before = Phase::of(&world.vmi);
    let phase = match &world.pod {
        _ if before.is_final() => before,
        Some(pod) => of_pod(world, pod, before, decision),
        None if makes_pod => Phase::Scheduling,
        None if before > Phase::Pending => without_pod(world, before, decision),
        None => before,
    };
    if makes_pod {
        forget(&mut decision.status, "Synchronized");
    }
    enter(world, phase, &mut decision.status);
    place(world, phase, decision);
    readiness(world, &mut decision.status);
}

/// How far a pod brings its instance. Running and what follows are the node agent's to say.
fn of_pod(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    match phase {
        "Succeeded" | "Failed" => after_the_end(world, pod, before, decision),
        _ if before >= Phase::Scheduled => before,
        _ if node(pod).is_some() && sidecar_runs(pod) => Phase::Scheduled,
        _ => Phase::Scheduling,
    }
}

/// The pod it had is gone.
fn without_pod(world: &World, before: Phase, decision: &mut Decision) -> Phase {
    decision.recheck = may_still_run(world);
    if decision.recheck.is_some() { before } else { Phase::Failed }
}

/// For how long a QEMU may run on whose pod's object is gone. `kubectl delete pod --force` takes the object away first, and the
/// kubelet then kills within two seconds, supervisor and all: often nobody is left to report. Who was not Ready for longer is on
/// a node that is away: there somebody has said that it is gone.
pub(super) fn may_still_run(world: &World) -> Option<Duration> {
    if world.pod.is_some() || Phase::of(&world.vmi) != Phase::Running {
        return None;
    }
    let conditions = world.vmi.status.iter().flat_map(|status| &status.conditions);
    let unready = conditions.into_iter().find(|each| each.r#type == "Ready" && each.status == "False");
    let since = unready.and_then(|each| each.last_transition_time.as_ref()).map_or(world.now, |time| time.0);
    let waited = Duration::try_from(world.now.duration_since(since)).unwrap_or(Duration::ZERO);
    Some(KILLED_BY_FORCE.saturating_sub(waited)).filter(|left| !left.is_zero())
}

/// The pod is over. The agent's last report says more than the pod; it has a moment to arrive.
fn after_the_end(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    let ended = ended_at(pod).unwrap_or(world.now);
    let since = world.now.duration_since(ended);
    let patience = LAST_REPORT.saturating_sub(since.try_into().unwrap_or(LAST_REPORT));
    if before >= Phase::Scheduled && !patience.is_zero() {
        decision.recheck = Some(patience);
        return before;
    }
    let is_success = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
    if decision.status.reason.is_none() {
        decision.status.reason = last_words(pod);
    }
    if is_success { Phase::Succeeded } else { Phase::Failed }
}

fn ended_at(pod: &Pod) -> Option<jiff::Timestamp> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|each| each.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

/// What PID 1 wrote to its termination log.
fn last_words(pod: &Pod) -> Option<String> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let compute = statuses.into_iter().find(|each| each.name == "compute")?;
    let message = compute.state.as_ref()?.terminated.as_ref()?.message.clone()?;
    Some(message.trim().to_owned()).filter(|text| !text.is_empty())
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn sidecar_runs(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let sidecar = statuses.into_iter().find(|each| each.name == "launcher");
    sidecar.is_some_and(|each| each.state.as_ref().is_some_and(|state| state.running.is_some()))
}

fn enter(world: &World, phase: Phase, status: &mut VirtualMachineInstanceStatus) {
    let word = phase.word();
    status.phase = Some(word.to_owned());
    let known = status.phase_transition_timestamps.iter().any(|each| each.phase.as_deref() == Some(word));
    if !known {
        status.phase_transition_timestamps.push(VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(word.to_owned()),
            phase_transition_timestamp: Some(stamp(world.now)),
        });
    }
}

/// The node is written with the phase Scheduled: from then on its agent may write.
fn place(world: &World, phase: Phase, decision: &mut Decision) {
    let Some(pod) = &world.pod else { return };
    let Some(node) = node(pod).filter(|_| phase >= Phase::Scheduled) else { return };
    decision.status.node_name = Some(node.to_owned());
    decision.labels.insert(label::NODE_NAME.to_owned(), node.to_owned());
    if let Some(uid) = &pod.metadata.uid {
        decision.status.active_pods = [(uid.clone(), node.to_owned())].into();
    }
    decision.status.qos_class = pod.status.as_ref().and_then(|status| status.qos_class.clone());
}

/// `Ready` follows the pod; `PodScheduled` is mirrored while it is false.
fn readiness(world: &World, status: &mut VirtualMachineInstanceStatus) {
    let condition = |kind: &str| {
        let all =
            world.pod.iter().flat_map(|pod| pod.status.iter().flat_map(|status| status.conditions.iter().flatten()));
        all.into_iter().find(|each| each.type_ == kind).cloned()
    };
    let (value, reason, message) = match (&world.pod, condition("Ready")) {
        (None, _) => ("False".to_owned(), "PodNotExists".to_owned(), "there is no launcher pod".to_owned()),
        (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
            ("False".to_owned(), "PodTerminating".to_owned(), "the launcher pod is being removed".to_owned())
        }
        (Some(_), Some(ready)) if ready.status == "True" => ("True".to_owned(), String::new(), String::new()),
        (Some(_), Some(_)) if Phase::of(&world.vmi) < Phase::Running => {
            ("False".to_owned(), "GuestNotRunning".to_owned(), "the guest does not run yet".to_owned())
        }
        (Some(_), Some(ready)) => (
            ready.status,
            ready.reason.unwrap_or_else(|| "PodConditionMissing".to_owned()),
            ready.message.unwrap_or_default(),
        ),
        (Some(_), None) => {
            ("False".to_owned(), "PodConditionMissing".to_owned(), "the launcher pod does not say yet".to_owned())
        }
    };
    set(world.now, status, ("Ready", &value), (&reason, &message));
    mirror_scheduling(world, condition("PodScheduled"), status);
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

/// Why there is no pod.
pub(super) fn refuse(world: &World, refusal: &PodRefusal, status: &mut VirtualMachineInstanceStatus) {
    set(world.now, status, ("Synchronized", "False"), (refusal.reason(), &refusal.to_string()));
}

/// What is told when the API server refuses the pod (a quota, the namespace's Pod Security): the instance stays as it was.
pub(super) fn without_pod_because(vmi: &VirtualMachineInstance, sentence: &str, now: jiff::Timestamp) -> Decision {
    let mut status = vmi.status.clone().unwrap_or_default();
    set(now, &mut status, ("Synchronized", "False"), (FAILED_CREATE, sentence));
    Decision { steps: Vec::new(), status, labels: Default::default(), recheck: None }
}

/// Whether the instance says so already.
pub(super) fn is_known(vmi: &VirtualMachineInstance, reason: &str, message: &str) -> bool {
    let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|each| each.reason.as_deref() == Some(reason) && each.message.as_deref() == Some(message))
}

fn forget(status: &mut VirtualMachineInstanceStatus, kind: &str) {
    status.conditions.retain(|each| each.r#type != kind);
}

/// A condition keeps its time while it says the same.
fn set(
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
