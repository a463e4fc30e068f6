//! Defaults of disks, networks, inputs, the watchdog and probes.

use super::domain::is_empty;
use super::features::switch_on;
use crate::arch::Arch;
use crate::cluster::{ClusterConfig, DefaultBinding};
use crate::v1::{Disk, DiskTarget, Interface, Network, PodNetwork, Present, Probe, VirtualMachineInstanceSpec};

/// The name of the network and interface that a guest gets which names none.
const DEFAULT_NETWORK: &str = "default";

/// Pulls an image whose tag may move each time, and any other once.
pub(super) fn pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec.volumes.iter_mut().filter_map(|volume| volume.container_disk.as_mut()) {
        if is_empty(disk.image_pull_policy.as_deref()) {
            let moves = disk.image.ends_with(":latest") || !disk.image.contains([':', '@']);
            disk.image_pull_policy = Some(if moves { "Always" } else { "IfNotPresent" }.to_owned());
        }
    }
}

/// Joins a guest that names neither networks nor interfaces to the pod network.
pub(super) fn network(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let interfaces = &mut spec.domain.devices.interfaces;
    let wanted = spec.domain.devices.autoattach_pod_interface != Some(false);
    if !wanted || !spec.networks.is_empty() || !interfaces.is_empty() {
        return;
    }
    let mut interface = Interface { name: DEFAULT_NETWORK.to_owned(), ..Interface::default() };
    match config.default_binding {
        DefaultBinding::Bridge => interface.bridge = Some(Present {}),
        DefaultBinding::Masquerade => interface.masquerade = Some(Present {}),
    }
    interfaces.push(interface);
    spec.networks.push(Network {
        name: DEFAULT_NETWORK.to_owned(),
        pod: Some(PodNetwork::default()),
        ..Network::default()
    });
}

/// Shows the guest a disk for each volume that is neither a disk nor a filesystem yet.
pub(super) fn disk_for_every_volume(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    for volume in &spec.volumes {
        let used = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if !used {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
}

/// Completes the devices that are there.
pub(super) fn fill(spec: &mut VirtualMachineInstanceSpec, arch: Arch) {
    let bus = match arch {
        Arch::Amd64 => "sata",
        Arch::Arm64 | Arch::S390x => "virtio",
    };
    for disk in &mut spec.domain.devices.disks {
        fill_disk(disk, bus);
    }
    for gpu in &mut spec.domain.devices.gpus {
        let display = gpu.virtual_gpu_options.as_mut().and_then(|options| options.display.as_mut());
        if let Some(display) = display {
            switch_on([&mut display.ram_fb]);
        }
    }
    for input in &mut spec.domain.devices.inputs {
        fill_text(&mut input.bus, "usb");
        if input.r#type.is_empty() {
            input.r#type = "tablet".to_owned();
        }
    }
    watchdog(spec, arch);
    for probe in [&mut spec.liveness_probe, &mut spec.readiness_probe].into_iter().flatten() {
        fill_probe(probe);
    }
}

fn fill_disk(disk: &mut Disk, bus: &str) {
    if disk.disk.is_none() && disk.cdrom.is_none() && disk.lun.is_none() {
        disk.disk = Some(DiskTarget::default());
    }
    if let Some(target) = &mut disk.disk {
        fill_text(&mut target.bus, bus);
    }
    if let Some(target) = &mut disk.lun {
        fill_text(&mut target.bus, bus);
    }
    if let Some(target) = &mut disk.cdrom {
        fill_text(&mut target.bus, bus);
        fill_text(&mut target.tray, "closed");
        target.readonly.get_or_insert(true);
    }
    if let Some(size) = &mut disk.block_size {
        switch_on([&mut size.match_volume]);
    }
}

fn watchdog(spec: &mut VirtualMachineInstanceSpec, arch: Arch) {
    let Some(watchdog) = &mut spec.domain.devices.watchdog else { return };
    match arch {
        Arch::S390x => fill_text(&mut watchdog.diag288.get_or_insert_default().action, "reset"),
        Arch::Amd64 | Arch::Arm64 => fill_text(&mut watchdog.i6300esb.get_or_insert_default().action, "reset"),
    }
}

fn fill_probe(probe: &mut Probe) {
    for (field, usual) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if field.unwrap_or(0) < 1 {
            *field = Some(usual);
        }
    }
}

fn fill_text(field: &mut Option<String>, usual: &str) {
    if is_empty(field.as_deref()) {
        *field = Some(usual.to_owned());
    }
}
