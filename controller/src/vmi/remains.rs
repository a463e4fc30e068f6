//! What may be left of a pod whose object is gone, and how that is known. Pure.
//!
//! `kubectl delete pod --force` deletes the object first; the kubelet kills when it observes that, supervisor and all. Whether
//! that is done is known to the agent of the node: it sees every process there. So it is asked, and its answer waited for, as long as
//! node and agent live (`docs/adr/0021-the-agent-is-asked.md`):
//!
//! ```text
//!  status.activePods   {POD: NODE}   question: is anything of this pod left on NODE? (its object is gone)
//!                      {POD: ""}     answer of the agent of NODE: nothing is, and nothing of it will start
//! ```
//!
//! A running machine's status has the question already. A node that is lost answers nothing: then the pod counts as
//! gone after a while, as the operator who deleted its object requested.

use std::collections::BTreeMap;
use std::time::Duration;

use garboard_api::Phase;
use garboard_api::conditions::{ConditionStatus, NodeConditionType};
use garboard_api::metadata::node_annotation;
use garboard_api::v1::VirtualMachineInstanceStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::decide::{KILLED_BY_FORCE, World};
use super::history::Place;
use crate::time::elapsed;

/// How soon the node is looked at again while its agent has not answered; an answer is observed at once.
pub const ASK_AGAIN: Duration = Duration::from_secs(5);

/// An agent that has been silent for this long does not live.
const SILENT: Duration = Duration::from_secs(node_annotation::SILENT_SECONDS);

/// The taint by which an operator declares that a node is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a node and its agent live, so that an answer is to be expected.
#[must_use]
pub fn lives(node: &Node, now: Timestamp) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|each| each.type_ == NodeConditionType::Ready.name());
    let is_ready = ready.any(|each| each.status == ConditionStatus::True.name());
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_off = taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE);
    let sign = node.metadata.annotations.as_ref().and_then(|all| all.get(node_annotation::HEARTBEAT));
    let sign = sign.and_then(|sign| sign.parse::<Timestamp>().ok());
    is_ready && !is_off && sign.is_some_and(|sign| elapsed(sign, now) < SILENT)
}

/// Where the last pod of an instance was, as far as that is known.
#[must_use]
pub fn last_place(status: Option<&VirtualMachineInstanceStatus>, remembered: Option<&Place>) -> Option<Place> {
    remembered.cloned().or_else(|| {
        let (pod_uid, _) = status?.active_pods.iter().next()?;
        Some(Place { pod_uid: pod_uid.clone(), node: status?.node_name.clone()? })
    })
}

/// Whether the agent has reported that nothing of a pod is left.
pub(super) fn is_nowhere(active_pods: &BTreeMap<String, String>, pod_uid: &str) -> bool {
    active_pods.get(pod_uid).is_some_and(String::is_empty)
}

/// Whether a question is open: then there was a pod, also where no leader of now remembers it.
pub(super) fn is_open(status: Option<&VirtualMachineInstanceStatus>) -> bool {
    status.is_some_and(|status| status.active_pods.values().any(|node| !node.is_empty()))
}

/// For how long a QEMU may run on whose pod's object is gone: until its node's agent has reported that it does not, or, where none
/// answers, as long as a kubelet takes to kill. A pod that was never on a node has no QEMU.
pub(super) fn may_still_run(world: &World) -> Option<Duration> {
    let (phase, status) = (Phase::of(&world.vmi), world.vmi.status.as_ref());
    if world.pod.is_some() || phase.is_final() {
        return None;
    }
    if phase == Phase::Pending && !world.history.had_pod() && !is_open(status) {
        return unknown_to_this_leader(world);
    }
    if phase < Phase::Scheduled && world.history.placed == Some(false) {
        return None;
    }
    match last_place(status, world.history.place.as_ref()) {
        Some(place) if status.is_some_and(|status| is_nowhere(&status.active_pods, &place.pod_uid)) => None,
        Some(_) if world.agent_lives => Some(ASK_AGAIN),
        _ => {
            let missing = world.history.missing.unwrap_or(world.now);
            Some(KILLED_BY_FORCE.saturating_sub(elapsed(missing, world.now))).filter(|left| !left.is_zero())
        }
    }
}

/// An earlier leader may have made a pod that was deleted by force before its node was written: then its QEMU may run, and
/// there is no knowing whom to ask.
fn unknown_to_this_leader(world: &World) -> Option<Duration> {
    let created = world.vmi.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let left = KILLED_BY_FORCE.saturating_sub(elapsed(world.leading_since, world.now));
    Some(left).filter(|left| created.is_some_and(|created| created < world.leading_since) && !left.is_zero())
}

/// The node whose agent is to answer, while a QEMU may still run.
pub(super) fn asked(world: &World, may_run_for: Option<Duration>) -> Option<Place> {
    let place = last_place(world.vmi.status.as_ref(), world.history.place.as_ref())?;
    (world.agent_lives && may_run_for.is_some()).then_some(place)
}

/// The message for an instance without a pod; `asked` is the node whose agent is to answer.
pub(super) fn message(asked: Option<&Place>) -> String {
    match asked {
        Some(Place { node, .. }) => {
            format!(
                "the launcher pod was removed; the agent of node {node} has not confirmed yet that no process of it runs"
            )
        }
        None => "there is no launcher pod".to_owned(),
    }
}
