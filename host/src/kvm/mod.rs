//! KVM: whether it is there, may be used, and really runs guests.
//!
//! Three questions that answers to ioctls do not distinguish: a KVM inside a virtual machine may open and answer like any
//! other and interpret every instruction of a guest's kernel, a thousand times slower than the processor and many times
//! slower than QEMU's own translator. See [`Execution`].

mod long_mode;
mod measure;
mod refused;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use garboard_machine::facts::KvmState;
use garboard_protocol::causes::ErrorChain;
use kvm_ioctls::{Cap, Kvm};
use serde::{Deserialize, Serialize};

pub use measure::Slowdown;

use crate::boot::BootId;
use crate::cache::ProbeCache;
use crate::devices::{DeviceAccess, DeviceNode, KVM};
use crate::qemu::Freshness;
use crate::root::HostRoot;

/// The only version of the interface there is since 2007.
const API_VERSION: i32 = 12;

/// Abilities QEMU does not start without: from its lists `kvm_required_capabilites` and
/// `kvm_arch_required_capabilities` (7.2).
const REQUIRED: [(Cap, &str); 6] = [
    (Cap::JoinMemoryRegionsWorks, "join-memory-regions-works"),
    (Cap::UserMemory, "user-memory"),
    (Cap::DestroyMemoryRegionWorks, "destroy-memory-region-works"),
    (Cap::SetTssAddr, "set-tss-addr"),
    (Cap::ExtCpuid, "ext-cpuid"),
    (Cap::MpState, "mp-state"),
];

/// Abilities a machine is better with.
const USEFUL: [(Cap, &str); 4] = [
    (Cap::Irqchip, "irqchip"),
    (Cap::SplitIrqchip, "split-irqchip"),
    (Cap::Irqfd, "irqfd"),
    (Cap::ImmediateExit, "immediate-exit"),
];

/// The state of KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvmReport {
    /// `/dev/kvm` itself.
    pub node: DeviceNode,
    /// What it answered; `None` if it does not open.
    pub interface: Option<KvmInterface>,
}

/// What an open `/dev/kvm` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvmInterface {
    /// `KVM_GET_API_VERSION`; 12.
    pub api_version: i32,
    /// The most vCPUs of one machine.
    pub max_vcpus: usize,
    /// Abilities QEMU cannot do without, that are missing.
    pub missing: Vec<&'static str>,
    /// Abilities that make machines faster, that are missing.
    pub lacking: Vec<&'static str>,
    /// CPU features, by QEMU's names, that KVM offers but that QEMU cannot give a guest here: it would abort.
    pub refused_features: Vec<&'static str>,
    /// What running code in a scratch VM gave.
    pub execution: Execution,
}

/// How guest code runs, found by running some in 64-bit supervisor mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Execution {
    /// The processor runs it.
    Native {
        /// Time of a loop in the guest divided by its time outside; about 1.
        slowdown: Slowdown,
    },
    /// It is interpreted.
    Emulated {
        /// The same of a guest's kernel: hundreds to tens of thousands.
        slowdown: Slowdown,
        /// And of a guest's programs, if they run: often 1 even here.
        user_slowdown: Option<Slowdown>,
    },
    /// It does not run.
    Failed {
        /// Why, with all causes.
        reason: String,
    },
}

impl KvmReport {
    /// Looks at `/dev/kvm`, opens it, and runs a scratch VM, or takes the measurement of this boot from `cache`.
    #[must_use]
    pub fn probe(root: &HostRoot, cache: &ProbeCache, boot: &BootId, freshness: Freshness) -> Self {
        let node = DeviceNode::probe(root, KVM);
        if !node.opens() || !root.is_real() {
            return Self { node, interface: None };
        }
        match Kvm::new() {
            Ok(kvm) => Self { node, interface: Some(examine(&kvm, cache, boot, freshness)) },
            Err(error) => {
                let access = DeviceAccess::Refused(error.to_string());
                Self { node: DeviceNode { access, ..node }, interface: None }
            }
        }
    }

