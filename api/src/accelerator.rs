//! What executes a guest's instructions, as far as manifest and settings say: KVM unless the installation (`useEmulation`) or
//! the instance itself (annotation [`ACCELERATOR`]) asks for QEMU's translator, TCG. Pure.

use std::collections::BTreeMap;

use crate::cluster::{ClusterConfig, Emulation};
use crate::metadata::annotation::ACCELERATOR;
use crate::v1::VirtualMachineInstance;

/// What an instance asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `kvm`: the processor runs the guest's code.
    Kvm,
    /// `tcg`: QEMU translates it.
    Tcg,
}

/// The words of the annotation.
pub const WORDS: [&str; 2] = ["kvm", "tcg"];

impl Asked {
    /// A word of the annotation; nothing if there is no such word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
        }
    }

    /// What the annotations ask for. A word that is none asks for nothing; admission refuses it.
    #[must_use]
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        annotations?.get(ACCELERATOR).and_then(|word| Self::of_word(word))
    }
}

/// Whether this instance runs under TCG in this cluster. What it asks for itself goes before the cluster's setting.
#[must_use]
pub fn is_emulated(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> bool {
    match Asked::of(vmi.metadata.annotations.as_ref()) {
        Some(asked) => asked == Asked::Tcg,
        None => config.emulation == Emulation::Permitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(word: Option<&str>) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.annotations = word.map(|word| BTreeMap::from([(ACCELERATOR.to_owned(), word.to_owned())]));
        vmi
    }

    #[test]
    fn kvm_is_the_default_and_the_instance_has_the_last_word() {
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
        for (word, config, emulated) in cases {
            assert_eq!(is_emulated(&vmi(word), config), emulated, "{word:?} {:?}", config.emulation);
        }
    }
}
