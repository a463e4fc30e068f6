//! Devices of the node that are given to the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.devices.gpus[]`: named by a device plugin, or by a resource claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GPU {
    /// The claim of `spec.resourceClaims`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The resource of a device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Its name.
    pub name: String,
    /// The request in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// What the guest's metadata calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Options of a virtual GPU.
    #[serde(rename = "virtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub virtual_gpu_options: Option<VGPUOptions>,
}

/// `spec.domain.devices.gpus[].virtualGPUOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VGPUOptions {
    /// Whether the guest's screen is the GPU's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<VGPUDisplayOptions>,
}

/// `spec.domain.devices.gpus[].virtualGPUOptions.display`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VGPUDisplayOptions {
    /// Whether the GPU has a display. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether there is a picture before the driver is loaded. Default: on.
    #[serde(rename = "ramFB", skip_serializing_if = "Option::is_none")]
    pub ram_fb: Option<FeatureState>,
}

/// `spec.domain.devices.hostDevices[]`: named by a device plugin, or by a resource claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostDevice {
    /// The claim of `spec.resourceClaims`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The resource of a device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Its name.
    pub name: String,
    /// The request in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// What the guest's metadata calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}
