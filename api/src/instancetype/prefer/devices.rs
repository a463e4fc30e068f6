//! What a guest prefers of its devices.

use super::{fill, fill_text};
use crate::instancetype::{DevicePreferences, VirtualMachinePreferenceSpec};
use crate::v1::{Devices, Disk, Interface, VirtualMachineInstanceSpec, non_empty};

/// Which devices a machine has without their being written: decided before any of them is added.
pub(crate) fn automatic(preference: &VirtualMachinePreferenceSpec, devices: &mut Devices) {
    let Some(preferred) = &preference.devices else { return };
    fill(&mut devices.autoattach_graphics_device, &preferred.preferred_autoattach_graphics_device);
    fill(&mut devices.autoattach_mem_balloon, &preferred.preferred_autoattach_mem_balloon);
    fill(&mut devices.autoattach_pod_interface, &preferred.preferred_autoattach_pod_interface);
    fill(&mut devices.autoattach_serial_console, &preferred.preferred_autoattach_serial_console);
    fill(&mut devices.autoattach_input_device, &preferred.preferred_autoattach_input_device);
}

/// Fills in what the devices leave out.
pub(super) fn fill_all(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    single(preferred, &mut spec.domain.devices);
    models(preferred, &mut spec.domain.devices);
    for disk in &mut spec.domain.devices.disks {
        fill_disk(preferred, disk);
    }
    let networks = &spec.networks;
    for interface in &mut spec.domain.devices.interfaces {
        let is_on_pod_network =
            networks.iter().find(|network| network.name == interface.name).is_some_and(|network| network.pod.is_some());
        fill_interface(preferred, is_on_pod_network, interface);
    }
}

/// What there is one of.
fn single(preferred: &DevicePreferences, devices: &mut Devices) {
    fill(&mut devices.use_virtio_transitional, &preferred.preferred_use_virtio_transitional);
    fill(&mut devices.block_multi_queue, &preferred.preferred_block_multi_queue);
    fill(&mut devices.network_interface_multiqueue, &preferred.preferred_network_interface_multi_queue);
    // KubeVirt cannot distinguish this field from one that is left out, and takes the preference's.
    if preferred.preferred_disable_hotplug.is_some() {
        devices.disable_hotplug = preferred.preferred_disable_hotplug;
    }
    fill(&mut devices.rng, &preferred.preferred_rng);
    fill(&mut devices.tpm, &preferred.preferred_tpm);
}

/// Kinds and models of what is there.
fn models(preferred: &DevicePreferences, devices: &mut Devices) {
    if let Some(sound) = &mut devices.sound {
        fill_text(&mut sound.model, &preferred.preferred_sound_model);
    }
    for input in &mut devices.inputs {
        fill_text(&mut input.bus, &preferred.preferred_input_bus);
        if let Some(kind) = non_empty(&preferred.preferred_input_type)
            && input.r#type.is_empty()
        {
            kind.clone_into(&mut input.r#type);
        }
    }
    for device in &mut devices.panic_devices {
        fill(&mut device.model, &preferred.preferred_panic_device_model);
    }
    for gpu in &mut devices.gpus {
        fill(&mut gpu.virtual_gpu_options, &preferred.preferred_virtual_gpu_options);
    }
    let has_screen = devices.autoattach_graphics_device != Some(false);
    if has_screen && non_empty(&preferred.preferred_video_type).is_some() {
        let video = devices.video.get_or_insert_default();
        fill_text(&mut video.r#type, &preferred.preferred_video_type);
    }
}

fn fill_disk(preferred: &DevicePreferences, disk: &mut Disk) {
    if let Some(cdrom) = &mut disk.cdrom {
        fill_text(&mut cdrom.bus, &preferred.preferred_cdrom_bus);
        return;
    }
    if let Some(lun) = &mut disk.lun {
        fill_text(&mut lun.bus, &preferred.preferred_lun_bus);
        return;
    }
    let target = disk.disk.get_or_insert_default();
    fill_text(&mut target.bus, &preferred.preferred_disk_bus);
    let is_virtio = target.bus.as_deref() == Some("virtio");
    fill(&mut disk.block_size, &preferred.preferred_disk_block_size);
    fill_text(&mut disk.cache, &preferred.preferred_disk_cache);
    fill_text(&mut disk.io, &preferred.preferred_disk_io);
    if is_virtio {
        fill(&mut disk.dedicated_io_thread, &preferred.preferred_disk_dedicated_io_thread);
    }
}

fn fill_interface(preferred: &DevicePreferences, is_on_pod_network: bool, interface: &mut Interface) {
    fill_text(&mut interface.model, &preferred.preferred_interface_model);
    let bindings =
        [&interface.bridge, &interface.macvtap, &interface.masquerade, &interface.passt, &interface.passt_binding];
    let others = [&interface.slirp, &interface.sriov];
    let is_bound = bindings.into_iter().chain(others).any(Option::is_some) || interface.binding.is_some();
    if is_on_pod_network && !is_bound {
        interface.masquerade = preferred.preferred_interface_masquerade;
    }
}
