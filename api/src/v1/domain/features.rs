//! What the machine and the hypervisor offer the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{FeatureHyperv, HyperVPassthrough};

/// `spec.domain.features`: features of the machine and of the hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Features {
    /// ACPI. Default: on, on s390x off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<FeatureState>,
    /// The interrupt controller (APIC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apic: Option<FeatureAPIC>,
    /// Hyper-V's enlightenments, each by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<FeatureHyperv>,
    /// Every Hyper-V enlightenment that the host has. Excludes `hyperv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv_passthrough: Option<HyperVPassthrough>,
    /// How KVM shows itself to the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<FeatureKVM>,
    /// Paravirtual spinlocks. Default: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvspinlock: Option<FeatureState>,
    /// System management mode. Default: on with secure boot, else off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smm: Option<FeatureState>,
}

/// A feature that is on or off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureState {
    /// Whether the feature is on. Default: true, because it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `spec.domain.features.apic`: the interrupt controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureAPIC {
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the guest signals the end of an interrupt without an exit to the hypervisor. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_of_interrupt: Option<bool>,
}

/// `spec.domain.features.kvm`: how KVM shows itself to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureKVM {
    /// Whether the guest cannot see that it runs under KVM. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
}
