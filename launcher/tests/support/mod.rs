//! The golden VMs: `tests/golden/<case>/vmi.yaml` with an optional `host.yaml`, and what a plan of them must be.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod fields;
pub(crate) mod qmp;
pub(crate) mod stage;
pub(crate) mod sys;

use std::path::PathBuf;

use garboard_api::{ClusterConfig, Identity, VirtualMachineInstance, default_vmi};
use garboard_machine::facts::{HostFacts, KvmState};
use garboard_machine::features::Feature;
use garboard_plan::{LaunchPlan, PlanError, PlanOptions, StoredMachine, plan};
use serde::Deserialize;

/// One golden VM.
pub(crate) struct Case {
    /// Name of its directory.
    pub name: String,
    /// The directory.
    pub dir: PathBuf,
    /// The manifest.
    pub vmi: VirtualMachineInstance,
    /// The host it is planned for.
    pub facts: HostFacts,
    /// Everything else.
    pub options: PlanOptions,
    /// The case whose stored machine it starts from.
    pub stored_from: Option<String>,
}

/// `host.yaml`: how the host differs from the reference, and the rest of the planner's input.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Host {
    kvm: Option<KvmState>,
    tap: Option<bool>,
    vhost_net: Option<bool>,
    passt: Option<bool>,
    with_features: Vec<Feature>,
    with_devices: Vec<String>,
    options: PlanOptions,
    stored_from: Option<String>,
}

/// All cases, by name.
pub(crate) fn cases() -> Vec<Case> {
    let mut names: Vec<_> = std::fs::read_dir(golden_dir())
        .expect("tests/golden exists")
        .map(|entry| entry.expect("readable"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names.iter().map(|name| Case::load(name)).collect()
}

fn golden_dir() -> PathBuf {
    PathBuf::from("../tests/golden")
}

impl Case {
    /// Reads one case.
    pub(crate) fn load(name: &str) -> Self {
        let dir = golden_dir().join(name);
        let read = |file: &str| std::fs::read_to_string(dir.join(file));
        let text = read("vmi.yaml").unwrap_or_else(|error| panic!("{name}/vmi.yaml: {error}"));
        let mut vmi = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}/vmi.yaml: {error}"));
        let firmware_uuid = uuid::Uuid::from_u128(0x5d30_7ca9_b3ef_428c_8861_06e7_2d69_f223);
        default_vmi(&mut vmi, &ClusterConfig::offline(), &Identity { firmware_uuid });
        let host: Host = match read("host.yaml") {
            Ok(text) => serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}/host.yaml: {error}")),
            Err(_) => Host::default(),
        };
        let facts = host.facts();
        Self { name: name.to_owned(), dir, vmi, facts, options: host.options, stored_from: host.stored_from }
    }

    /// Its plan.
    pub(crate) fn plan(&self) -> Result<LaunchPlan, PlanError> {
        let stored = self.stored_from.as_deref().map(stored_machine);
        plan(&self.vmi, &self.facts, &self.options, stored.as_ref())
    }
}

fn stored_machine(case: &str) -> StoredMachine {
    Case::load(case).plan().unwrap_or_else(|error| panic!("{case}: {error}")).stored
}

impl Host {
    /// The reference host, as far as a real QEMU can be started as planned on a machine without KVM.
    fn facts(&self) -> HostFacts {
        let mut facts = HostFacts::reference();
        facts.kvm = self.kvm.unwrap_or(KvmState::Missing);
        facts.network.tap = self.tap.unwrap_or(true);
        facts.network.vhost_net = self.vhost_net.unwrap_or(false);
        if self.passt == Some(false) {
            facts.network.passt = None;
        }
        facts.qemu.features.options.extend(&self.with_features);
        facts.qemu.features.devices.extend(self.with_devices.iter().cloned());
        facts
    }
}
