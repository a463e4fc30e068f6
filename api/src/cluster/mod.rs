//! What the cluster decides: feature gates and the settings that change a default or an answer of admission.
//!
//! Offline there is no cluster: every gate is taken as given and every setting has KubeVirt's default. A KubeVirt object,
//! where one is passed, decides instead. Settings that only a controller reads are not here.

mod gate;
mod kubevirt;
mod verbosity;

use std::collections::{BTreeMap, BTreeSet};

pub use gate::Gate;
pub use kubevirt::{of_installation, permille, seniority};
pub use verbosity::{LoggingPart, verbosity, verbosity_of_instance};

use crate::arch::Arch;
use crate::quantity::Quantity;

/// How changes of a machine reach a guest that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// At once where that is possible.
    LiveUpdate,
    /// At the next start.
    Stage,
}

/// How a guest that names no network is joined to the pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultBinding {
    /// The guest takes over the address of the pod.
    Bridge,
    /// The guest has an address of its own behind the pod's.
    Masquerade,
}

/// KubeVirt's `instancetype.referencePolicy`: what becomes of a machine that names an instancetype or a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferencePolicy {
    /// It keeps the names, and copies of the objects are kept for it.
    Reference,
    /// What they stand for is written into it, unless copies are kept for it already.
    Expand,
    /// What they stand for is written into it.
    ExpandAll,
}

/// KubeVirt's `useEmulation`: what executes the instructions of a guest without its own setting ([`crate::accelerator`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulation {
    /// KVM; a guest does not start on a node without it.
    Refused,
    /// QEMU's translator, TCG, on every node: slow.
    Permitted,
}

/// The settings of a cluster that defaults, rules and plans ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The feature gates that are on.
    pub gates: BTreeSet<Gate>,
    /// The architecture of a guest that names none: `amd64`, `arm64` or `s390x`. Default: `amd64`.
    pub default_architecture: String,
    /// The machine type of a guest that names none, where it is not the usual one ([`ClusterConfig::machine_type`]).
    pub machine_types: BTreeMap<Arch, String>,
    /// The CPU model of a guest that names none. Default: none, which means `host-model`.
    pub cpu_model: Option<String>,
    /// The CPU time that a guest with its own setting of neither asks for. Default: none, which means a tenth of each vCPU.
    pub cpu_request: Option<Quantity>,
    /// How many vCPUs share one CPU of the host in a pod's request. Default: 10.
    pub cpu_allocation_ratio: u32,
    /// The guest's memory as a percentage of what the pod asks for. Default: 100.
    pub memory_overcommit_percent: u32,
    /// By how much the memory is multiplied that a pod asks for beside the guest's, in thousandths. Default: 1000.
    pub overhead_permille: u32,
    /// How a guest that names no network is joined to the pod network. Default: [`DefaultBinding::Bridge`].
    pub default_binding: DefaultBinding,
    /// Whether a guest may be bridged to the pod network. Default: yes.
    pub bridge_on_pod_network: bool,
    /// What a node drain does to a guest without its own setting. Default: `None`.
    pub eviction_strategy: String,
    /// How changes of a machine reach its guest. Default: [`Rollout::LiveUpdate`].
    pub rollout: Rollout,
    /// How many times its first sockets and memory a guest may grow to. Default: 4.
    pub max_hotplug_ratio: u32,
    /// The sockets a guest may grow to, whatever it starts with. Default: none, the ratio decides.
    pub max_cpu_sockets: Option<u32>,
    /// The memory a guest may grow to, whatever it starts with. Default: none, the ratio decides.
    pub max_guest: Option<Quantity>,
    /// The storage class of claims for what firmware keeps. Default: none, which means the cluster's own.
    pub state_storage_class: Option<String>,
    /// Whether machines run on a cluster: DataVolumes may be filled there, and nodes are drained. Default: no.
    pub is_cluster: bool,
    /// What executes guests' instructions. Default: [`Emulation::Refused`], which means KVM.
    pub emulation: Emulation,
    /// What becomes of the names of instancetypes and preferences. Default: [`ReferencePolicy::Reference`].
    pub reference_policy: ReferencePolicy,
}

impl ClusterConfig {
    /// No cluster at all: every gate is on, everything else as KubeVirt has it by default.
    pub fn offline() -> Self {
        Self {
            gates: gate::GATES.iter().map(|(gate, _, _)| *gate).collect(),
            default_architecture: Arch::Amd64.name().to_owned(),
            machine_types: BTreeMap::new(),
            cpu_model: None,
            cpu_request: None,
            cpu_allocation_ratio: 10,
            memory_overcommit_percent: 100,
            overhead_permille: 1000,
            default_binding: DefaultBinding::Bridge,
            bridge_on_pod_network: true,
            eviction_strategy: "None".to_owned(),
            rollout: Rollout::LiveUpdate,
            max_hotplug_ratio: 4,
            max_cpu_sockets: None,
            max_guest: None,
            state_storage_class: None,
            is_cluster: false,
            emulation: Emulation::Refused,
            reference_policy: ReferencePolicy::Reference,
        }
    }

    /// The same cluster with a gate switched off.
    #[must_use]
    pub fn without(mut self, gate: Gate) -> Self {
        self.gates.remove(&gate);
        self
    }

    /// Whether a gate is on.
    pub fn has(&self, gate: Gate) -> bool {
        self.gates.contains(&gate)
    }

    /// The machine type of a guest of this architecture that names none.
    pub fn machine_type(&self, arch: Arch) -> &str {
        self.machine_types.get(&arch).map_or(
            match arch {
                Arch::Amd64 => "q35",
                Arch::Arm64 => "virt",
                Arch::S390x => "s390-ccw-virtio",
            },
            String::as_str,
        )
    }

    /// What a machine type of this architecture may begin with. KubeVirt's `emulatedMachines` is not read yet.
    pub(crate) fn machine_type_prefixes(&self, arch: Arch) -> &'static [&'static str] {
        match arch {
            Arch::Amd64 => &["q35", "pc-q35"],
            Arch::Arm64 => &["virt"],
            Arch::S390x => &["s390-ccw-virtio"],
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self::offline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_every_gate_is_on() {
        let config = ClusterConfig::offline();
        assert!(gate::GATES.iter().all(|(gate, _, _)| config.has(*gate)));
        assert!(!config.without(Gate::Vsock).has(Gate::Vsock));
    }

    #[test]
    fn a_cluster_may_choose_its_machine_type() {
        let mut config = ClusterConfig::offline();
        assert_eq!(config.machine_type(Arch::Amd64), "q35");
        config.machine_types.insert(Arch::Amd64, "pc-q35-7.2".to_owned());
        assert_eq!(config.machine_type(Arch::Amd64), "pc-q35-7.2");
    }
}
