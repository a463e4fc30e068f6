//! VirtualMachineInstancePreset: parts of a machine that instances get by their labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::DomainSpec;

/// Parts of a machine that new instances get by their labels. Deprecated in KubeVirt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePreset {
    /// The version of the API the object is written in: `kubevirt.io/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachineInstancePreset`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// What instances get, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineInstancePresetSpec>,
}

/// `spec` of a VirtualMachineInstancePreset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePresetSpec {
    /// What instances get that do not have it themselves: `resources.requests`, `cpu`, `firmware`, `clock`, `features`,
    /// `devices.watchdog` and `ioThreadsPolicy`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainSpec>,
    /// The labels of those instances. An empty selector selects all of the namespace.
    pub selector: meta::LabelSelector,
}
