//! What the status of a VirtualMachineInstance says as far as its pod shows it. Pure.

use std::time::Duration;

use garboard_api::metadata::label;
use garboard_api::v1::{VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus};
use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::decide::{Decision, KILLED_BY_FORCE, LAST_REPORT, Step, World};
use super::readiness::{forget, readiness, set};
use super::start::by_report;
use super::turned_away::{self, is_turned_away};
use crate::pod::PodRefusal;
use crate::time::{elapsed, stamp};
use crate::vm::status::FAILED_CREATE;

/// KubeVirt's condition for claims that are still being filled.
pub(super) const DATA_VOLUMES: &str = "DataVolumesReady";

/// Brings phase and conditions up to what the pod shows.
pub(super) fn fill(world: &World, decision: &mut Decision) {
    let makes_pod = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_)));
    let before = Phase::of(&world.vmi);
    let phase = match &world.pod {
        _ if before.is_final() => before,
        Some(pod) => of_pod(world, pod, before, decision),
        None if makes_pod => before.max(Phase::Scheduling),
        None if before > Phase::Pending || world.trace.had_pod() => without_pod(world, before, decision),
        None => before,
    };
    synchronize(world, makes_pod, decision);
    if makes_pod && decision.status.conditions.iter().any(|each| each.r#type == DATA_VOLUMES) {
        set(world.now, &mut decision.status, (DATA_VOLUMES, "True"), ("AllDVsReady", ""));
    }
    enter(world, phase, &mut decision.status);
    place(world, phase, decision);
    readiness(world, decision);
}

/// What keeps the instance from its pod, or the pod from running. It is said until a kubelet has taken a pod.
fn synchronize(world: &World, makes_pod: bool, decision: &mut Decision) {
    let refused = world.pod.as_ref().filter(|pod| is_turned_away(world, pod)).map(turned_away::why);
    let refused = refused.map(|why| (FAILED_CREATE.to_owned(), why));
    let waits = world.trace.refusals > 0 && !world.pod.as_ref().is_some_and(sidecar_runs);
    match refused.or_else(|| world.pod.as_ref().and_then(unpullable)) {
        Some((reason, message)) if !decision.is_reported => {
            set(world.now, &mut decision.status, ("Synchronized", "False"), (&reason, &message));
        }
        _ if (makes_pod || world.pod.is_some()) && !waits => forget(&mut decision.status, "Synchronized"),
        _ => {}
    }
}

/// An image that a kubelet cannot pull, in its words.
fn unpullable(pod: &Pod) -> Option<(String, String)> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Pending"))?;
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let mut waiting = containers.filter_map(|each| each.state.as_ref()?.waiting.as_ref());
    let found = waiting.find(|each| matches!(each.reason.as_deref(), Some("ErrImagePull" | "ImagePullBackOff")))?;
    Some((found.reason.clone()?, found.message.clone().unwrap_or_default()))
}

/// How far a pod brings its instance. Running and what follows are the node agent's to say.
fn of_pod(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    if let Some(phase) = by_report(world, pod, before, decision) {
        return phase;
    }
    if is_turned_away(world, pod) {
        before
    } else if is_over(pod) {
        after_the_end(world, pod, before, decision)
    } else if before < Phase::Scheduled {
        if node(pod).is_some() && sidecar_runs(pod) { Phase::Scheduled } else { Phase::Scheduling }
    } else {
        before
    }
}

/// Whether a pod's containers have ended for good.
pub(super) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pod it had is gone.
fn without_pod(world: &World, before: Phase, decision: &mut Decision) -> Phase {
    decision.recheck = if world.trace.turned_away { turned_away::pause(world) } else { may_still_run(world) };
    if decision.recheck.is_some() { before } else { Phase::Failed }
}

/// For how long a QEMU may run on whose pod's object is gone. `kubectl delete pod --force` takes the object away first, and the
/// kubelet then kills within two seconds, supervisor and all: often nobody is left to report. A pod that was never on a node
/// has no QEMU.
pub(super) fn may_still_run(world: &World) -> Option<Duration> {
    let phase = Phase::of(&world.vmi);
    let had_pod = phase > Phase::Pending || world.trace.had_pod();
    let was_placed = phase >= Phase::Scheduled || world.trace.placed != Some(false);
    if world.pod.is_some() || phase.is_final() || !had_pod || !was_placed {
        return None;
    }
    let missing = world.trace.missing.unwrap_or(world.now);
    Some(KILLED_BY_FORCE.saturating_sub(elapsed(missing, world.now))).filter(|left| !left.is_zero())
}

/// The pod is over. The agent's last report says more than the pod; it has a moment to arrive. A pod that was put aside
/// (evicted, or not taken by a kubelet that started again) does not say when its containers ended, and they may be ending yet.
fn after_the_end(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    let (ended, limit) = match ended_at(pod) {
        Some(ended) => (ended, LAST_REPORT),
        None => (world.trace.over.unwrap_or(world.now), KILLED_BY_FORCE),
    };
    let patience = limit.saturating_sub(elapsed(ended, world.now));
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

/// The node a pod is on.
pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn sidecar_runs(pod: &Pod) -> bool {
    let state = container(pod, "launcher").and_then(|each| each.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// A container that runs beside the others from the start.
pub(super) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pod.status.as_ref()?.init_container_statuses.as_ref()?.iter().find(|each| each.name == name)
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

/// Why there is no pod.
pub(super) fn refuse(world: &World, refusal: &PodRefusal, status: &mut VirtualMachineInstanceStatus) {
    // One of the two: what was waited for before is not what is waited for now.
    let (kind, other) =
        if refusal.is_unfilled() { (DATA_VOLUMES, "Synchronized") } else { ("Synchronized", DATA_VOLUMES) };
    forget(status, other);
    set(world.now, status, (kind, "False"), (refusal.reason(), &refusal.to_string()));
}

/// What is told when the API server refuses the pod (a quota, the namespace's Pod Security): the instance stays as it was.
pub(super) fn without_pod_because(
    vmi: &VirtualMachineInstance,
    refusal: (&str, &str),
    now: jiff::Timestamp,
) -> Decision {
    let mut status = vmi.status.clone().unwrap_or_default();
    set(now, &mut status, ("Synchronized", "False"), refusal);
    Decision { steps: Vec::new(), status, labels: Default::default(), recheck: None, is_reported: false }
}

/// Whether the instance says so already.
pub(super) fn is_known(vmi: &VirtualMachineInstance, reason: &str, message: &str) -> bool {
    let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|each| each.reason.as_deref() == Some(reason) && each.message.as_deref() == Some(message))
}
