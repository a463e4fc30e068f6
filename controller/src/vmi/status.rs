//! What the status of a VirtualMachineInstance says as far as its pod shows it. Pure.

use std::time::Duration;

use garboard_api::metadata::label;
use garboard_api::v1::{
    VirtualMachineInstanceCondition, VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus,
};
use garboard_api::{Phase, VirtualMachineInstance};
use garboard_launcher::report::Seen;
use garboard_launcher::report::condition::{self, UNPAUSED};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use super::decide::{Decision, KILLED_BY_FORCE, LAST_REPORT, QUICK, Step, World};
use crate::pod::PodRefusal;
use crate::time::{elapsed, stamp};
use crate::vm::status::FAILED_CREATE;

/// How long a kubelet may need to see that a pod's containers run; one or two seconds are usual.
const KUBELET_LOOKS: Duration = Duration::from_secs(10);

/// Brings phase and conditions up to what the pod shows.
pub(super) fn fill(world: &World, decision: &mut Decision) {
    let makes_pod = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_)));
    let before = Phase::of(&world.vmi);
    let phase = match &world.pod {
        _ if before.is_final() => before,
        Some(pod) => of_pod(world, pod, before, decision),
        None if makes_pod => Phase::Scheduling,
        None if before > Phase::Pending || world.trace.made.is_some() => without_pod(world, before, decision),
        None => before,
    };
    if makes_pod || decision.is_reported {
        forget(&mut decision.status, "Synchronized");
    }
    enter(world, phase, &mut decision.status);
    place(world, phase, decision);
    readiness(world, decision);
}

