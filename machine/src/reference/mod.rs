//! Hosts that do not exist, for plans made where nothing can be probed: an ordinary server with Debian 12, and a launcher pod.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{
    CgroupVersion, CpuFacts, HostFacts, HugepagePool, KvmState, NetworkFacts, QemuFacts, UefiKind, UefiPair,
};
use crate::features::{Accelerator, Feature, MachineType, QemuFeatures, QemuVersion};

mod debian12;
mod images;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The names of all lines.
fn each_of(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().flat_map(|line| line.split_ascii_whitespace()).map(str::to_owned).collect()
}

impl QemuFeatures {
    /// QEMU 7.2 of Debian 12.
    #[must_use]
    pub fn debian12() -> Self {
        let machine = |&(name, max_vcpus): &(&str, u32)| MachineType {
            name: name.to_owned(),
            alias: (name == "pc-q35-7.2").then(|| "q35".to_owned()),
            max_vcpus,
            deprecated: false,
        };
        Self {
            version: QemuVersion { major: 7, minor: 2, micro: 22, package: "Debian 1:7.2+dfsg-7+deb12u18".to_owned() },
            accelerators: BTreeSet::from([Accelerator::Kvm, Accelerator::Tcg]),
            machines: debian12::Q35_MACHINES.iter().map(machine).collect(),
            devices: set(debian12::DEVICES),
            objects: set(debian12::OBJECTS),
            netdevs: set(debian12::NETDEVS),
            cpu_models: set(debian12::CPU_MODELS),
            options: BTreeSet::from([Feature::NetdevJson, Feature::JsonCliHotplug, Feature::Sandbox]),
        }
    }

    /// QEMU 10.0, which the launcher's image has.
    #[must_use]
    pub fn launcher_image() -> Self {
        let machine = |&(name, max_vcpus, deprecated): &(&str, u32, bool)| MachineType {
            name: name.to_owned(),
            alias: (name == "pc-q35-10.0").then(|| "q35".to_owned()),
            max_vcpus,
            deprecated,
        };
        Self {
            version: QemuVersion { major: 10, minor: 0, micro: 2, package: "Debian 1:10.0.2+ds-2".to_owned() },
            accelerators: BTreeSet::from([Accelerator::Kvm, Accelerator::Tcg]),
            machines: images::Q35_MACHINES.iter().map(machine).collect(),
            devices: each_of(images::DEVICES),
            objects: each_of(images::OBJECTS),
            netdevs: each_of(images::NETDEVS),
            cpu_models: each_of(images::CPU_MODELS),
            options: BTreeSet::from([
                Feature::NetdevJson,
                Feature::JsonCliHotplug,
                Feature::IothreadVqMapping,
                Feature::Sandbox,
            ]),
        }
    }
}

impl HostFacts {
    /// A server with Debian 12, working KVM, OVMF and passt, seen by root.
    #[must_use]
    pub fn reference() -> Self {
        let uefi = |kind, code: &str, vars: &str| UefiPair {
            code: format!("/usr/share/OVMF/{code}"),
            vars_template: format!("/usr/share/OVMF/{vars}"),
            kind,
            code_bytes: 3_653_632,
            vars_bytes: 540_672,
        };
        let tcg = (Accelerator::Tcg, set(debian12::TCG_CPU_FEATURES));
        Self {
            qemu: QemuFacts {
                binary: "/usr/bin/qemu-system-x86_64".to_owned(),
                features: QemuFeatures::debian12(),
                firmware_dirs: Vec::new(),
                module_dir: None,
            },
            kvm: KvmState::Native,
            kvm_max_vcpus: None,
            cpu: CpuFacts {
                vendor: "GenuineIntel".to_owned(),
                model_name: "reference".to_owned(),
                logical_cpus: 8,
                // What KVM offers depends on the processor, so it is left unchecked.
                features: BTreeMap::from([tcg]),
            },
            uefi: vec![
                uefi(UefiKind::Plain, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
                uefi(UefiKind::SecureBoot, "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.fd"),
                uefi(UefiKind::SecureBootEnrolled, "OVMF_CODE_4M.ms.fd", "OVMF_VARS_4M.ms.fd"),
            ],
            network: NetworkFacts { tap: true, vhost_net: true, passt: Some("/usr/bin/passt".to_owned()) },
            cgroup: CgroupVersion::V2,
            hugepages: vec![
                HugepagePool { page_bytes: 2 << 20, total: 4096, free: 4096 },
                HugepagePool { page_bytes: 1 << 30, total: 16, free: 16 },
            ],
            memory_bytes: 32 << 30,
            is_root: true,
        }
    }

    /// A launcher pod on such a server: the same, with the QEMU of its image (and all modules of that QEMU, of which the image
    /// has those that plans use: `deploy/images/check`), and without passt, which the image does not have.
    #[must_use]
    pub fn launcher_image() -> Self {
        let mut facts = Self::reference();
        facts.qemu.features = QemuFeatures::launcher_image();
        facts.network.passt = None;
        facts.cpu.features.insert(Accelerator::Tcg, each_of(images::TCG_CPU_FEATURES));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_means_the_newest_type() {
        let features = QemuFeatures::debian12();
        assert_eq!(features.machine("q35").map(|machine| machine.name.as_str()), Some("pc-q35-7.2"));
        assert_eq!(features.machine("pc-q35-5.2").map(|machine| machine.max_vcpus), Some(288));
        assert!(features.machine("pc-q35-99.0").is_none());
        let newer = QemuFeatures::launcher_image();
        assert_eq!(newer.machine("q35").map(|machine| machine.name.as_str()), Some("pc-q35-10.0"));
        assert!(newer.has_device("igb") && !features.has_device("igb"));
    }

    #[test]
    fn the_reference_survives_serde() {
        let facts = HostFacts::reference();
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&json).unwrap(), facts);
    }
}