    /// The planner's value for it. What this process may open, its machines may: a user's run as that user, root's get
    /// a node of their own, whatever the host's permissions are.
    #[must_use]
    pub fn state(&self) -> KvmState {
        match (&self.node.access, &self.interface) {
            (DeviceAccess::Missing, _) => KvmState::Missing,
            (DeviceAccess::NotPermitted, _) => KvmState::NotPermitted,
            (DeviceAccess::Open | DeviceAccess::Refused(_), None) => KvmState::Broken,
            (_, Some(interface)) if interface.api_version != API_VERSION || !interface.missing.is_empty() => {
                KvmState::Broken
            }
            (_, Some(interface)) => match interface.execution {
                Execution::Native { .. } => KvmState::Native,
                Execution::Emulated { .. } => KvmState::Emulated,
                Execution::Failed { .. } => KvmState::Broken,
            },
        }
    }
}

impl KvmReport {
    /// What the planner needs of it beside [`KvmReport::state`]: the most vCPUs of one machine.
    #[must_use]
    pub fn max_vcpus(&self) -> Option<u32> {
        self.interface.as_ref().and_then(|interface| u32::try_from(interface.max_vcpus).ok())
    }

    /// Takes away what KVM offers and cannot give.
    #[must_use]
    pub fn given(&self, offered: BTreeSet<String>) -> BTreeSet<String> {
        let refused =
            self.interface.as_ref().map(|interface| interface.refused_features.as_slice()).unwrap_or_default();
        offered.into_iter().filter(|feature| !refused.contains(&feature.as_str())).collect()
    }
}

