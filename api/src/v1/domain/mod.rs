//! The machine the guest sees: `spec.domain`. The name is KubeVirt's; nothing here has to do with libvirt.

mod clock;
mod cpu;
mod devices;
mod disk;
mod features;
mod firmware;
mod host_device;
mod hyperv;
mod interface;
mod launch_security;
mod memory;

pub use clock::{Clock, ClockOffsetUTC, HPETTimer, HypervTimer, KVMTimer, PITTimer, RTCTimer, Timer};
pub use cpu::{CPU, CPUFeature, NUMA, Realtime};
pub use devices::{
    Devices, Diag288Watchdog, Filesystem, I6300ESBWatchdog, Input, PanicDevice, SoundDevice, TPMDevice, VideoDevice,
    Watchdog,
};
pub use disk::{BlockSize, CDRomTarget, CustomBlockSize, Disk, DiskTarget, LunTarget};
pub use features::{FeatureAPIC, FeatureKVM, FeatureState, Features};
pub use firmware::{ACPI, BIOS, Bootloader, EFI, Firmware, KernelBoot, KernelBootContainer};
pub use host_device::{GPU, HostDevice, VGPUDisplayOptions, VGPUOptions};
pub use hyperv::{FeatureHyperv, FeatureSpinlocks, FeatureVendorID, HyperVPassthrough, SyNICTimer, TLBFlush};
pub use interface::{DHCPOptions, DHCPPrivateOptions, Interface, PluginBinding, Port, PortRange};
pub use launch_security::{LaunchSecurity, SEV, SEVPolicy};
pub use memory::{Hugepages, Memory, ReservedOverhead, ResourceRequirements};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec.domain`: the machine the guest sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DomainSpec {
    /// The chassis, as SMBIOS shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis: Option<Chassis>,
    /// The clock and the timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// The virtual processors. Default: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPU>,
    /// Disks, interfaces and everything else that is attached.
    pub devices: Devices,
    /// Features of the machine and of the hypervisor, such as ACPI and Hyper-V enlightenments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// What boots the guest, and how the machine is identified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// I/O threads that disks share under the policy `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIOThreads>,
    /// I/O threads of disks: `shared`, `auto` or `supplementalPool`. Default: QEMU's main thread serves them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<String>,
    /// Encryption of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    /// The machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The memory of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What a reboot by the guest does: `Reboot` (default) or `Terminate`, which ends the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_policy: Option<String>,
    /// Resources of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// `spec.domain.ioThreads`: I/O threads that disks share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskIOThreads {
    /// Number of threads in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_pool_thread_count: Option<u32>,
}

/// `spec.domain.machine`: the machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// Machine type: `q35` or a versioned `pc-q35-…` on amd64. Default: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}

/// `spec.domain.chassis`: the chassis, as SMBIOS (type 3) shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Chassis {
    /// Asset tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset: Option<String>,
    /// Manufacturer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Stock-keeping unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
