//! Devices of the node that are given to the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.devices.gpus[]`: a GPU of the node, from a device plugin or from a resource claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GPU {
    /// Name of the claim in `spec.resourceClaims`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The device plugin's resource, such as `nvidia.com/TU104`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Its name.
    pub name: String,
    /// Name of the request in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// Tag with which cloud-init metadata lists the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Options of a virtual GPU.
    #[serde(rename = "virtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub virtual_gpu_options: Option<VGPUOptions>,
}

/// `spec.domain.devices.gpus[].virtualGPUOptions`: options of a virtual GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VGPUOptions {
    /// Options of its display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<VGPUDisplayOptions>,
}

/// `spec.domain.devices.gpus[].virtualGPUOptions.display`: options of the display.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VGPUDisplayOptions {
    /// Whether the GPU has a display. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether a boot framebuffer (ramfb) shows the screen until the guest's driver is loaded. Default: on.
    #[serde(rename = "ramFB", skip_serializing_if = "Option::is_none")]
    pub ram_fb: Option<FeatureState>,
}

/// `spec.domain.devices.hostDevices[]`: a device of the node, from a device plugin or from a resource claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostDevice {
    /// Name of the claim in `spec.resourceClaims`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The device plugin's resource, such as `vendor.example/device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Its name.
    pub name: String,
    /// Name of the request in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// Tag with which cloud-init metadata lists the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}
