//! Keys and passwords that are brought into the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.accessCredentials[]`: credentials for users of the guest; one of the two kinds is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessCredential {
    /// Public keys for SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<SSHPublicKeyAccessCredential>,
    /// Passwords of users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_password: Option<UserPasswordAccessCredential>,
}

/// Public keys, and how they reach the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SSHPublicKeyAccessCredential {
    /// How they reach the guest.
    pub propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    /// Where the keys are kept.
    pub source: SSHPublicKeyAccessCredentialSource,
}

/// Where public keys are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SSHPublicKeyAccessCredentialSource {
    /// A Secret; each of its values is a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How public keys reach the guest; one of the three is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SSHPublicKeyAccessCredentialPropagationMethod {
    /// In the metadata of the guest's ConfigDrive volume, at its first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<Present>,
    /// In the metadata of the guest's NoCloud volume, at its first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_cloud: Option<Present>,
    /// By the guest agent, whenever the Secret changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
}

/// For whom the guest agent writes public keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QemuGuestAgentSSHPublicKeyAccessCredentialPropagation {
    /// Users of the guest.
    pub users: Vec<String>,
}

/// Passwords, and how they reach the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredential {
    /// How they reach the guest.
    pub propagation_method: UserPasswordAccessCredentialPropagationMethod,
    /// Where the passwords are kept.
    pub source: UserPasswordAccessCredentialSource,
}

/// Where passwords are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredentialSource {
    /// A Secret; its keys are users, its values passwords.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How passwords reach the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserPasswordAccessCredentialPropagationMethod {
    /// By the guest agent, whenever the Secret changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<Present>,
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessCredentialSecretSource {
    /// Its name.
    pub secret_name: String,
}
