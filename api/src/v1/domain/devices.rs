//! What is attached to the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{Disk, GPU, HostDevice, Interface, Present};

/// `spec.domain.devices`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// Whether there is a graphics card with a VNC server. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// Whether an instance of a VirtualMachine without inputs gets a tablet. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_input_device: Option<bool>,
    /// Whether there is a memory balloon. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    /// Whether a guest without networks is joined to the pod network. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    /// Whether there is a serial console. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// Whether there is a socket between host and guest. Default: false.
    #[serde(rename = "autoattachVSOCK", skip_serializing_if = "Option::is_none")]
    pub autoattach_vsock: Option<bool>,
    /// Whether virtio disks have a queue for each vCPU. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_multi_queue: Option<bool>,
    /// Lets USB devices of a client be plugged into the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_passthrough: Option<Present>,
    /// Whether nothing is prepared for plugging devices in. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_hotplug: Option<bool>,
    /// What the guest sees as disks, at most 256. Each names its volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Metrics of the host, on a virtio-serial port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downward_metrics: Option<Present>,
    /// Volumes the guest mounts by virtiofs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filesystems: Vec<Filesystem>,
    /// GPUs of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GPU>,
    /// Other devices of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_devices: Vec<HostDevice>,
    /// Pointing devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// Network cards, at most 256. Each names its network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Whether what the serial console shows is kept in a log. Default: the cluster's, usually true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// Whether virtio network cards have a queue pair for each vCPU. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface_multiqueue: Option<bool>,
    /// Devices by which a guest reports that its kernel panicked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panic_devices: Vec<PanicDevice>,
    /// A source of random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Present>,
    /// A sound card; its output is discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundDevice>,
    /// A TPM 2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TPMDevice>,
    /// Whether virtio devices support the old protocol too, for old guests. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_virtio_transitional: Option<bool>,
    /// The graphics card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoDevice>,
    /// A watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
}

/// `spec.domain.devices.filesystems[]`: a volume the guest mounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Filesystem {
    /// Name of the volume, and the tag to mount it by.
    pub name: String,
    /// By virtiofs, the only way there is.
    pub virtiofs: Present,
}

/// `spec.domain.devices.inputs[]`: a pointing device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Input {
    /// `usb` (default) or `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Its name.
    pub name: String,
    /// `tablet`, the only one there is.
    pub r#type: String,
}

/// `spec.domain.devices.panicDevices[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PanicDevice {
    /// `hyperv`, `isa` or `pvpanic`. Default: `isa` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `spec.domain.devices.sound`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SoundDevice {
    /// `ich9` (default) or `ac97`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its name.
    pub name: String,
}

/// `spec.domain.devices.tpm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TPMDevice {
    /// Whether there is one. Default, where it is named: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether its state survives the instance. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// `spec.domain.devices.video`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VideoDevice {
    /// On amd64 `vga`, `cirrus`, `virtio`, `ramfb` or `bochs`. Default: `vga` with BIOS, `bochs` with EFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}

/// `spec.domain.devices.watchdog`: one of the two is set, by architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Watchdog {
    /// The watchdog of s390x.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diag288: Option<Diag288Watchdog>,
    /// Intel's 6300ESB, on PCI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i6300esb: Option<I6300ESBWatchdog>,
    /// Its name.
    pub name: String,
}

/// `spec.domain.devices.watchdog.i6300esb`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct I6300ESBWatchdog {
    /// What happens when the guest does not feed it: `reset` (default), `poweroff` or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// `spec.domain.devices.watchdog.diag288`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Diag288Watchdog {
    /// What happens when the guest does not feed it: `reset` (default), `poweroff` or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
