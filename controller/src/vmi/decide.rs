//! What is to be done about a VirtualMachineInstance. Pure.
//!
//! ```text
//!   Pending ──pod made──► Scheduling ──its sidecar runs──► Scheduled ──node agent──► Running ──node agent──► Succeeded
//!      └──────────────────────┴───────── pod failed or gone ─┴──────────────────────────┴───────────────────► Failed
//! ```
//!
//! A start that is quick is written once: while a pod of this leader is young, Scheduling and Scheduled are not written, and the
//! first report of the launcher, which the node agent puts on the pod, makes Running of Pending
//! (`garboard_cluster::report::condition`). What takes longer than [`crate::time::QUICK`] is written step by step.
//!
//! From `Scheduled` on the node agent writes what the guest does; the controller writes the end only when the pod is
//! over and the agent has reported nothing. An instance that is deleted keeps its finalizer until its pod is gone, and until the
//! agent of the pod's node has reported that nothing is left of a pod that was deleted by force ([`super::remains`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::conditions::Reason;
use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{ClusterConfig, Phase, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::history::PodHistory;
use super::leaving::is_ours;
use super::situation::{Case, Situation, is_due};
use super::status::Parts;
use super::{place, readiness, start, status};
use crate::data_volumes::{self, ProgressByName};
use crate::descheduler::{self, Changes};
use crate::pod::{self, LauncherImage, PodRefusal};

/// How long a pod that is over is given for the node agent's last report, before the pod alone decides.
pub const LAST_REPORT: Duration = Duration::from_secs(5);

/// How long a kubelet may take to end a QEMU whose pod's object was deleted by force, where no agent can be asked.
pub const KILLED_BY_FORCE: Duration = Duration::from_secs(8);

/// How long a claim that is missing is not asked for at first.
pub const CLAIM_MAY_COME: Duration = Duration::from_secs(4);

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The instance.
    pub vmi: VirtualMachineInstance,
    /// Its launcher pod.
    pub pod: Option<Pod>,
    /// What this leader remembers of that pod.
    pub history: PodHistory,
    /// Whether the agent of the node lives that its last pod was on; looked at only while something of that may be left.
    pub agent_lives: bool,
    /// Since when this leader leads; pods that were made and deleted before are unknown to it.
    pub leading_since: Timestamp,
    /// The claims it names, as far as they exist; asked only while there is no pod.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// How far the DataVolumes are that it names; asked only while there is no pod.
    pub data_volumes: ProgressByName,
    /// When it was looked at.
    pub now: Timestamp,
    /// Image of a launcher pod's containers.
    pub launcher_image: LauncherImage,
    /// The cluster's settings.
    pub config: Arc<ClusterConfig>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// What the status is to be.
    pub status: VirtualMachineInstanceStatus,
    /// Labels that the instance is to have beside its own.
    pub labels: BTreeMap<String, String>,
    /// When to look again although nothing happened.
    pub recheck: Option<Duration>,
    /// The status has in it what a launcher reported through its pod.
    pub is_reported: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make the claim for what the machine keeps beside its disks.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Make the launcher pod. Its name follows from the instance's UID: there is never a second one.
    CreatePod(Box<Pod>),
    /// Have the pod's guest powered down and the pod removed.
    DeletePod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// How long it has, seconds, if that is more than its own specification says.
        grace_seconds: Option<i64>,
    },
    /// Remove a pod that its kubelet rejected; another one follows.
    ReplaceRejectedPod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The kubelet's message.
        why: String,
    },
    /// Change the annotations of the pod that a descheduler reads, once the status is written.
    AnnotatePod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// Their new values.
        annotations: Changes,
    },
    /// Let the instance's object go.
    RemoveFinalizer {
        /// Those that stay.
        rest: Vec<String>,
    },
    /// Report why there is no pod, as an event.
    Warn {
        /// The event's reason.
        reason: Reason,
        /// For people.
        message: String,
    },
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> Decision {
    let case = Case::of(world);
    let phase = phase(&case);
    let readiness = readiness::of(&case, phase);
    let placement = place::of(&case, phase);
    let status = status::of(&case, phase, &Parts { readiness: &readiness, placement: &placement });
    let is_reported = case.is_reported();
    match start::quiet_for(&case, phase, &status) {
        Some(rest) => Decision {
            steps: steps(case),
            status: world.vmi.status.clone().unwrap_or_default(),
            labels: BTreeMap::new(),
            recheck: Some(rest),
            is_reported,
        },
        None => Decision {
            // Nothing is delivered of a kubelet that never looks.
            recheck: [recheck(&case), readiness.foreseen_for].into_iter().flatten().min(),
            steps: steps(case),
            status,
            labels: placement.labels,
            is_reported,
        },
    }
}

