//! What executes a guest's instructions, by manifest and settings: KVM unless the installation (`useEmulation`) or
//! the instance itself (annotation [`ACCELERATOR`]) asks for QEMU's translator, TCG. Pure.

use std::collections::BTreeMap;

use crate::cluster::{ClusterConfig, Emulation};
use crate::metadata::annotation::ACCELERATOR;
use crate::v1::VirtualMachineInstance;

/// What an instance asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedAccelerator {
    /// `kvm`: the processor runs the guest's code.
    Kvm,
    /// `tcg`: QEMU translates it.
    Tcg,
}

/// The values of the annotation.
pub const NAMES: [&str; 2] = ["kvm", "tcg"];

impl RequestedAccelerator {
    /// What a value of the annotation asks for; nothing if it is none of [`NAMES`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
        }
    }

    /// What the annotations ask for. Another value asks for nothing; admission refuses it.
    #[must_use]
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        annotations?.get(ACCELERATOR).and_then(|name| Self::from_name(name))
    }
}

/// Whether this instance runs under TCG in this cluster. What it asks for itself goes before the cluster's setting.
#[must_use]
pub fn is_emulated(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> bool {
    match RequestedAccelerator::of(vmi.metadata.annotations.as_ref()) {
        Some(asked) => asked == RequestedAccelerator::Tcg,
        None => config.emulation == Emulation::Permitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(value: Option<&str>) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.annotations = value.map(|value| BTreeMap::from([(ACCELERATOR.to_owned(), value.to_owned())]));
        vmi
    }

    #[test]
    fn kvm_is_the_default_and_the_instance_overrides_the_cluster() {
        let kvm = ClusterConfig::offline();
        let tcg = ClusterConfig { emulation: Emulation::Permitted, ..ClusterConfig::offline() };
        let cases = [
            (None, &kvm, false),
            (None, &tcg, true),
            (Some("tcg"), &kvm, true),
            (Some("kvm"), &tcg, false),
            (Some("xen"), &kvm, false),
            (Some("xen"), &tcg, true),
        ];
        for (value, config, emulated) in cases {
            assert_eq!(is_emulated(&vmi(value), config), emulated, "{value:?} {:?}", config.emulation);
        }
    }
}
