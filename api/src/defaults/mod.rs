//! What a manifest leaves out: the values KubeVirt 1.9 writes when it admits an object (`pkg/defaults`, and the defaults of
//! `kubevirt.io/api/core/v1`), in its order, because later ones build on earlier ones.
//!
//! Pure: an identity that must be new (the firmware UUID) is passed in, and timestamps are the caller's. Defaulting twice
//! changes nothing. Nothing here refuses anything; what makes no sense is left for the rules to find.

mod devices;
mod domain;
mod features;
mod hotplug;
mod instance;

use uuid::Uuid;

use crate::arch::Arch;
use crate::cluster::ClusterConfig;
use crate::metadata::{annotation, finalizer};
use crate::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec};

pub use instance::vmi_of;

/// The user and group that supervisor, PID 1 and QEMU run as in a launcher pod, and that `status.runtimeUser` names; KubeVirt's too.
pub const RUNTIME_USER: u32 = 107;
/// How long a guest may take to power down where its manifest sets nothing, seconds; Kubernetes' default for pods.
pub const GRACE_PERIOD_SECONDS: u32 = 30;
/// The layout of PCI devices that new guests get.
const PCI_TOPOLOGY_VERSION: &str = "v3";

/// What identifies one instance: values that must be new, so a pure function cannot make them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the guest sees as the UUID of its machine, unless the manifest sets one.
    pub firmware_uuid: Uuid,
}

/// Fills in what a new VirtualMachine leaves out. Almost everything waits until an instance is made of its template.
pub fn default_vm(vm: &mut VirtualMachine, config: &ClusterConfig) {
    let metadata = vm.spec.template.metadata.get_or_insert_default();
    let spec = vm.spec.template.spec.get_or_insert_default();
    domain::architecture(spec, config);
    domain::machine_type(spec, config);
    spec.domain.resources.get_or_insert_default();
    if has_pcie(spec) {
        annotate_topology(metadata);
    }
}

/// Fills in what a new VirtualMachineInstance leaves out, and the status it begins with.
///
/// The time at which its phase began is not written: the caller has the clock.
pub fn default_vmi(vmi: &mut VirtualMachineInstance, config: &ClusterConfig, identity: &Identity) {
    default_spec(&mut vmi.spec, config, identity);
    begin_status(vmi);
    if has_pcie(&vmi.spec) {
        annotate_topology(&mut vmi.metadata);
    }
    let finalizers = vmi.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|known| known == finalizer::FOREGROUND_DELETE) {
        finalizers.push(finalizer::FOREGROUND_DELETE.to_owned());
    }
}

/// Adds the devices that a machine has without their being written: a disk for each volume, an input, the pod network.
pub(crate) fn attach(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    devices::disk_for_every_volume(spec);
    instance::automatic_input(spec);
    devices::network(spec, config);
}

/// Fills in what KubeVirt writes into the template of an expanded machine (`SetDefaultVirtualMachineInstanceSpec`). The rest is its
/// instance's: an identity, the CPU's model, room to grow.
pub(crate) fn fill_in(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    domain::architecture(spec, config);
    domain::machine_type(spec, config);
    domain::cpu_request(spec, config);
    domain::guest_memory(spec);
    domain::cpu_topology(spec);
    devices::pull_policies(spec);
    spec.eviction_strategy.get_or_insert_with(|| config.eviction_strategy.clone());
    devices::network(spec, config);
    devices::disk_for_every_volume(spec);
}

fn default_spec(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig, identity: &Identity) {
    fill_in(spec, config);
    let arch = arch_of(spec);
    features::states(&mut spec.domain, arch);
    domain::firmware(spec, identity, arch);
    features::timers(&mut spec.domain);
    devices::fill(spec, arch);
    features::hyperv_requirements(&mut spec.domain);
    domain::cpu_model(spec, config, arch);
    hotplug::room_to_grow(spec, config, arch);
}

/// The architecture to fill in for. KubeVirt takes an unknown one for amd64 here, and refuses it later.
fn arch_of(spec: &VirtualMachineInstanceSpec) -> Arch {
    spec.architecture.as_deref().and_then(Arch::named).unwrap_or(Arch::Amd64)
}

/// Whether the guest's devices hang on PCIe root ports.
fn has_pcie(spec: &VirtualMachineInstanceSpec) -> bool {
    let machine = spec.domain.machine.as_ref().and_then(|machine| machine.r#type.as_deref()).unwrap_or_default();
    let architecture = spec.architecture.as_deref().unwrap_or_default();
    matches!(architecture, "" | "amd64" | "arm64") && (machine.contains("q35") || machine.starts_with("virt"))
}

fn annotate_topology(metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) {
    metadata
        .annotations
        .get_or_insert_default()
        .entry(annotation::PCI_TOPOLOGY_VERSION.to_owned())
        .or_insert_with(|| PCI_TOPOLOGY_VERSION.to_owned());
}

fn begin_status(vmi: &mut VirtualMachineInstance) {
    let status = vmi.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Pending".to_owned());
    status.runtime_user.get_or_insert(u64::from(RUNTIME_USER));
    if let Some(guest) = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()) {
        status.memory.get_or_insert_with(|| crate::v1::MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest.clone()),
            memory_overhead: None,
        });
    }
    if let Some(cpu) = &vmi.spec.domain.cpu {
        status.current_cpu_topology.get_or_insert(crate::v1::CPUTopology {
            cores: cpu.cores,
            sockets: cpu.sockets,
            threads: cpu.threads,
        });
    }
}

#[cfg(test)]
mod tests;
