//! Encryption of the guest's memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.domain.launchSecurity`: encryption of the guest's memory; one of the three is set. On s390x an empty one means
/// Secure Execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchSecurity {
    /// AMD SEV and SEV-ES.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sev: Option<SEV>,
    /// AMD SEV-SNP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snp: Option<Present>,
    /// Intel TDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdx: Option<Present>,
}

/// `spec.domain.launchSecurity.sev`: AMD SEV and SEV-ES.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SEV {
    /// Starts the guest paused, so that its owner can attest it and inject a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Present>,
    /// The owner's Diffie-Hellman certificate, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_cert: Option<String>,
    /// What the guest requires of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SEVPolicy>,
    /// The owner's session blob, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// `spec.domain.launchSecurity.sev.policy`: what the guest requires of the platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SEVPolicy {
    /// Whether the registers are encrypted too (SEV-ES). Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_state: Option<bool>,
}
