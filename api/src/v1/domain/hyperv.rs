//! Hyper-V's enlightenments: what makes Windows run well on KVM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.features.hyperv`: Hyper-V's enlightenments. One that is written is on, and so are those that it needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureHyperv {
    /// Enlightened VMCS: nested Hyper-V with fewer exits to the host. Needs `vapic` and the CPU feature `vmx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evmcs: Option<FeatureState>,
    /// Registers with the frequencies of TSC and APIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequencies: Option<FeatureState>,
    /// Interrupts between vCPUs by hypercall. Needs `vpindex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipi: Option<FeatureState>,
    /// The guest is notified when the frequency of the TSC changes, after a migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reenlightenment: Option<FeatureState>,
    /// Watchdogs of the guest's kernel tolerate delays of a busy host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relaxed: Option<FeatureState>,
    /// The guest can reset itself through a Hyper-V register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<FeatureState>,
    /// A register with the time that each vCPU has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<FeatureState>,
    /// A vCPU that waits long for a spinlock notifies the hypervisor by hypercall.
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
    /// Virtual APIC page: fewer exits for accesses to the APIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vapic: Option<FeatureState>,
    /// The hypervisor vendor that CPUID shows the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<FeatureVendorID>,
    /// A register with the index of each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpindex: Option<FeatureState>,
}

/// `spec.domain.features.hyperv.spinlocks`: hypercalls of vCPUs that wait for a spinlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureSpinlocks {
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How often a vCPU tries to get the lock before the hypercall. Default: 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinlocks: Option<u32>,
}

/// `spec.domain.features.hyperv.vendorid`: the hypervisor vendor that CPUID shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureVendorID {
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The vendor, at most 12 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<String>,
}

/// `spec.domain.features.hyperv.synictimer`: synthetic timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyNICTimer {
    /// Whether timers raise an interrupt directly, without a message of the SynIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<FeatureState>,
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `spec.domain.features.hyperv.tlbflush`: TLB flushes by hypercall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TLBFlush {
    /// Whether a nested guest can flush without an exit to its own hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<FeatureState>,
    /// Whether it is on. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether single pages can be flushed, not only whole address spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended: Option<FeatureState>,
}

/// `spec.domain.features.hypervPassthrough`: every enlightenment that the host has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HyperVPassthrough {
    /// Whether it is on. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}
