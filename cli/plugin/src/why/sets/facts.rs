//! What a diagnosis of a set or a pool is made from. A value, as that of a machine.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::set_kind::SetKind;
use crate::why::facts::{Facts, Parts};

/// How many there are to be where the object does not say it.
const REPLICAS: i64 = 1;

/// Everything that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetFacts {
    /// When it was looked.
    pub(crate) now: Timestamp,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its kind.
    pub(crate) kind: SetKind,
    /// Its name.
    pub(crate) name: String,
    /// The object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<Set>,
    /// What it controls, for users who may see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) members: Option<Vec<Member>>,
    /// The first ones that are not ready, each as it is looked at alone.
    #[serde(default)]
    pub(crate) looked_at: Vec<Facts>,
    /// The controllers, for users who may see them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Parts>,
    /// Names that are almost this one, if there is no such object.
    #[serde(default)]
    pub(crate) near: Vec<String>,
    /// What could not be looked at, and why: a message each.
    #[serde(default)]
    pub(crate) unseen: Vec<String>,
}

/// What counts of the object. Its template is not part of it: that may have secrets in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Set {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

/// Of its metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) finalizers: Vec<String>,
}

/// Of its specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<bool>,
}

/// Of its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) conditions: Vec<StoredCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_replicas: Option<i64>,
}

/// A condition of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredCondition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Timestamp>,
}

/// An instance of a set, or a machine of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its name.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) state: MemberState,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MemberState {
    /// Its guest runs, and it is ready.
    Ready,
    /// It is to run, and is not ready.
    NotReady,
    /// A machine that is not to run, and does not.
    Halted,
    /// An instance whose run is over, or of which nobody knows: it does not count, and another one takes its place.
    Over,
    /// It is being deleted.
    Leaving,
}

/// How many members there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Those that count.
    pub(crate) there: usize,
    /// Those of them that are ready.
    pub(crate) ready: usize,
    /// Those of them that are not to run.
    pub(crate) halted: usize,
}

impl Set {
    /// How many there are to be.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.spec.replicas.unwrap_or(REPLICAS)).unwrap_or(0)
    }
}

impl SetFacts {
    /// `KIND/NAME`, as kubectl takes it.
    pub(crate) fn object(&self) -> String {
        format!("{}/{}", self.kind.short(), self.name)
    }

    /// By what was seen of them, or else by the object's status.
    pub(crate) fn counts(&self, set: &Set) -> Counts {
        let Some(members) = &self.members else {
            let number = |count: Option<i64>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
            let Status { replicas, ready_replicas, .. } = set.status;
            return Counts { there: number(replicas), ready: number(ready_replicas), halted: 0 };
        };
        let count = |wanted: MemberState| members.iter().filter(|member| member.state == wanted).count();
        let [ready, waiting, halted] = [MemberState::Ready, MemberState::NotReady, MemberState::Halted].map(count);
        Counts { there: ready + waiting + halted, ready, halted }
    }
}
