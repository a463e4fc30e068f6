//! Cloud-init's data, which configures a guest at its first start.

use k8s_openapi::api::core::v1 as core;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec.volumes[].cloudInitNoCloud`: a medium labelled `cidata`. Inline data holds at most 2048 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudInitNoCloudSource {
    /// Network configuration, inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// Network configuration, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_base64: Option<String>,
    /// The Secret with the network configuration (key `networkdata`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<core::LocalObjectReference>,
    /// The Secret with the user data (key `userdata`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<core::LocalObjectReference>,
    /// User data, inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// User data, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_base64: Option<String>,
}

/// `spec.volumes[].cloudInitConfigDrive`: a medium labelled `config-2`. Inline data holds at most 2048 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudInitConfigDriveSource {
    /// Network configuration, inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// Network configuration, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_base64: Option<String>,
    /// The Secret with the network configuration (key `networkdata`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<core::LocalObjectReference>,
    /// The Secret with the user data (key `userdata`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<core::LocalObjectReference>,
    /// User data, inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// User data, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_base64: Option<String>,
}
