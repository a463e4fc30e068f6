//! What an instance and its pod are to each other: found out once in each decision. Everything else follows from it. Pure.

use std::time::Duration;

use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{Identity, Phase, VirtualMachineInstance, default_vmi};
use k8s_openapi::api::core::v1::Pod;

use super::decide::{KILLED_BY_FORCE, LAST_REPORT, Step, World};
use super::history::Place;
use super::{pod_status, rejected, remains, start};
use crate::data_volumes;
use crate::pod::{self, PodInput, PodRefusal};
use crate::time::elapsed;

/// The kinds of it. Whether the object is being deleted is beside it ([`Case::leaves`]).
#[derive(Debug)]
pub(super) enum Situation {
    /// The phase is final, or another program's: it stays, and no pod is made.
    Settled,
    /// There is no pod yet. An earlier leader may have made one whose QEMU may run for so long.
    NoPodYet {
        /// For how long; nothing if none can.
        may_run_for: Option<Duration>,
    },
    /// There is no pod, and one is made by these steps.
    Starting(Vec<Step>),
    /// There is no pod, and none can be made.
    Obstructed(PodRefusal),
    /// Its kubelet rejected the pod, which was removed. Another one follows.
    Retrying {
        /// After so long.
        pause: Option<Duration>,
    },
    /// The pod is gone.
    Vanished {
        /// For how long its QEMU may run on.
        may_run_for: Option<Duration>,
    },
    /// The pod is there, and has what the launcher reported first: the status that follows from it.
    Reported(Box<VirtualMachineInstanceStatus>),
    /// Its kubelet rejected the pod.
    Rejected {
        /// Its message.
        why: String,
    },
    /// The pod is over, and the node agent's last report may be on its way.
    Ending {
        /// For how long it is waited for.
        patience: Duration,
    },
    /// The pod is over, and nothing more is to be expected of it.
    Over {
        /// Its containers ended well.
        is_success: bool,
        /// What PID 1 wrote to its termination log.
        message: Option<String>,
    },
    /// The pod is on its way.
    OnItsWay {
        /// Its supervisor runs, on a node.
        is_scheduled: bool,
    },
    /// The pod is there, and the node agent writes what its guest does.
    AgentsTurn,
}

/// What a decision is about.
pub(super) struct Case<'a> {
    /// What was observed.
    pub world: &'a World,
    /// The phase that the instance is in.
    pub before: Phase,
    /// Its object is being deleted.
    pub leaves: bool,
    /// For how long a QEMU may run whose pod is gone, or was never known.
    pub may_run_for: Option<Duration>,
    /// The node whose agent is to answer whether anything of a pod is left.
    pub asked: Option<Place>,
    /// What instance and pod are to each other.
    pub situation: Situation,
}

impl<'a> Case<'a> {
    /// Finds it out.
    pub(super) fn of(world: &'a World) -> Self {
        let (before, leaves) = (Phase::of(&world.vmi), leaves(world));
        let may_run_for = remains::may_still_run(world);
        let situation = match &world.pod {
            _ if is_settled(before) => Situation::Settled,
            Some(pod) => with_pod(world, pod, before),
            None => without_pod(world, before, may_run_for).unwrap_or_else(|| begin(world)),
        };
        Self { world, before, leaves, may_run_for, asked: remains::asked(world, may_run_for), situation }
    }

    /// The status that is brought up to date: what the launcher reported is in it.
    pub(super) fn status(&self) -> VirtualMachineInstanceStatus {
        if let Situation::Reported(status) = &self.situation {
            return (**status).clone();
        }
        self.world.vmi.status.clone().unwrap_or_default()
    }

    /// Whether a pod is made.
    pub(super) fn makes_pod(&self) -> bool {
        matches!(self.situation, Situation::Starting(_))
    }

    /// Whether what the launcher reported through its pod is new.
    pub(super) fn is_reported(&self) -> bool {
        matches!(self.situation, Situation::Reported(_))
    }
}

fn leaves(world: &World) -> bool {
    world.vmi.metadata.deletion_timestamp.is_some()
}

/// Nothing follows upon a final phase, and one that this release does not know is another program's.
fn is_settled(phase: Phase) -> bool {
    phase.is_final() || phase == Phase::Unknown
}

/// Whether a pod is made now, if it can be. Much cheaper than a whole [`Case`].
pub(super) fn is_due(world: &World) -> bool {
    let before = Phase::of(&world.vmi);
    let is_open = world.pod.is_none() && !is_settled(before);
    is_open && without_pod(world, before, remains::may_still_run(world)).is_none()
}

/// The situation without a pod; nothing if one is due. An instance has one pod in its life, except one that a kubelet rejected.
fn without_pod(world: &World, before: Phase, may_run_for: Option<Duration>) -> Option<Situation> {
    if world.history.rejected {
        let pause = rejected::pause(world, may_run_for);
        return (leaves(world) || pause.is_some()).then_some(Situation::Retrying { pause });
    }
    if before != Phase::Pending || world.history.had_pod() {
        return Some(Situation::Vanished { may_run_for });
    }
    (leaves(world) || may_run_for.is_some()).then_some(Situation::NoPodYet { may_run_for })
}

fn begin(world: &World) -> Situation {
    // The webhooks have filled it in; one that was made while they were switched off is filled in here.
    let mut vmi = world.vmi.clone();
    let firmware_uuid = vmi.metadata.uid.as_deref().and_then(|uid| uid.parse().ok()).unwrap_or_default();
    default_vmi(&mut vmi, &world.config, &Identity { firmware_uuid });
    made_for(&vmi, world).map_or_else(Situation::Obstructed, Situation::Starting)
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

/// How far a pod brings its instance. Running and what follows are written by the node agent.
fn with_pod(world: &World, pod: &Pod, before: Phase) -> Situation {
    if let Some(status) = start::reported(world, pod, before) {
        Situation::Reported(Box::new(status))
    } else if rejected::is_rejected(world, pod) {
        Situation::Rejected { why: rejected::why(pod) }
    } else if pod_status::is_over(pod) {
        after_the_end(world, pod, before)
    } else if before < Phase::Scheduled {
        Situation::OnItsWay { is_scheduled: pod_status::node(pod).is_some() && pod_status::sidecar_runs(pod) }
    } else {
        Situation::AgentsTurn
    }
}

/// The pod is over. The agent's last report has more than the pod; it has a moment to arrive. A pod that was put aside
/// (evicted, or not taken by a kubelet that started again) does not have when its containers ended, and they may be ending yet.
fn after_the_end(world: &World, pod: &Pod, before: Phase) -> Situation {
    let (ended, limit) = match pod_status::ended_at(pod) {
        Some(ended) => (ended, LAST_REPORT),
        None => (world.history.over.unwrap_or(world.now), KILLED_BY_FORCE),
    };
    let patience = limit.saturating_sub(elapsed(ended, world.now));
    if before >= Phase::Scheduled && !patience.is_zero() {
        return Situation::Ending { patience };
    }
    Situation::Over { is_success: pod_status::has_succeeded(pod), message: pod_status::termination_message(pod) }
}