/// Whether [`decide`] would make a pod, or report why there is none: what it is made of has to be as new as can be. Much cheaper
/// than deciding.
pub(super) fn makes_pod(world: &World) -> bool {
    is_due(world) && data_volumes::obstacle(&world.data_volumes).is_none()
}

/// What is done.
fn steps(case: Case<'_>) -> Vec<Step> {
    if case.leaves {
        return leave(&case).into_iter().collect();
    }
    match case.situation {
        Situation::Starting(steps) => steps,
        Situation::Obstructed(refusal) => warning(case.world, &refusal).into_iter().collect(),
        Situation::Rejected { why } => replacement(case.world, why).into_iter().collect(),
        Situation::Reported(_) | Situation::OnItsWay { .. } | Situation::AgentsTurn => {
            descheduled(case.world).into_iter().collect()
        }
        Situation::Settled
        | Situation::NoPodYet { .. }
        | Situation::Retrying { .. }
        | Situation::Vanished { .. }
        | Situation::Ending { .. }
        | Situation::Over { .. } => Vec::new(),
    }
}

/// The pod first, the object after it.
fn leave(case: &Case<'_>) -> Option<Step> {
    if let Some(pod) = &case.world.pod {
        let (name, uid) = of_living(pod)?;
        let grace_seconds = pod::prolonged_grace_seconds(&case.world.vmi, pod);
        return Some(Step::DeletePod { name, uid, grace_seconds });
    }
    let finalizers = case.world.vmi.metadata.finalizers.clone().unwrap_or_default();
    if case.may_run_for.is_some() || !finalizers.iter().any(|name| is_ours(name)) {
        return None;
    }
    Some(Step::RemoveFinalizer { rest: finalizers.into_iter().filter(|name| !is_ours(name)).collect() })
}

/// Name and UID of a pod that is not being deleted yet.
fn of_living(pod: &Pod) -> Option<(String, String)> {
    let metadata = Some(&pod.metadata).filter(|metadata| metadata.deletion_timestamp.is_none())?;
    Some((metadata.name.clone()?, metadata.uid.clone()?))
}

/// The annotations for a descheduler, where the instance has got others since its pod was made.
fn descheduled(world: &World) -> Option<Step> {
    let pod = world.pod.as_ref()?;
    let (name, uid) = of_living(pod)?;
    let annotations = descheduler::changes(world.vmi.metadata.annotations.as_ref(), pod.metadata.annotations.as_ref());
    (!annotations.is_empty()).then_some(Step::AnnotatePod { name, uid, annotations })
}

/// The removal of a pod that its kubelet rejected, if that was not begun yet.
fn replacement(world: &World, why: String) -> Option<Step> {
    let (name, uid) = of_living(world.pod.as_ref()?)?;
    Some(Step::ReplaceRejectedPod { name, uid, why })
}

/// The event for a pod that cannot be made, unless the instance reports it already.
fn warning(world: &World, refusal: &PodRefusal) -> Option<Step> {
    let (reason, message) = (refusal.reason(), refusal.to_string());
    let is_new = !refusal.is_unfilled() && !status::is_known(&world.vmi, reason.name(), &message);
    is_new.then_some(Step::Warn { reason, message })
}

/// The phase it is in now.
fn phase(case: &Case<'_>) -> Phase {
    match &case.situation {
        Situation::Starting(_) => case.before.max(Phase::Scheduling),
        Situation::Obstructed(refusal) if refusal.is_final() => Phase::Failed,
        Situation::OnItsWay { is_scheduled: true } => Phase::Scheduled,
        Situation::OnItsWay { is_scheduled: false } => Phase::Scheduling,
        Situation::Reported(status) => Phase::of_status(status),
        Situation::Over { is_success: true, .. } => Phase::Succeeded,
        Situation::Over { is_success: false, .. } | Situation::Vanished { may_run_for: None } => Phase::Failed,
        Situation::Settled
        | Situation::NoPodYet { .. }
        | Situation::Obstructed(_)
        | Situation::Retrying { .. }
        | Situation::Vanished { may_run_for: Some(_) }
        | Situation::Rejected { .. }
        | Situation::Ending { .. }
        | Situation::AgentsTurn => case.before,
    }
}

/// When to look again although nothing happened.
fn recheck(case: &Case<'_>) -> Option<Duration> {
    match &case.situation {
        Situation::Settled => case.may_run_for.filter(|_| case.leaves),
        Situation::NoPodYet { may_run_for } | Situation::Vanished { may_run_for } => *may_run_for,
        Situation::Obstructed(_) => Some(CLAIM_MAY_COME),
        Situation::Retrying { pause } => *pause,
        Situation::Ending { patience } => Some(*patience),
        Situation::Starting(_)
        | Situation::Reported(_)
        | Situation::Rejected { .. }
        | Situation::Over { .. }
        | Situation::OnItsWay { .. }
        | Situation::AgentsTurn => None,
    }
}
