//! The conditions `Ready` and `PodScheduled`, which follow the pod's. Pure.

use std::time::Duration;

use garboard_api::Phase;
use garboard_api::conditions::{
    ConditionChange, ConditionStatus, NewCondition, PodConditionType, Reason, VmiConditionType,
};
use garboard_plan::PlanError;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::pod_status::condition;
use super::remains;
use super::situation::{Case, Situation};
use crate::pod::PodRefusal;
use crate::time::elapsed;

/// How long a kubelet may need to see that a pod's containers run; one or two seconds are usual.
const KUBELET_LOOKS: Duration = Duration::from_secs(10);

/// Whether the machine is ready.
pub(super) struct Readiness {
    /// The condition.
    pub condition: NewCondition<'static, VmiConditionType>,
    /// For how long it is reported although the kubelet has not looked yet.
    pub foreseen_for: Option<Duration>,
}

/// `Ready` follows the pod.
pub(super) fn of(case: &Case<'_>, phase: Phase) -> Readiness {
    let not = |reason, message: String| NewCondition::new(VmiConditionType::Ready, false, reason, message);
    let Some(pod) = &case.world.pod else {
        let condition = not(Reason::PodNotExists, remains::message(case.asked.as_ref()));
        return Readiness { condition, foreseen_for: None };
    };
    let ready = condition(pod, PodConditionType::Ready);
    let runs = phase == Phase::Running;
    let foreseen_for = ready.filter(|_| runs).and_then(|ready| about_to_be_ready(case, pod, ready));
    let is_ready = ready.is_some_and(|ready| ready.status == ConditionStatus::True.name());
    let condition = match ready {
        _ if pod.metadata.deletion_timestamp.is_some() => {
            not(Reason::PodTerminating, "the launcher pod is being removed".to_owned())
        }
        // A pod may be ready before its guest runs.
        Some(_) if (is_ready && runs) || foreseen_for.is_some() => NewCondition::bare(VmiConditionType::Ready, true),
        Some(_) if phase < Phase::Running || is_ready => {
            not(Reason::GuestNotRunning, "the guest does not run".to_owned())
        }
        Some(ready) => mirrored(VmiConditionType::Ready, ready, Some(Reason::PodConditionMissing)),
        None => not(Reason::PodConditionMissing, "the launcher pod has no Ready condition yet".to_owned()),
    };
    Readiness { condition, foreseen_for }
}

/// The pod's condition, as it is; `reason` if it has none.
fn mirrored(
    kind: VmiConditionType,
    of_pod: &PodCondition,
    reason: Option<Reason>,
) -> NewCondition<'static, VmiConditionType> {
    NewCondition {
        kind,
        status: ConditionStatus::from_name(&of_pod.status).unwrap_or(ConditionStatus::Unknown),
        reason: of_pod.reason.clone().map_or_else(|| reason.map_or("", Reason::name).into(), Into::into),
        message: of_pod.message.clone().unwrap_or_default().into(),
    }
}

/// For how long a pod is taken for ready although its kubelet has not looked yet: a launcher whose guest runs reports that its
/// containers do, so that without a probe nothing is left to find out. The kubelet's report after that counts, and one that
/// reports nothing for long is on a node that is away.
fn about_to_be_ready(case: &Case<'_>, pod: &Pod, ready: &PodCondition) -> Option<Duration> {
    let is_true = |condition: &PodCondition| condition.status == ConditionStatus::True.name();
    let since = |condition: &PodCondition| condition.last_transition_time.as_ref().map(|time| time.0);
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let gate = since(condition(pod, PodConditionType::Unpaused).filter(|gate| is_true(gate))?)?;
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let is_probed = containers.any(|each| each.readiness_probe.is_some());
    let is_older = !is_true(ready) && since(ready)?.as_second() <= gate.as_second();
    let rest = KUBELET_LOOKS.saturating_sub(elapsed(gate, case.world.now));
    (is_older && !is_probed && !rest.is_zero()).then_some(rest)
}

/// `PodScheduled` is mirrored while it is false. It is false, too, of a machine with more vCPUs than QEMU gives one of its type:
/// KubeVirt makes a pod of any size, and its scheduler finds no node.
pub(super) fn scheduling(case: &Case<'_>) -> ConditionChange<'static, VmiConditionType> {
    if let Situation::Obstructed(PodRefusal::Plan(error @ PlanError::TooManyVcpus { .. })) = &case.situation {
        let (kind, reason) = (VmiConditionType::PodScheduled, Reason::Unschedulable);
        return ConditionChange::Set(NewCondition::new(kind, false, reason, error.to_string()));
    }
    let scheduled = case.world.pod.as_ref().and_then(|pod| condition(pod, PodConditionType::PodScheduled));
    match scheduled.filter(|each| each.status == ConditionStatus::False.name()) {
        Some(each) => ConditionChange::Set(mirrored(VmiConditionType::PodScheduled, each, None)),
        None => ConditionChange::Remove(VmiConditionType::PodScheduled),
    }
}
