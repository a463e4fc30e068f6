//! What the status of a VirtualMachineInstance says as far as its pod shows it. Pure.

use garboard_api::metadata::label;
use garboard_api::v1::{VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus};
use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::decide::{Decision, KILLED_BY_FORCE, LAST_REPORT, Step, World};
use super::readiness::{forget, readiness, set};
use super::rejected::{self, is_rejected};
use super::remains::{self, may_still_run};
use super::start::by_report;
use super::{eviction, out_of_memory};
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
        _ if before.is_final() || before == Phase::Unknown => before,
        Some(pod) => of_pod(world, pod, before, decision),
        None if makes_pod => before.max(Phase::Scheduling),
        None if before > Phase::Pending || world.history.had_pod() => without_pod(world, before, decision),
        None => before,
    };
    synchronize(world, makes_pod, decision);
    if makes_pod && decision.status.conditions.iter().any(|each| each.r#type == DATA_VOLUMES) {
        set(world.now, &mut decision.status, (DATA_VOLUMES, "True"), ("AllDVsReady", ""));
    }
    enter(world, phase, &mut decision.status);
    out_of_memory::explain(world, phase, &mut decision.status);
    place(world, phase, decision);
    readiness(world, decision);
    eviction::conditions(world, &mut decision.status);
}

/// What keeps the instance from its pod, or the pod from running. It is said until a kubelet has taken a pod.
fn synchronize(world: &World, makes_pod: bool, decision: &mut Decision) {
    let refused = world.pod.as_ref().filter(|pod| is_rejected(world, pod)).map(rejected::why);
    let refused = refused.map(|why| (FAILED_CREATE.to_owned(), why));
    let waits = world.history.refusals > 0 && !world.pod.as_ref().is_some_and(sidecar_runs);
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
    let found = waiting.find(|each| {
        matches!(each.reason.as_deref(), Some("ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull"))
    })?;
    Some((found.reason.clone()?, found.message.clone().unwrap_or_default()))
}

/// How far a pod brings its instance. Running and what follows are the node agent's to say.
fn of_pod(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    if let Some(phase) = by_report(world, pod, before, decision) {
        return phase;
    }
    if is_rejected(world, pod) {
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
    if world.history.rejected {
        // Another one is made after a pause; what keeps it from being made has said when it is looked at again.
        decision.recheck = rejected::pause(world).or(decision.recheck);
        return before;
    }
    decision.recheck = may_still_run(world);
    if decision.recheck.is_some() { before } else { Phase::Failed }
}

/// The pod is over. The agent's last report says more than the pod; it has a moment to arrive. A pod that was put aside
/// (evicted, or not taken by a kubelet that started again) does not say when its containers ended, and they may be ending yet.
fn after_the_end(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    let (ended, limit) = match ended_at(pod) {
        Some(ended) => (ended, LAST_REPORT),
        None => (world.history.over.unwrap_or(world.now), KILLED_BY_FORCE),
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
    // A word that this release does not know is not its own to change.
    if phase == Phase::Unknown {
        return;
    }
    let word = phase.word();
    status.phase = Some(word.to_owned());
    let known = status.phase_transition_timestamps.iter().any(|each| each.phase.as_deref() == Some(word));
    if !known {
        let transitions = &mut status.phase_transition_timestamps;
        let entered = |phase: Phase, at| VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(phase.word().to_owned()),
            phase_transition_timestamp: Some(at),
        };
        // A start is not told while it may be quick, and every instance begins as Pending.
        if let (true, Some(created)) = (transitions.is_empty(), &world.vmi.metadata.creation_timestamp) {
            transitions.extend((phase > Phase::Pending).then(|| entered(Phase::Pending, created.clone())));
        }
        transitions.push(entered(phase, stamp(world.now)));
    }
}

/// The node is written with the phase Scheduled: from then on its agent may write.
fn place(world: &World, phase: Phase, decision: &mut Decision) {
    keep_place(world, decision);
    let Some(pod) = &world.pod else { return remains::ask(world, phase, decision) };
    let Some(node) = node(pod).filter(|_| phase >= Phase::Scheduled) else { return };
    decision.status.node_name = Some(node.to_owned());
    decision.labels.insert(label::NODE_NAME.to_owned(), node.to_owned());
    // What the agent has said of a pod stays true, even where the watch has not told yet that the pod is gone.
    if let Some(uid) = pod.metadata.uid.as_ref().filter(|uid| !remains::is_nowhere(&decision.status, uid)) {
        decision.status.active_pods = [(uid.clone(), node.to_owned())].into();
    }
    decision.status.qos_class = pod.status.as_ref().and_then(|status| status.qos_class.clone());
}

/// The node that was written stays: what is applied once goes with the next apply that leaves it out, and the node's agent
/// finds its machines by the label until their last report.
fn keep_place(world: &World, decision: &mut Decision) {
    if let Some(node) = &decision.status.node_name
        && world.vmi.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label::NODE_NAME))
    {
        decision.labels.insert(label::NODE_NAME.to_owned(), node.clone());
    }
}

/// Why there is no pod.
pub(super) fn refuse(world: &World, refusal: &PodRefusal, status: &mut VirtualMachineInstanceStatus) {
    // One of the two: what was waited for before is not what is waited for now.
    let (kind, other) =
        if refusal.is_unfilled() { (DATA_VOLUMES, "Synchronized") } else { ("Synchronized", DATA_VOLUMES) };
    forget(status, other);
    set(world.now, status, (kind, "False"), (refusal.reason(), &refusal.to_string()));
}

/// What is told when a step fails (a quota, the namespace's Pod Security, a webhook that does not answer): the instance stays
/// as it was.
pub(super) fn because(world: &World, reason: (&str, &str)) -> Decision {
    let mut status = world.vmi.status.clone().unwrap_or_default();
    set(world.now, &mut status, ("Synchronized", "False"), reason);
    let mut decision =
        Decision { steps: Vec::new(), status, labels: Default::default(), recheck: None, is_reported: false };
    keep_place(world, &mut decision);
    decision
}

/// Whether the instance says so already.
pub(super) fn is_known(vmi: &VirtualMachineInstance, reason: &str, message: &str) -> bool {
    let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|each| each.reason.as_deref() == Some(reason) && each.message.as_deref() == Some(message))
}
