//! What decisions about supervisors of running pods are made of. Pure.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::conditions::Reason;
use garboard_api::v1::{SupervisorStatus, VirtualMachineInstanceCondition};
use jiff::Timestamp;

/// The supervisor of one launcher pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Namespace of pod and instance.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the instance.
    pub instance: String,
    /// UID of the instance.
    pub instance_uid: String,
    /// The node it is on.
    pub node: String,
    /// The image that the sidecar is to have.
    pub image: String,
    /// The image of `compute`, which never changes, and which the node has.
    pub first_image: String,
    /// The image that the controller wrote into both containers of a new pod, which something may have changed before it was stored.
    pub written_image: Option<String>,
    /// Whether its guest has run, and its end was not requested.
    pub guest_runs: bool,
    /// How often the sidecar was started again.
    pub restarts: i32,
    /// How the sidecar is.
    pub state: Sidecar,
}

/// How a sidecar is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// It runs and is ready.
    Runs,
    /// Its kubelet does not start it, for this reason, with a message.
    Waits {
        /// In CamelCase, for programs.
        reason: String,
        /// For people.
        message: String,
    },
    /// In between.
    Else,
}

/// What the instance of a launcher reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceView {
    /// Message of its condition `garboard.dev/OutdatedLauncher`, if it has the condition and the label.
    pub marked: Option<String>,
    /// That condition, with the label or without it.
    pub condition: Option<VirtualMachineInstanceCondition>,
    /// Its supervisor, as the node agent passed it on.
    pub supervisor: Option<SupervisorStatus>,
}

/// Everything that a decision depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The image that supervisors are to have. Launchers that have it under the name that it is stored by, have it by this one here.
    pub wanted: String,
    /// Whether the controller's Deployment names this image, too. Otherwise another controller replaces supervisors, or will.
    pub is_installed: bool,
    /// Whether the KubeVirt object lets supervisors of running pods be replaced.
    pub is_on: bool,
    /// Launchers whose supervisors are outdated, or on their way, by the UID of the pod.
    pub launchers: BTreeMap<String, Launcher>,
    /// What the instances report of those that are on their way, or may be marked or replaced next.
    pub instances: BTreeMap<String, InstanceView>,
    /// Those of them whose instances cannot be read. Instances in neither list were not looked up.
    pub unreadable: BTreeSet<String>,
    /// Nodes with an agent that is ready and of the installed version; nothing is known of them where no supervisor may be replaced.
    pub agents: BTreeSet<String>,
    /// What the KubeVirt object reports.
    pub reported: Option<Reported>,
    /// Now.
    pub now: Timestamp,
}

/// What is remembered from round to round. All of it can be lost: then the next supervisor is replaced alone again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundMemory {
    /// Replaced, and not yet come up, by the UID of the pod.
    pub underway: BTreeMap<String, Underway>,
    /// Pods whose supervisors came up, until their instances no longer report them as outdated.
    pub done: BTreeSet<String>,
    /// Pods whose instances report them as outdated.
    pub marked: BTreeSet<String>,
    /// Pods whose supervisor failed and that still show its image, and the image that they are to have back.
    pub put_back: BTreeMap<String, String>,
    /// When images were last put back.
    pub put_back_at: Option<Timestamp>,
    /// Pods whose instances could not be read: their turn is after all others.
    pub unread: BTreeSet<String>,
    /// What was stored where the wanted image was written, if that was something else.
    pub stored_as: BTreeSet<String>,
    /// Whether a supervisor of this image has come up.
    pub is_proven: bool,
    /// One that failed.
    pub stop: Option<Stop>,
    /// When the KubeVirt object was written.
    pub reported_at: Option<Timestamp>,
}

/// A supervisor that is being replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Underway {
    /// The image before; nothing if an earlier leader has replaced it.
    pub from: Option<String>,
    /// How often the sidecar had been started again; nothing if an earlier leader has replaced it.
    pub restarts: Option<i32>,
    /// What the instance reported of the supervisor before.
    pub supervisor: Option<SupervisorStatus>,
    /// Since when.
    pub since: Timestamp,
    /// Whether the pod was seen with the new image.
    pub is_seen: bool,
    /// How the new one runs.
    pub run: Option<Run>,
    /// When a report of the new one was first seen.
    pub reported_at: Option<Timestamp>,
    /// Whether its kubelet did not start the one before it either.
    pub was_broken: bool,
}

/// A supervisor that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Since when, without a break.
    pub since: Timestamp,
    /// How often the sidecar had been started again by then.
    pub restarts: i32,
}

/// Why no supervisor is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// UID of the pod that failed.
    pub pod_uid: String,
    /// Namespace and name of its instance.
    pub instance: String,
    /// Why.
    pub why: String,
    /// When it is tried again.
    pub again_at: Timestamp,
    /// How many attempts in a row have failed.
    pub failures: u32,
}

/// What the KubeVirt object reports of supervisors while some are outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// How many are.
    pub outdated: usize,
    /// Reason of the condition; nothing where another version wrote one that this version does not have.
    pub reason: Option<Reason>,
    /// Its message.
    pub message: String,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The instance gets label and condition.
    Mark {
        /// UID of the pod.
        pod_uid: String,
        /// Reason of the condition.
        reason: Reason,
        /// Its message.
        message: String,
    },
    /// The instance loses both.
    Unmark {
        /// UID of the pod.
        pod_uid: String,
    },
    /// The sidecar gets an image.
    SetImage {
        /// UID of the pod.
        pod_uid: String,
        /// The image.
        image: String,
    },
    /// An event on the instance.
    Event {
        /// UID of the pod.
        pod_uid: String,
        /// The event's reason.
        reason: Reason,
        /// Its note.
        note: String,
    },
    /// The KubeVirt object reports this, or nothing; with an event, if one has just failed.
    Report {
        /// What.
        reported: Option<Reported>,
        /// Whether it is reported as an event, too.
        is_alarm: bool,
    },
}

impl Step {
    /// Its kind, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mark { .. } => "mark",
            Self::Unmark { .. } => "unmark",
            Self::SetImage { .. } => "setImage",
            Self::Event { .. } => "event",
            Self::Report { .. } => "statusOfKubeVirt",
        }
    }

    /// UID of the pod that it is about, unless it is about all of them.
    #[must_use]
    pub fn pod_uid(&self) -> Option<&str> {
        match self {
            Self::Mark { pod_uid, .. }
            | Self::Unmark { pod_uid }
            | Self::SetImage { pod_uid, .. }
            | Self::Event { pod_uid, .. } => Some(pod_uid),
            Self::Report { .. } => None,
        }
    }

    /// The image that it sets.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::SetImage { image, .. } => Some(image),
            Self::Mark { .. } | Self::Unmark { .. } | Self::Event { .. } | Self::Report { .. } => None,
        }
    }
}
