//! VirtualMachinePool: machines that are alike but for their numbers. Its group is `pool.kubevirt.io`; its versions `v1beta1` and
//! `v1alpha1` have the same fields.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{Present, VirtualMachineSpec};

/// Machines that are alike but for their numbers, by which they are named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePool {
    /// The version of the API the object is written in: `pool.kubevirt.io/v1beta1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachinePool`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The wanted machines.
    pub spec: VirtualMachinePoolSpec,
    /// How many there are; written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachinePoolStatus>,
}

/// `spec` of a VirtualMachinePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSpec {
    /// When a machine that does not start is deleted and made again. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    /// How many machines may be unavailable while an update restarts them: a number from 1, or `1%` to `100%` of `replicas`, rounded
    /// down, but 1 at least. Default: `100%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Which names in the template get a machine's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_generation: Option<VirtualMachinePoolNameGeneration>,
    /// Whether machines are neither created nor deleted nor changed. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How many machines there are to be, 0 or more. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which machines go where there are too many: one of three ways. Default: `proactive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
    /// Which machines count, of those that the pool has made: those with these labels. The labels of `virtualMachineTemplate` must
    /// match. It never changes.
    pub selector: meta::LabelSelector,
    /// How machines follow a change of the template: one of three ways. Default: `proactive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
    /// The template of the machines.
    pub virtual_machine_template: VirtualMachineTemplateSpec,
}

/// `spec.virtualMachineTemplate`: labels, annotations and specification of the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateSpec {
    /// Labels and annotations that the machines get. Their names are that of the pool and a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<meta::ObjectMeta>,
    /// Specification of the machines. Their numbers are appended to the names of `dataVolumeTemplates`, also where volumes name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineSpec>,
}

/// `spec.autohealing`: when a machine that does not start is deleted, with its volumes, and made again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolAutohealingStrategy {
    /// How long a machine is not ready before it counts as failing, while its `printableStatus` is an error: a duration such as `90s`
    /// or `5m`. Default: `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_failing_to_start_duration: Option<String>,
    /// How many starts in a row have failed, 1 or more. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_up_failure_threshold: Option<u32>,
}

/// `spec.nameGeneration`: which names in the template get a machine's number, as `NAME-NUMBER`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolNameGeneration {
    /// Those of ConfigMaps that are volumes. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_config_map_refs: Option<bool>,
    /// Those of Secrets that are volumes. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_secret_refs: Option<bool>,
}

/// `spec.scaleInStrategy`: one of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolScaleInStrategy {
    /// None is deleted; one that another client deletes is not replaced where there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
    /// Those that are too many are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    /// The same as `opportunistic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Present>,
}

/// `spec.scaleInStrategy.opportunistic`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolOpportunisticScaleInStrategy {
    /// What stays of a machine that another client deletes: `Disabled` (nothing, the default), `Offline` or `Online`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<String>,
}

/// `spec.scaleInStrategy.proactive`: which machines are deleted, and what stays of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolProactiveScaleInStrategy {
    /// Which go first. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    /// What stays of a machine that is deleted: `Disabled` (nothing, the default), `Offline` (its volumes, which the next machine of its
    /// number has) or `Online` (the guest's memory, too).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<String>,
}

/// `selectionPolicy`: which machines are taken, and which of them first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSelectionPolicy {
    /// Only machines that meet all of it are taken. Default: every one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<VirtualMachinePoolSelectors>,
    /// Which first: `AscendingOrder` or `DescendingOrder` (of their numbers), `Newest`, `Oldest` or `Random`. Default: `Random`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_policy: Option<String>,
}

/// `selectionPolicy.selectors`: conditions of a machine's template, all of which have to be met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSelectors {
    /// Of the labels that its instances get (`spec.template.metadata.labels` of the machine).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<meta::LabelSelector>,
    /// Of the node selector of its instances (`spec.template.spec.nodeSelector` of the machine), as if that were labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
}

/// `spec.updateStrategy`: one of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolUpdateStrategy {
    /// Machines are changed; each runs what it was started with until it is started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<Present>,
    /// Machines are changed, and restarted where it makes a difference to their instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    /// No machine is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Present>,
}

/// `spec.updateStrategy.proactive`: which machines are changed and restarted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolProactiveUpdateStrategy {
    /// Which are taken, and which of them are restarted first. Default: all, in any order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
}

/// `status` of a VirtualMachinePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolStatus {
    /// `ReplicaPaused` and `ReplicaFailure`, each only while it holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachinePoolCondition>,
    /// The selector as text, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// How many machines are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many machines there are that are not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// A condition of a VirtualMachinePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolCondition {
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