/// How far a pod brings its instance. Running and what follows are the node agent's to say.
fn of_pod(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Phase {
    if let Some(phase) = by_report(world, pod, before, decision) {
        return phase;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    match phase {
        "Succeeded" | "Failed" => after_the_end(world, pod, before, decision),
        _ if before >= Phase::Scheduled => before,
        _ if node(pod).is_some() && sidecar_runs(pod) => Phase::Scheduled,
        _ => Phase::Scheduling,
    }
}

/// What the launcher said first, as long as the instance is not the node agent's to write.
fn by_report(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Option<Phase> {
    node(pod)?;
    let report = condition::reported(pod, world.vmi.metadata.uid.as_deref()?).filter(|_| before < Phase::Scheduled)?;
    let addresses: Vec<_> = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten()).collect();
    let addresses: Vec<_> = addresses.into_iter().map(|address| address.ip.clone()).collect();
    let mut vmi = world.vmi.clone();
    vmi.status = Some(decision.status.clone());
    let seen = Seen { report: &report, addresses: &addresses, vmi: &vmi, now: world.now };
    decision.status = garboard_launcher::report::next_status(&seen)?;
    decision.is_reported = true;
    passed_through(world, pod, &mut decision.status);
    Some(Phase::of_status(&decision.status))
}

/// When the instance was in the phases that were not told, as its object and its pod show it.
fn passed_through(world: &World, pod: &Pod, status: &mut VirtualMachineInstanceStatus) {
    let sidecar = container(pod, "launcher").and_then(|each| each.state.as_ref()?.running.as_ref()?.started_at.clone());
    let (created, made) = (&world.vmi.metadata.creation_timestamp, &pod.metadata.creation_timestamp);
    let times = [(Phase::Pending, created.clone()), (Phase::Scheduling, made.clone()), (Phase::Scheduled, sidecar)];
    for (phase, at) in times {
        let transitions = &mut status.phase_transition_timestamps;
        let is_known = transitions.iter().any(|each| each.phase.as_deref() == Some(phase.word()));
        let Some(at) = at.filter(|_| !is_known) else { continue };
        let later =
            |each: &VirtualMachineInstancePhaseTransitionTimestamp| Phase::of_word(each.phase.as_deref()) > phase;
        let place = transitions.iter().position(later).unwrap_or(transitions.len());
        transitions.insert(
            place,
            VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(phase.word().to_owned()),
                phase_transition_timestamp: Some(at),
            },
        );
    }
}

/// For how long a start is left without a word: while the pod is young, was made by this very leader, and nothing is wrong.
pub(super) fn quiet_for(world: &World, decision: &Decision) -> Option<Duration> {
    let makes_pod = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_)));
    let made = if makes_pod { Some(world.now) } else { world.trace.made }?;
    let phase = Phase::of_status(&decision.status);
    let is_on_its_way =
        Phase::of(&world.vmi) == Phase::Pending && (Phase::Scheduling..=Phase::Scheduled).contains(&phase);
    let is_told = |status: &VirtualMachineInstanceStatus| {
        status.conditions.iter().any(|each| ["PodScheduled", "Synchronized"].contains(&each.r#type.as_str()))
    };
    let has_news = is_told(&decision.status) || world.vmi.status.as_ref().is_some_and(is_told);
    if !is_on_its_way || has_news || world.vmi.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(QUICK.saturating_sub(elapsed(made, world.now))).filter(|rest| !rest.is_zero())
}

/// The pod it had is gone.
fn without_pod(world: &World, before: Phase, decision: &mut Decision) -> Phase {
    decision.recheck = may_still_run(world);
    if decision.recheck.is_some() { before } else { Phase::Failed }
}

/// For how long a QEMU may run on whose pod's object is gone. `kubectl delete pod --force` takes the object away first, and the
/// kubelet then kills within two seconds, supervisor and all: often nobody is left to report. A pod that was never on a node
/// has no QEMU.
pub(super) fn may_still_run(world: &World) -> Option<Duration> {
    let phase = Phase::of(&world.vmi);
    let had_pod = phase > Phase::Pending || world.trace.made.is_some();
    let was_placed = phase >= Phase::Scheduled || world.trace.placed != Some(false);
    if world.pod.is_some() || phase.is_final() || !had_pod || !was_placed {
        return None;
    }
    let missing = world.trace.missing.unwrap_or(world.now);
    Some(KILLED_BY_FORCE.saturating_sub(elapsed(missing, world.now))).filter(|left| !left.is_zero())
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

/// The node a pod is on.
pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn sidecar_runs(pod: &Pod) -> bool {
    let state = container(pod, "launcher").and_then(|each| each.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// A container that runs beside the others from the start.
fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
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

/// `Ready` follows the pod; `PodScheduled` is mirrored while it is false.
fn readiness(world: &World, decision: &mut Decision) {
    let status = &mut decision.status;
    let condition = |kind: &str| condition::condition(world.pod.as_ref()?, kind).cloned();
    let runs = Phase::of_status(status) == Phase::Running;
    let foreseen = condition("Ready").filter(|_| runs).and_then(|ready| about_to_be_ready(world, &ready));
    // Nothing will be heard of a kubelet that never looks.
    decision.recheck = [decision.recheck, foreseen].into_iter().flatten().min();
    let (value, reason, message) = match (&world.pod, condition("Ready")) {
        (None, _) => ("False".to_owned(), "PodNotExists".to_owned(), "there is no launcher pod".to_owned()),
        (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
            ("False".to_owned(), "PodTerminating".to_owned(), "the launcher pod is being removed".to_owned())
        }
        (Some(_), Some(ready)) if ready.status == "True" => ("True".to_owned(), String::new(), String::new()),
        (Some(_), Some(_)) if foreseen.is_some() => ("True".to_owned(), String::new(), String::new()),
        (Some(_), Some(_)) if Phase::of_status(status) < Phase::Running => {
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

/// Why there is no pod.
pub(super) fn refuse(world: &World, refusal: &PodRefusal, status: &mut VirtualMachineInstanceStatus) {
    set(world.now, status, ("Synchronized", "False"), (refusal.reason(), &refusal.to_string()));
}

/// What is told when the API server refuses the pod (a quota, the namespace's Pod Security): the instance stays as it was.
pub(super) fn without_pod_because(vmi: &VirtualMachineInstance, sentence: &str, now: jiff::Timestamp) -> Decision {
    let mut status = vmi.status.clone().unwrap_or_default();
    set(now, &mut status, ("Synchronized", "False"), (FAILED_CREATE, sentence));
    Decision { steps: Vec::new(), status, labels: Default::default(), recheck: None, is_reported: false }
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
