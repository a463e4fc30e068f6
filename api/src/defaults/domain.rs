//! Defaults of the machine itself: architecture, machine type, CPU, memory, firmware.

use super::{Identity, arch_of};
use crate::arch::Arch;
use crate::cluster::ClusterConfig;
use crate::quantity::Quantity;
use crate::v1::{EFI, VirtualMachineInstanceSpec};

/// The request for CPU time that KubeVirt does not write down, because the pod gets it anyway.
const USUAL_CPU_REQUEST_MILLI: i64 = 100;

pub(super) fn architecture(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if is_empty(spec.architecture.as_deref()) {
        spec.architecture = Some(config.default_architecture.clone());
    }
}

pub(super) fn machine_type(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let arch = arch_of(spec);
    let machine = spec.domain.machine.get_or_insert_default();
    if is_empty(machine.r#type.as_deref()) {
        machine.r#type = Some(config.machine_type(arch).to_owned());
    }
}

/// Requests as much CPU time as the limit is, or as the cluster's settings give.
pub(super) fn cpu_request(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let dedicated = spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
    let resources = spec.domain.resources.get_or_insert_default();
    let limit = resources.limits.get("cpu").filter(|limit| !limit.is_zero()).cloned();
    if let Some(limit) = limit
        && resources.requests.get("cpu").is_none_or(Quantity::is_zero)
    {
        resources.requests.insert("cpu".to_owned(), limit);
    }
    let of_cluster = config.cpu_request.as_ref().filter(|request| request.milli() != USUAL_CPU_REQUEST_MILLI);
    if let Some(request) = of_cluster
        && !dedicated
    {
        resources.requests.entry("cpu".to_owned()).or_insert_with(|| request.clone());
    }
}

/// Gives the guest the memory that the pod asks for, or may take, or one hugepage, if its manifest has no size.
pub(super) fn guest_memory(spec: &mut VirtualMachineInstanceSpec) {
    let memory = spec.domain.memory.get_or_insert_default();
    if memory.guest.is_some() {
        return;
    }
    let resources = spec.domain.resources.clone().unwrap_or_default();
    let given = [&resources.requests, &resources.limits].into_iter().find_map(|list| {
        let size = list.get("memory")?;
        (!size.is_zero()).then(|| size.clone())
    });
    let page = || memory.hugepages.as_ref()?.page_size.as_ref()?.parse().ok();
    memory.guest = given.or_else(page);
}

/// Makes as many sockets as CPUs are asked for, if the topology is not set.
pub(super) fn cpu_topology(spec: &mut VirtualMachineInstanceSpec) {
    let resources = spec.domain.resources.as_ref();
    let given = resources.and_then(|resources| {
        resources.limits.get("cpu").or_else(|| resources.requests.get("cpu")).map(Quantity::value)
    });
    let sockets = given.map_or(1, |count| u32::try_from(count).unwrap_or(if count < 0 { 0 } else { u32::MAX }));
    let cpu = spec.domain.cpu.get_or_insert_default();
    if [cpu.sockets, cpu.cores, cpu.threads].iter().all(|part| part.unwrap_or(0) == 0) {
        cpu.sockets = Some(sockets);
        cpu.cores = Some(1);
        cpu.threads = Some(1);
    }
}

pub(super) fn cpu_model(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig, arch: Arch) {
    let cpu = spec.domain.cpu.get_or_insert_default();
    if !is_empty(cpu.model.as_deref()) {
        return;
    }
    let model = match arch {
        Arch::Arm64 => "host-passthrough",
        Arch::Amd64 | Arch::S390x => config.cpu_model.as_deref().unwrap_or("host-model"),
    };
    cpu.model = Some(model.to_owned());
}

/// Gives the machine a UUID; on Arm also the only firmware there is, without secure boot.
pub(super) fn firmware(spec: &mut VirtualMachineInstanceSpec, identity: &Identity, arch: Arch) {
    let firmware = spec.domain.firmware.get_or_insert_default();
    if is_empty(firmware.uuid.as_deref()) {
        firmware.uuid = Some(identity.firmware_uuid.to_string());
    }
    if arch != Arch::Arm64 {
        return;
    }
    if firmware.bootloader.is_none() {
        firmware.bootloader.get_or_insert_default().efi = Some(EFI::default());
    }
    if let Some(efi) = firmware.bootloader.as_mut().and_then(|bootloader| bootloader.efi.as_mut()) {
        efi.secure_boot.get_or_insert(false);
    }
}

/// KubeVirt takes an empty text for none.
pub(super) fn is_empty(text: Option<&str>) -> bool {
    text.unwrap_or_default().is_empty()
}
