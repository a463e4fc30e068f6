//! What is to be done about a VirtualMachineInstance. Pure.
//!
//! ```text
//!   Pending ──pod made──► Scheduling ──its sidecar runs──► Scheduled ──node agent──► Running ──node agent──► Succeeded
//!      └──────────────────────┴───────── pod failed or gone ─┴──────────────────────────┴───────────────────► Failed
//! ```
//!
//! A start that is quick is written once: while a pod of this leader is young, Scheduling and Scheduled are not told, and the
//! first report of the launcher, which the node agent puts on the pod, makes Running of Pending
//! (`garboard_cluster::report::condition`). What takes longer than [`QUICK`] is told step by step.
//!
//! From `Scheduled` on the node agent writes what the guest does; the controller has the last word only when the pod is
//! over and the agent has said nothing. An instance that is deleted keeps its finalizer until its pod is gone, and until the
//! agent of the pod's node has said that nothing of a pod is left that was taken away by force ([`super::remains`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::metadata::finalizer;
use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{ClusterConfig, Identity, Phase, VirtualMachineInstance, default_vmi};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::history::PodHistory;
use super::{rejected, remains, start, status};
use crate::data_volumes::{self, ProgressByName};
use crate::pod::{self, LauncherImage, PodInput, PodRefusal};

/// How long a pod that is over is given for the node agent's last report, before the pod alone is believed.
pub const LAST_REPORT: Duration = Duration::from_secs(5);

/// How long a kubelet may take to end a QEMU whose pod's object was taken away by force, where no agent can be asked.
pub const KILLED_BY_FORCE: Duration = Duration::from_secs(8);

/// How long a claim that is missing is not asked for at first.
pub const CLAIM_MAY_COME: Duration = Duration::from_secs(4);

/// How long a start may take without a word on the way.
pub const QUICK: Duration = Duration::from_secs(5);

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
    /// Since when this leader leads; pods that were made and taken away before are unknown to it.
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
    /// What the status is to say.
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
    },
    /// Remove a pod that its kubelet rejected; another one follows.
    ReplaceRejectedPod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// What the kubelet said.
        why: String,
    },
    /// Let the instance's object go.
    RemoveFinalizer {
        /// Those that stay.
        rest: Vec<String>,
    },
    /// Tell people why there is no pod.
    Complain {
        /// The event's reason.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> Decision {
    let mut decision = Decision {
        steps: Vec::new(),
        status: world.vmi.status.clone().unwrap_or_default(),
        labels: BTreeMap::new(),
        recheck: None,
        is_reported: false,
    };
    if world.vmi.metadata.deletion_timestamp.is_some() {
        leave(world, &mut decision);
    } else if !Phase::of(&world.vmi).is_final() && Phase::of(&world.vmi) != Phase::Unknown {
        match &world.pod {
            None => begin(world, &mut decision),
            Some(pod) => decision.steps.extend(rejected::step(world, pod)),
        }
    }
    status::fill(world, &mut decision);
    if let Some(rest) = start::quiet_for(world, &decision) {
        decision.status = world.vmi.status.clone().unwrap_or_default();
        decision.labels.clear();
        decision.recheck = Some(rest);
    }
    decision
}

/// The pod first, the object after it.
fn leave(world: &World, decision: &mut Decision) {
    if let Some(pod) = &world.pod {
        if let (None, Some(name), Some(uid)) = (&pod.metadata.deletion_timestamp, &pod.metadata.name, &pod.metadata.uid)
        {
            decision.steps.push(Step::DeletePod { name: name.clone(), uid: uid.clone() });
        }
        return;
    }
    if let Some(rest) = remains::may_still_run(world) {
        decision.recheck = Some(rest);
        return;
    }
    let finalizers = world.vmi.metadata.finalizers.clone().unwrap_or_default();
    let is_ours = |name: &String| name == finalizer::FOREGROUND_DELETE || name == finalizer::CONTROLLER;
    if finalizers.iter().any(is_ours) {
        let rest = finalizers.into_iter().filter(|name| !is_ours(name)).collect();
        decision.steps.push(Step::RemoveFinalizer { rest });
    }
}

/// Whether an instance gets a pod.
enum Turn {
    /// Not any more: it had one, or is over.
    Never,
    /// After this time.
    Later(Duration),
    /// Now, if one can be made.
    Now,
}

/// An instance has one pod in its life, except one that a kubelet would not have.
fn turn(world: &World) -> Turn {
    let phase = Phase::of(&world.vmi);
    if world.vmi.metadata.deletion_timestamp.is_some() || phase.is_final() || phase == Phase::Unknown {
        return Turn::Never;
    }
    let had_one = phase != Phase::Pending || world.history.had_pod();
    let gets_another = world.history.rejected && rejected::pause(world).is_none();
    if world.pod.is_some() || (had_one && !gets_another) {
        return Turn::Never;
    }
    // Of one that this leader does not remember.
    remains::may_still_run(world).map_or(Turn::Now, Turn::Later)
}

/// Whether [`decide`] would make a pod, or say why there is none: what it is made of has to be as new as can be. Much cheaper
/// than deciding.
pub(super) fn makes_pod(world: &World) -> bool {
    matches!(turn(world), Turn::Now) && data_volumes::obstacle(&world.data_volumes).is_none()
}

fn begin(world: &World, decision: &mut Decision) {
    match turn(world) {
        Turn::Never => return,
        Turn::Later(rest) => {
            decision.recheck = Some(rest);
            return;
        }
        Turn::Now => {}
    }
    // The webhooks have filled it in; one that was made while somebody had switched them off is filled in here.
    let mut vmi = world.vmi.clone();
    let firmware_uuid = vmi.metadata.uid.as_deref().and_then(|uid| uid.parse().ok()).unwrap_or_default();
    default_vmi(&mut vmi, &world.config, &Identity { firmware_uuid });
    match made_for(&vmi, world) {
        Ok(steps) => decision.steps.extend(steps),
        Err(refusal) => {
            status::refuse(world, &refusal, &mut decision.status);
            let (reason, message) = (refusal.reason(), refusal.to_string());
            if !refusal.is_unfilled() && !status::is_known(&world.vmi, reason, &message) {
                decision.steps.push(Step::Complain { reason, message });
            }
            decision.recheck = Some(CLAIM_MAY_COME);
        }
    }
}

/// The pod, and before it the claim for what the machine keeps beside its disks.
fn made_for(vmi: &VirtualMachineInstance, world: &World) -> Result<Vec<Step>, PodRefusal> {
    if let Some((name, progress)) = data_volumes::obstacle(&world.data_volumes) {
        return Err(PodRefusal::DataVolume { name: name.to_owned(), progress: progress.clone() });
    }
    let claim = pod::state::missing(vmi, &world.claims, &world.config)?;
    let (claims, launcher_image, config) = (&world.claims, &world.launcher_image, &world.config);
    let pod = pod::launcher_pod(&PodInput { vmi, claims, launcher_image, config })?;
    let claim = claim.map(|claim| Step::CreateClaim(Box::new(claim)));
    Ok(claim.into_iter().chain([Step::CreatePod(Box::new(pod))]).collect())
}
