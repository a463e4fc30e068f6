//! The report of an object that this release cannot read: a condition, an event, a line in the log. It is left as it is
//! until it is corrected; all others go on.
//!
//! The condition is applied under a name of its own, so that it is removed without anything else of the status.

use garboard_api::conditions::{
    self, Condition, ConditionStatus, KubeVirtConditionType, NewCondition, PoolConditionType, Reason,
    ReplicaSetConditionType, VmConditionType, VmiConditionType,
};
use garboard_api::v1::{
    KubeVirtCondition, VirtualMachineCondition, VirtualMachineInstanceCondition,
    VirtualMachineInstanceReplicaSetCondition, VirtualMachinePoolCondition,
};
use garboard_cluster::names::UNREADABLE_MANAGER;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::{Context, ReconcileError, while_trying};
use crate::events::NewEvent;
use crate::stores::{Cached, Kind, ObjectKey, Unreadable};

/// The reason of condition and event.
const REASON: Reason = Reason::Unreadable;

/// The condition in which a kind reports that something could not be done, and where its status is written.
pub trait FailureCondition: Kind {
    /// A condition of this kind.
    type Condition: Condition + Serialize + DeserializeOwned;
    /// Its type.
    const CONDITION: <Self::Condition as Condition>::Type;
    /// The status that it has then.
    const STATUS: ConditionStatus;
    /// Whether the status is a resource of its own.
    const HAS_STATUS: bool;
}

impl FailureCondition for crate::stores::Machines {
    type Condition = VirtualMachineCondition;
    const CONDITION: VmConditionType = VmConditionType::Failure;
    const STATUS: ConditionStatus = ConditionStatus::True;
    const HAS_STATUS: bool = true;
}

impl FailureCondition for crate::stores::Instances {
    type Condition = VirtualMachineInstanceCondition;
    const CONDITION: VmiConditionType = VmiConditionType::Synchronized;
    const STATUS: ConditionStatus = ConditionStatus::False;
    const HAS_STATUS: bool = false;
}

impl FailureCondition for crate::stores::ReplicaSets {
    type Condition = VirtualMachineInstanceReplicaSetCondition;
    const CONDITION: ReplicaSetConditionType = ReplicaSetConditionType::ReplicaFailure;
    const STATUS: ConditionStatus = ConditionStatus::True;
    const HAS_STATUS: bool = true;
}

impl FailureCondition for crate::stores::Pools {
    type Condition = VirtualMachinePoolCondition;
    const CONDITION: PoolConditionType = PoolConditionType::ReplicaFailure;
    const STATUS: ConditionStatus = ConditionStatus::True;
    const HAS_STATUS: bool = true;
}

impl FailureCondition for crate::stores::Installations {
    type Condition = KubeVirtCondition;
    const CONDITION: KubeVirtConditionType = KubeVirtConditionType::Degraded;
    const STATUS: ConditionStatus = ConditionStatus::True;
    const HAS_STATUS: bool = true;
}

/// Reports it, if the object does not have it yet.
pub async fn report_failure<K: FailureCondition>(context: &Context, object: &Cached<K>, problem: &Unreadable) {
    let note = format!("{problem}; correct the object, or delete it");
    if is_written(&object.raw(), &note) {
        return;
    }
    let ObjectKey { namespace, name } = object.key();
    let regarding = ObjectReference {
        api_version: Some(K::api_version()),
        kind: Some(K::KIND.to_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid: kube::ResourceExt::uid(object),
        ..ObjectReference::default()
    };
    context.record(&regarding, NewEvent::warning(REASON, note.as_str()));
    let new = NewCondition::new(K::CONDITION, K::STATUS, REASON, note.as_str());
    let condition = conditions::made(&new, &readable::<K::Condition>(&object.raw()), jiff::Timestamp::now());
    if let Err(error) = apply(context, object, json!({ "conditions": [condition] })).await {
        tracing::warn!(%error, "the condition Unreadable could not be written");
    }
}

/// Takes the condition away, once the object can be read.
///
/// # Errors
/// The API server refused.
pub async fn take_back<K: FailureCondition>(context: &Context, object: &Cached<K>) -> Result<(), ReconcileError> {
    apply(context, object, Value::Null).await
}

/// Whether a condition with this reason is from here.
#[must_use]
pub fn is_ours(reason: Option<&String>) -> bool {
    reason.is_some_and(|reason| reason == REASON.name())
}

/// Those of its conditions that can be read.
fn readable<C: DeserializeOwned>(object: &Value) -> Vec<C> {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().filter_map(|each| C::deserialize(each).ok()).collect()
}

fn is_written(object: &Value, note: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|each| each["reason"] == REASON.name() && each["message"] == note)
}

async fn apply<K: FailureCondition>(
    context: &Context,
    object: &Cached<K>,
    status: Value,
) -> Result<(), ReconcileError> {
    let ObjectKey { namespace, name } = object.key();
    let objects: Api<Cached<K>> = Api::namespaced(context.client.clone(), &namespace);
    let mut applied = json!({"apiVersion": K::api_version(), "kind": K::KIND,
        "metadata": {"uid": kube::ResourceExt::uid(object)}});
    if !status.is_null() {
        applied["status"] = status;
    }
    let params = PatchParams::apply(UNREADABLE_MANAGER).force();
    let written = if K::HAS_STATUS {
        objects.patch_status(&name, &params, &Patch::Apply(applied)).await
    } else {
        objects.patch(&name, &params, &Patch::Apply(applied)).await
    };
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(drop).map_err(while_trying("write the condition of the object")),
    }
}
