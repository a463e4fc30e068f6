//! VirtualMachine: what a user keeps, and what is made of it when it starts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cdi::DataVolumeTemplateSpec;
use crate::v1::{VirtualMachineInstanceSpec, VirtualMachineStatus};

/// A virtual machine, running or not. At each start its instance is made from the template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachine {
    /// The version of the API the object is written in: `kubevirt.io/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachine`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The wanted machine.
    pub spec: VirtualMachineSpec,
    /// The state of the machine; written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineStatus>,
}

/// `spec` of a VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSpec {
    /// DataVolumes that are created with the machine and deleted with it. Each is named by a volume of the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_volume_templates: Vec<DataVolumeTemplateSpec>,
    /// The instancetype, which sets CPU and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeMatcher>,
    /// The preference, which sets devices and firmware where the template does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceMatcher>,
    /// When the machine runs: `Always`, `Halted`, `Manual`, `RerunOnFailure`, `Once` or `WaitAsReceiver`. Exactly one
    /// of this and `running` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// The older form of `runStrategy`: true is `Always`, false is `Halted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// The template of the instance.
    pub template: VirtualMachineInstanceTemplateSpec,
    /// What a change of volumes does: `Replacement` (at the next start, the default) or `Migration` (copied while the
    /// guest runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_volumes_strategy: Option<String>,
}

/// `spec.template`: labels, annotations and specification of the instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceTemplateSpec {
    /// Labels and annotations that the instance gets. The name is the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<meta::ObjectMeta>,
    /// Specification of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineInstanceSpec>,
}

/// `spec.instancetype`: the instancetype of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeMatcher {
    /// The volume whose labels name the instancetype, instead of `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// What happens if the volume names none: `Reject` (default) or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    /// `VirtualMachineInstancetype` or `VirtualMachineClusterInstancetype` (default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the instancetype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The ControllerRevision with the instancetype as it was when the machine was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
}

/// `spec.preference`: the preference of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferenceMatcher {
    /// The volume whose labels name the preference, instead of `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// What happens if the volume names none: `Reject` (default) or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    /// `VirtualMachinePreference` or `VirtualMachineClusterPreference` (default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the preference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The ControllerRevision with the preference as it was when the machine was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
}
