//! How far a guest may grow while it runs: decided at its start, because the guest's firmware lays out memory and
//! processors for it.

use crate::arch::Arch;
use crate::cluster::{ClusterConfig, Rollout};
use crate::quantity::Quantity;
use crate::v1::VirtualMachineInstanceSpec;

/// The most vCPUs that the ratio alone gives a guest room for. Machine types allow less or more.
const VCPUS_MAX: u64 = 512;
/// Memory is plugged in blocks of this many bytes: a transparent hugepage.
const BLOCK: u64 = 2 << 20;
/// The same for a guest made of 1 GiB pages.
const GIB_PAGE_BLOCK: u64 = 1 << 30;
/// KubeVirt gives a guest that starts with less than this many bytes no room to grow.
const GUEST_MIN: u64 = 1 << 30;

/// Gives the guest room to grow, where its cluster applies changes to running guests.
pub(super) fn room_to_grow(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig, arch: Arch) {
    if config.rollout == Rollout::Stage || arch == Arch::Arm64 {
        return;
    }
    max_sockets(spec, config);
    if arch == Arch::Amd64 {
        max_guest(spec, config);
    }
}

fn max_sockets(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let Some(cpu) = &mut spec.domain.cpu else { return };
    if cpu.max_sockets.unwrap_or(0) != 0 {
        return;
    }
    let sockets = cpu.sockets.unwrap_or(0);
    if let Some(limit) = config.max_cpu_sockets {
        cpu.max_sockets = Some(limit.max(sockets));
        return;
    }
    // A part of the topology that is not set counts as nothing here, as it does for KubeVirt.
    let per_socket = u64::from(cpu.cores.unwrap_or(0)) * u64::from(cpu.threads.unwrap_or(0));
    let wanted = u64::from(sockets) * u64::from(config.max_hotplug_ratio);
    let room = match VCPUS_MAX.checked_div(per_socket) {
        Some(fitting) if wanted > fitting => fitting.max(u64::from(sockets)),
        _ => wanted,
    };
    cpu.max_sockets = u32::try_from(room).ok().filter(|room| *room != 0);
}

fn max_guest(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let domain = &spec.domain;
    let Some(memory) = &domain.memory else { return };
    let Some(guest) = memory.guest.as_ref().and_then(Quantity::to_bytes) else { return };
    let fixed = domain.cpu.as_ref().is_some_and(|cpu| {
        cpu.realtime.is_some() || cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
    });
    if memory.max_guest.is_some() || fixed || domain.launch_security.is_some() || guest < GUEST_MIN {
        return;
    }
    let page = memory.hugepages.as_ref().and_then(|hugepages| hugepages.page_size.as_deref());
    let block = if page == Some("1Gi") { GIB_PAGE_BLOCK } else { BLOCK };
    let room = match &config.max_guest {
        Some(limit) => limit.clone(),
        None => match guest.checked_mul(u64::from(config.max_hotplug_ratio)) {
            Some(bytes) => Quantity::from_bytes(bytes),
            None => return,
        },
    };
    let fits = room.to_bytes().is_some_and(|bytes| bytes >= guest && bytes.is_multiple_of(block));
    if fits && guest.is_multiple_of(block) {
        spec.domain.memory.get_or_insert_default().max_guest = Some(room);
    }
}
