//! What a guest prefers of its devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{BlockSize, Present, TPMDevice, VGPUOptions};

/// `spec.devices` of a preference: each is for what the template leaves out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePreferences {
    /// Whether the guest has a graphics card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_graphics_device: Option<bool>,
    /// Whether a machine without inputs gets a tablet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_input_device: Option<bool>,
    /// Whether the guest has a memory balloon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_mem_balloon: Option<bool>,
    /// Whether a guest without networks is joined to the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_pod_interface: Option<bool>,
    /// Whether the guest has a serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_serial_console: Option<bool>,
    /// Whether virtio disks have a queue for each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_block_multi_queue: Option<bool>,
    /// The bus of CD-ROM drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_cdrom_bus: Option<String>,
    /// Whether devices cannot be plugged into the running machine. As in KubeVirt it takes the place of the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disable_hotplug: Option<bool>,
    /// The block size of disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_block_size: Option<BlockSize>,
    /// The bus of disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_bus: Option<String>,
    /// How disks are cached by the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_cache: Option<String>,
    /// Whether a virtio disk has an I/O thread of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_dedicated_io_thread: Option<bool>,
    /// How QEMU reads and writes disks: `native`, `threads` or `io_uring`.
    #[serde(rename = "preferredDiskIO", skip_serializing_if = "Option::is_none")]
    pub preferred_disk_io: Option<String>,
    /// The bus of input devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_bus: Option<String>,
    /// The kind of input devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_type: Option<String>,
    /// The binding `masquerade` for interfaces on the pod network without a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_masquerade: Option<Present>,
    /// The model of network cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_model: Option<String>,
    /// The bus of LUNs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_lun_bus: Option<String>,
    /// Whether virtio network cards have a queue pair for each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_network_interface_multi_queue: Option<bool>,
    /// The model of panic devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_panic_device_model: Option<String>,
    /// A device for random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_rng: Option<Present>,
    /// The model of a sound card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_sound_model: Option<String>,
    /// A TPM.
    #[serde(rename = "preferredTPM", skip_serializing_if = "Option::is_none")]
    pub preferred_tpm: Option<TPMDevice>,
    /// Whether virtio devices support the legacy protocol too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_virtio_transitional: Option<bool>,
    /// The graphics card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_video_type: Option<String>,
    /// Options of virtual GPUs.
    #[serde(rename = "preferredVirtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub preferred_virtual_gpu_options: Option<VGPUOptions>,
}