fn examine(kvm: &Kvm, cache: &ProbeCache, boot: &BootId, freshness: Freshness) -> KvmInterface {
    let without = |list: &[(Cap, &'static str)]| {
        list.iter().filter(|(cap, _)| !kvm.check_extension(*cap)).map(|(_, name)| *name).collect()
    };
    KvmInterface {
        api_version: kvm.get_api_version(),
        max_vcpus: kvm.get_max_vcpus(),
        missing: without(&REQUIRED),
        lacking: without(&USEFUL),
        refused_features: refused::refused(kvm),
        execution: execution(kvm, cache, boot, freshness),
    }
}

/// What a measurement is filed under.
fn key(boot: &BootId) -> String {
    // A node of the same number is the same driver; another one may have been loaded since the measurement.
    let device = std::fs::metadata(KVM).map(|metadata| metadata.rdev()).unwrap_or_default();
    let modules =
        ["kvm_intel", "kvm_amd", "kvm_pvm"].map(|name| HostRoot::real().exists(format!("/sys/module/{name}")));
    format!("boot {boot}; device {device:x}; modules {modules:?}")
}

fn execution(kvm: &Kvm, cache: &ProbeCache, boot: &BootId, freshness: Freshness) -> Execution {
    let key = key(boot);
    if freshness == Freshness::Stored
        && let Some(stored) = cache.get("kvm", &key)
    {
        return stored;
    }
    let found = measure_execution(kvm);
    // A failure may have been the moment's (no memory): it is not kept.
    if !matches!(found, Execution::Failed { .. }) {
        cache.put("kvm", &key, &found);
    }
    found
}

fn measure_execution(kvm: &Kvm) -> Execution {
    let measure = |ring| long_mode::measure(kvm, ring, long_mode::Patience::USUAL);
    match measure(long_mode::Ring::Supervisor) {
        Ok(slowdown) if slowdown < Slowdown::EMULATED_FROM => Execution::Native { slowdown },
        Ok(slowdown) => Execution::Emulated { slowdown, user_slowdown: measure(long_mode::Ring::User).ok() },
        Err(error) => Execution::Failed { reason: ErrorChain(&error).to_string() },
    }
}

/// Whether guests may run guests of their own: the parameter `nested` of the module in use. `None` if no module reports it.
#[must_use]
pub fn nested(root: &HostRoot) -> Option<bool> {
    ["kvm_intel", "kvm_amd"].iter().find_map(|module| {
        let value = root.read_trimmed(format!("/sys/module/{module}/parameters/nested"))?;
        Some(matches!(value.as_str(), "1" | "Y" | "y"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    fn report(access: DeviceAccess, execution: Execution) -> KvmReport {
        let interface = KvmInterface {
            api_version: 12,
            max_vcpus: 8,
            missing: Vec::new(),
            lacking: Vec::new(),
            refused_features: Vec::new(),
            execution,
        };
        let interface = (access == DeviceAccess::Open).then_some(interface);
        KvmReport { node: DeviceNode { path: KVM.into(), access, permissions: None }, interface }
    }

    #[test]
    fn every_finding_has_its_state() {
        let native = Execution::Native { slowdown: Slowdown::of_ratio(1.0) };
        let emulated = Execution::Emulated { slowdown: Slowdown::of_ratio(900.0), user_slowdown: None };
        let failed = Execution::Failed { reason: "shutdown".into() };
        let cases = [
            (report(DeviceAccess::Missing, native.clone()), KvmState::Missing),
            (report(DeviceAccess::NotPermitted, native.clone()), KvmState::NotPermitted),
            (report(DeviceAccess::Refused("no such device".into()), native.clone()), KvmState::Broken),
            (report(DeviceAccess::Open, native), KvmState::Native),
            (report(DeviceAccess::Open, emulated), KvmState::Emulated),
            (report(DeviceAccess::Open, failed), KvmState::Broken),
        ];
        for (report, state) in cases {
            assert_eq!(report.state(), state, "{report:?}");
        }
        let mut old = report(DeviceAccess::Open, Execution::Native { slowdown: Slowdown::of_ratio(1.0) });
        old.interface.as_mut().unwrap().api_version = 11;
        assert_eq!(old.state(), KvmState::Broken);
    }

    #[test]
    fn a_node_that_only_root_may_open_serves_the_machines_of_root() {
        use crate::devices::Permissions;
        let mut report = report(DeviceAccess::Open, Execution::Native { slowdown: Slowdown::of_ratio(1.0) });
        for mode in [0o600, 0o660, 0o666] {
            report.node.permissions = Some(Permissions { uid: 0, gid: 0, mode });
            assert_eq!(report.state(), KvmState::Native, "{mode:o}");
        }
    }

    #[test]
    fn a_host_without_the_node_is_reported() {
        let (_directory, root) = host_of(&[]);
        let report = KvmReport::probe(&root, &ProbeCache::none(), &BootId::read(&root), Freshness::Fresh);
        assert_eq!(report.state(), KvmState::Missing);
    }

    #[test]
    fn nesting_is_read_from_the_module_in_use() {
        for (value, answer) in [("Y\n", true), ("1\n", true), ("N\n", false), ("0\n", false)] {
            let (_directory, root) = host_of(&[("/sys/module/kvm_amd/parameters/nested", value)]);
            assert_eq!(nested(&root), Some(answer), "{value:?}");
        }
        let (_directory, root) = host_of(&[]);
        assert_eq!(nested(&root), None);
    }

    #[test]
    fn the_measurement_is_taken_once_per_boot() {
        let root = HostRoot::real();
        let directory = tempfile::tempdir().unwrap();
        let cache = ProbeCache::at(directory.path());
        let boot = BootId::read(&root);
        let probe = |freshness| KvmReport::probe(&root, &cache, &boot, freshness).interface.map(|kvm| kvm.execution);
        // What no measurement gives.
        let planted = Execution::Native { slowdown: Slowdown::of_ratio(1e9) };
        cache.put("kvm", &key(&boot), &planted);
        let Some(first) = probe(Freshness::Stored) else {
            eprintln!("skipped: /dev/kvm is not there or may not be opened");
            return;
        };
        assert_eq!(first, planted, "it was measured again");
        let anew = probe(Freshness::Fresh).unwrap();
        assert_ne!(anew, planted, "it was not measured again");
        // One that failed is the moment's, and is not kept.
        let kept = if matches!(anew, Execution::Failed { .. }) { planted } else { anew };
        assert_eq!(probe(Freshness::Stored), Some(kept));
    }
}
