//! Hyper-V's enlightenments: what makes Windows run well on KVM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.features.hyperv`. One that is named is on, and so is what it needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureHyperv {
    /// Nested Hyper-V with fewer exits. Needs `vapic` and the CPU feature `vmx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evmcs: Option<FeatureState>,
    /// Frequencies of TSC and APIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequencies: Option<FeatureState>,
    /// Interrupts between processors by hypercall. Needs `vpindex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipi: Option<FeatureState>,
    /// Notification of TSC changes after a migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reenlightenment: Option<FeatureState>,
    /// No watchdog timeouts on a busy host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relaxed: Option<FeatureState>,
    /// Reset by a register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<FeatureState>,
    /// Time each vCPU ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<FeatureState>,
    /// Hypercall after spinning for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinlocks: Option<FeatureSpinlocks>,
    /// Synthetic interrupt controller. Needs `vpindex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synic: Option<FeatureState>,
    /// Synthetic timers. Needs `synic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synictimer: Option<SyNICTimer>,
    /// TLB flushes by hypercall. Needs `vpindex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlbflush: Option<TLBFlush>,
    /// Virtual APIC page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vapic: Option<FeatureState>,
    /// The vendor the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<FeatureVendorID>,
    /// Index of each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpindex: Option<FeatureState>,
}

/// `spec.domain.features.hyperv.spinlocks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureSpinlocks {
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Tries before the hypercall. Default: 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinlocks: Option<u32>,
}

/// `spec.domain.features.hyperv.vendorid`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureVendorID {
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// At most 12 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<String>,
}

/// `spec.domain.features.hyperv.synictimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyNICTimer {
    /// Timer interrupts without messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<FeatureState>,
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `spec.domain.features.hyperv.tlbflush`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TLBFlush {
    /// Flushes of nested guests without leaving the first guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<FeatureState>,
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Flushes of single pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended: Option<FeatureState>,
}

/// `spec.domain.features.hypervPassthrough`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HyperVPassthrough {
    /// Whether it is on. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}
