//! VirtualMachineInstanceReplicaSet: instances that are all alike, as many as are wanted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::VirtualMachineInstanceTemplateSpec;

/// Instances that are all alike. One that ends is replaced; nothing of a guest is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSet {
    /// The version of the API the object is written in: `kubevirt.io/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachineInstanceReplicaSet`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The wanted instances.
    pub spec: VirtualMachineInstanceReplicaSetSpec,
    /// How many there are; written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineInstanceReplicaSetStatus>,
}

/// `spec` of a VirtualMachineInstanceReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetSpec {
    /// Whether instances are neither created nor deleted. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How many instances there are to be, 0 or more. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which instances count: those that have these labels, and no other controller. The template's labels must match.
    pub selector: meta::LabelSelector,
    /// The template of the instances. Their names begin with `metadata.name` or `metadata.generateName` of it, or else with the
    /// name of the set.
    pub template: VirtualMachineInstanceTemplateSpec,
}

/// `status` of a VirtualMachineInstanceReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetStatus {
    /// `ReplicaPaused` and `ReplicaFailure`, each only while it holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineInstanceReplicaSetCondition>,
    /// The selector as text, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// How many instances are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many instances there are that have not ended, and are not to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// A condition of a VirtualMachineInstanceReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetCondition {
    /// Not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<meta::Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<meta::Time>,
    /// The reason in a sentence, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason in one word, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// `ReplicaPaused` or `ReplicaFailure`.
    pub r#type: String,
}
