//! What is attached to the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{Disk, GPU, HostDevice, Interface, Present};

/// `spec.domain.devices`: the devices of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// Whether the guest has a graphics card whose screen VNC shows. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// Whether an instance of a VirtualMachine without inputs gets a tablet. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_input_device: Option<bool>,
    /// Whether the guest has a memory balloon. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    /// Whether a guest without networks is joined to the pod network. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    /// Whether the guest has a serial console. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// Whether the guest has a vsock device: sockets between host and guest. Default: false.
    #[serde(rename = "autoattachVSOCK", skip_serializing_if = "Option::is_none")]
    pub autoattach_vsock: Option<bool>,
    /// Whether virtio disks have a queue for each vCPU. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_multi_queue: Option<bool>,
    /// Lets a client redirect its USB devices into the guest while it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_passthrough: Option<Present>,
    /// Whether devices cannot be plugged into the running machine; it then has no free slots for them. Default: false.
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
    /// Whether the output of the serial console is kept in a log. Default: the cluster's setting, usually true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// Whether virtio network cards have a queue pair for each vCPU. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface_multiqueue: Option<bool>,
    /// Devices by which a guest reports that its kernel panicked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panic_devices: Vec<PanicDevice>,
    /// A virtio device that gives the guest random numbers from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Present>,
    /// A sound card; its output is discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundDevice>,
    /// A TPM 2.0 (Trusted Platform Module).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TPMDevice>,
    /// Whether virtio devices support the legacy protocol too, for old guests. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_virtio_transitional: Option<bool>,
    /// The graphics card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoDevice>,
    /// A watchdog timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
}

/// `spec.domain.devices.filesystems[]`: a volume the guest mounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Filesystem {
    /// Name of the volume, and the tag by which the guest mounts it.
    pub name: String,
    /// The volume is shared by virtiofs. Required, because there is no other way.
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
    /// The kind of device. Only `tablet` is possible.
    pub r#type: String,
}

/// `spec.domain.devices.panicDevices[]`: a device by which the guest reports that its kernel panicked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PanicDevice {
    /// `hyperv`, `isa` or `pvpanic`. Default: `isa` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `spec.domain.devices.sound`: a sound card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SoundDevice {
    /// `ich9` (default) or `ac97`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its name.
    pub name: String,
}

/// `spec.domain.devices.tpm`: a TPM 2.0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TPMDevice {
    /// Whether the guest has the TPM. Default: true, because `tpm` is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the state of the TPM outlives the instance. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// `spec.domain.devices.video`: the graphics card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VideoDevice {
    /// On amd64 `vga`, `cirrus`, `virtio`, `ramfb` or `bochs`. Default: `vga` with BIOS, `bochs` with EFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}

/// `spec.domain.devices.watchdog`: a watchdog timer; one of the two models is set, by architecture.
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
    /// What happens when the guest does not reset the timer in time: `reset` (default), `poweroff` or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// `spec.domain.devices.watchdog.diag288`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Diag288Watchdog {
    /// What happens when the guest does not reset the timer in time: `reset` (default), `poweroff` or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
