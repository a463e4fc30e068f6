//! What a set has to know of an instance: little, for a set may have a thousand.

use garboard_api::Phase;
use garboard_api::conditions::{ConditionStatus, Reason, VmiConditionType};
use garboard_api::selector::Labels;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use crate::stores::{Cached, Instances, Unreadable};

/// An instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: Option<String>,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub leaves: bool,
    /// What it does.
    pub progress: Progress,
}

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its phase.
    pub phase: Phase,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Whether its pod is being removed, so that it is about to end.
    pub pod_leaves: bool,
    /// Whether its phase is `Unknown` by name: nobody knows whether its guest runs. Other names that this release does not know
    /// ([`Phase::Unknown`], too) say nothing of the kind.
    pub is_lost: bool,
}

/// That of an instance that was made a moment ago.
pub(super) const NEW: Progress = Progress { phase: Phase::Pending, is_ready: false, pod_leaves: false, is_lost: false };

impl Member {
    /// Of what is stored; also of an instance that this release cannot read as a whole.
    pub(super) fn of(stored: &Cached<Instances>) -> Result<Self, Unreadable> {
        let Stored { mut metadata, status } = stored.read_part()?;
        // It is not a part of the text.
        metadata.resource_version = kube::ResourceExt::resource_version(stored);
        Ok(Self::new(metadata, status.progress()))
    }

    /// Of metadata, and what is known beside it.
    pub(super) fn new(metadata: ObjectMeta, progress: Progress) -> Self {
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            owners: metadata.owner_references.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|stamp| stamp.0),
            leaves: metadata.deletion_timestamp.is_some(),
            progress,
        }
    }

    /// The UID of its controller.
    #[must_use]
    pub fn controller(&self) -> Option<&str> {
        self.owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }

    /// Whether it counts: its run is not over, it is not about to end, and it is not lost.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.leaves && !self.is_over()
    }

    /// Whether its run is over, or about to be, or lost: another instance takes its place, as in KubeVirt.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.progress.phase.is_final() || self.progress.pod_leaves || self.progress.is_lost
    }
}

/// The parts that count of an instance as it is stored.
#[derive(Deserialize)]
struct Stored {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
    conditions: Vec<StoredCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredCondition {
    r#type: String,
    status: String,
    reason: Option<String>,
}

impl Status {
    fn progress(&self) -> Progress {
        let ready = self.conditions.iter().find(|each| each.r#type == VmiConditionType::Ready.name());
        let is = |status: ConditionStatus| ready.is_some_and(|ready| ready.status == status.name());
        let reason = ready.and_then(|ready| ready.reason.as_deref());
        Progress {
            phase: Phase::from_name(self.phase.as_deref()),
            is_ready: is(ConditionStatus::True),
            pod_leaves: is(ConditionStatus::False) && reason == Some(Reason::PodTerminating.name()),
            is_lost: self.phase.as_deref() == Some(Phase::Unknown.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored(status: Value) -> Cached<Instances> {
        let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "no"},
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "s", "uid": "set", "controller": true}]);
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"app": "x"},
                "ownerReferences": owners, "creationTimestamp": "1970-01-01T00:00:05Z"},
            "spec": {"domain": {"memory": {"guest": "1e1.5"}}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn an_instance_that_cannot_be_read_as_a_whole_is_a_member_all_the_same() {
        let stored = stored(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(stored.read().is_err());
        let member = Member::of(&stored).unwrap();
        assert_eq!((member.name.as_str(), member.uid.as_str(), member.controller()), ("a", "u", Some("set")));
        assert_eq!((member.resource_version.as_deref(), member.created), (Some("7"), Timestamp::from_second(5).ok()));
        assert!(member.is_active() && member.progress.is_ready && member.owners.len() == 2);
    }

    #[test]
    fn what_is_over_or_about_to_be_does_not_count() {
        let ready = |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
        let table = [
            (json!({}), true),
            (json!({"phase": "Scheduled"}), true),
            (json!({"phase": "WaitingForSync"}), true),
            (json!({"phase": "Unknown"}), false),
            (json!({"phase": "Succeeded"}), false),
            (json!({"phase": "Failed"}), false),
            (json!({"phase": "Running", "conditions": ready("False", "GuestNotRunning")}), true),
            (json!({"phase": "Running", "conditions": ready("False", "PodTerminating")}), false),
        ];
        for (status, counts) in table {
            assert_eq!(Member::of(&stored(status.clone())).unwrap().is_active(), counts, "{status}");
        }
    }
}
