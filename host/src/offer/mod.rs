//! What a node offers to machines: what its labels are made of.
//!
//! As with a plan nothing is inferred. QEMU reports which models it can give a guest on this processor, under the accelerator
//! that guests get here: KVM where it runs guests, slowly or not, else QEMU's translator.

#[cfg(feature = "probe")]
mod gather;

use std::collections::BTreeSet;

use garboard_machine::facts::KvmFacts;
use garboard_machine::features::Accelerator;
use serde::{Deserialize, Serialize};

/// What a node offers. Written by the launcher's image and read by the agent's, which may be of another release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOffer {
    /// What runs guests here.
    pub accelerator: Accelerator,
    /// The state of KVM here; `None` from an older build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KvmFacts>,
    /// Machine types, aliases among them.
    pub machines: BTreeSet<String>,
    /// CPU models of which a guest gets every feature.
    pub cpu_models: BTreeSet<String>,
    /// CPU features a guest can have, by all names QEMU has for them.
    pub cpu_features: BTreeSet<String>,
    /// `GenuineIntel`, `AuthenticAMD`, …
    pub cpu_vendor: String,
    /// Enlightenments, of those that KVM reports one by one.
    pub hyperv: BTreeSet<String>,
    /// Frequency of the time stamp counter, Hz; `None` without KVM.
    pub tsc_hz: Option<u64>,
    /// Whether guests can have another frequency.
    pub tsc_scalable: bool,
}

impl NodeOffer {
    /// Whether it is what this node would offer without KVM too.
    #[must_use]
    pub fn needs_kvm(&self) -> bool {
        self.accelerator == Accelerator::Kvm
    }
}
