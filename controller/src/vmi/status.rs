//! The status of a VirtualMachineInstance, put together of its parts. Pure.

use std::borrow::Cow;

use garboard_api::conditions::{self, ConditionChange, NewCondition, Reason, VmiConditionType};
use garboard_api::v1::{
    VirtualMachineInstancePhaseTransitionTimestamp as PhaseTransition, VirtualMachineInstanceStatus,
};
use garboard_api::{Phase, VirtualMachineInstance};

use super::decide::{Decision, World};
use super::out_of_memory;
use super::place::{self, Placement};
use super::readiness::{self, Readiness};
use super::situation::{Case, Situation};
use super::{eviction, pod_status};
use crate::pod::PodRefusal;
use crate::time::stamp;

type Change = ConditionChange<'static, VmiConditionType>;

/// Parts that are used elsewhere as well.
pub(super) struct Parts<'a> {
    /// Whether the machine is ready.
    pub readiness: &'a Readiness,
    /// Where it is.
    pub placement: &'a Placement,
}

/// The status of an instance that is in `phase` now.
pub(super) fn of(case: &Case<'_>, phase: Phase, parts: &Parts<'_>) -> VirtualMachineInstanceStatus {
    let before = case.status();
    let killed = out_of_memory::killed(case, phase, &before);
    let mut conditions = before.conditions.clone();
    let ended = killed.as_ref().map(|killed| ConditionChange::Set(killed.condition()));
    let changes = synchronized(case).into_iter().chain(filled(case, &before)).chain(ended);
    let changes = changes.chain([ConditionChange::Set(parts.readiness.condition.clone()), readiness::scheduling(case)]);
    conditions::change(&mut conditions, changes.chain(eviction::conditions(case)), case.world.now);
    VirtualMachineInstanceStatus {
        // A phase that this release does not support is not changed by it.
        phase: if phase == Phase::Unknown { before.phase.clone() } else { Some(phase.name().to_owned()) },
        phase_transition_timestamps: transitions(case, phase, &before),
        reason: killed.map(|killed| killed.reason().as_str().to_owned()).or_else(|| reason(case, &before)),
        conditions,
        node_name: parts.placement.node_name.clone(),
        active_pods: parts.placement.active_pods.clone(),
        qos_class: parts.placement.qos_class.clone(),
        launcher_container_image_version: parts.placement.image.clone(),
        ..before
    }
}

/// Why its run ended.
fn reason(case: &Case<'_>, before: &VirtualMachineInstanceStatus) -> Option<String> {
    let message = if let Situation::Over { message, .. } = &case.situation { message.clone() } else { None };
    before.reason.clone().or(message)
}

/// What keeps the instance from its pod, or the pod from running. It is reported until a kubelet has taken a pod.
fn synchronized(case: &Case<'_>) -> Vec<Change> {
    let not = |reason: Reason, message: String| {
        vec![ConditionChange::Set(NewCondition::new(VmiConditionType::Synchronized, false, reason, message))]
    };
    let pod = case.world.pod.as_ref();
    match &case.situation {
        Situation::Obstructed(refusal) => return refused(refusal),
        Situation::Rejected { why } => return not(Reason::FailedCreate, why.clone()),
        Situation::Reported(_)
        | Situation::Settled
        | Situation::NoPodYet { .. }
        | Situation::Starting(_)
        | Situation::Retrying { .. }
        | Situation::Vanished { .. }
        | Situation::Ending { .. }
        | Situation::Over { .. }
        | Situation::OnItsWay { .. }
        | Situation::AgentsTurn => {}
    }
    if let Some(error) = pod.and_then(pod_status::pull_error).filter(|_| !case.is_reported()) {
        return not(error.reason, error.message);
    }
    let waits = case.world.history.refusals > 0 && !pod.is_some_and(pod_status::sidecar_runs);
    let is_taken = (case.makes_pod() || pod.is_some()) && !waits;
    if is_taken { vec![ConditionChange::Remove(VmiConditionType::Synchronized)] } else { Vec::new() }
}

/// Why there is no pod. One of the first two conditions: what was waited for before is not what is waited for now.
fn refused(refusal: &PodRefusal) -> Vec<Change> {
    let (kind, other) = if refusal.is_unfilled() {
        (VmiConditionType::DataVolumesReady, VmiConditionType::Synchronized)
    } else {
        (VmiConditionType::Synchronized, VmiConditionType::DataVolumesReady)
    };
    let new = NewCondition::new(kind, false, refusal.reason(), refusal.to_string());
    let provisioning = if refusal.is_being_filled() {
        ConditionChange::Set(NewCondition::bare(VmiConditionType::Provisioning, true))
    } else {
        ConditionChange::Remove(VmiConditionType::Provisioning)
    };
    vec![ConditionChange::Remove(other), ConditionChange::Set(new), provisioning]
}

/// The condition of DataVolumes is true once a pod is made, and none is being filled. Also where the pod is there already: of a
/// quick start nothing was written when it was made.
fn filled(case: &Case<'_>, before: &VirtualMachineInstanceStatus) -> Vec<Change> {
    let kind = VmiConditionType::DataVolumesReady;
    if !case.makes_pod() && case.world.pod.is_none() {
        return Vec::new();
    }
    let was_waited_for = conditions::find(&before.conditions, kind).is_some();
    let new = NewCondition::new(kind, true, Reason::AllDataVolumesReady, "");
    let filled = was_waited_for.then_some(ConditionChange::Set(new));
    filled.into_iter().chain([ConditionChange::Remove(VmiConditionType::Provisioning)]).collect()
}

/// When it was in which phase.
fn transitions(case: &Case<'_>, phase: Phase, before: &VirtualMachineInstanceStatus) -> Vec<PhaseTransition> {
    let mut all = before.phase_transition_timestamps.clone();
    let is_known = all.iter().any(|each| each.phase.as_deref() == Some(phase.name()));
    if phase == Phase::Unknown || is_known {
        return all;
    }
    let entered = |phase: Phase, at| PhaseTransition {
        phase: Some(phase.name().to_owned()),
        phase_transition_timestamp: Some(at),
    };
    // A start is not written while it may be quick, and every instance begins as Pending.
    if let (true, Some(created)) = (all.is_empty(), &case.world.vmi.metadata.creation_timestamp) {
        all.extend((phase > Phase::Pending).then(|| entered(Phase::Pending, created.clone())));
    }
    all.push(entered(phase, stamp(case.world.now)));
    all
}

/// What is written when a step fails (a quota, the namespace's Pod Security, a webhook that does not answer): the instance
/// stays as it was.
pub(super) fn because<'a>(world: &World, reason: Reason, message: impl Into<Cow<'a, str>>) -> Decision {
    let mut status = world.vmi.status.clone().unwrap_or_default();
    let new = NewCondition::new(VmiConditionType::Synchronized, false, reason, message);
    conditions::set(&mut status.conditions, &new, world.now);
    let labels = place::kept_label(&world.vmi, &status);
    Decision { steps: Vec::new(), status, labels, recheck: None, is_reported: false }
}

/// Whether the instance reports it already.
pub(super) fn is_known(vmi: &VirtualMachineInstance, reason: &str, message: &str) -> bool {
    let conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|each| each.reason.as_deref() == Some(reason) && each.message.as_deref() == Some(message))
}
