//! Status of a VirtualMachineInstance.

mod backup;
mod migration;
mod migration_options;
mod volume;

pub use backup::{
    ChangedBlockTrackingStatus, VirtualMachineInstanceBackupStatus, VirtualMachineInstanceBackupVolumeInfo,
};
pub use migration::{
    VirtualMachineInstanceMigrationSourceState, VirtualMachineInstanceMigrationState,
    VirtualMachineInstanceMigrationTargetState,
};
pub use migration_options::{
    DowntimeTuningOptions, ExperimentalMigrationOptions, StallDetectorOptions, VMIMConfigurationOptions,
};
pub use volume::{
    ContainerDiskInfo, DomainMemoryDumpInfo, HotplugVolumeStatus, PersistentVolumeClaimInfo, StorageMigratedVolumeInfo,
    VolumeStatus,
};

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::v1::Machine;

/// `status` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceStatus {
    /// Context ID (CID) of the vsock device, from 3.
    #[serde(rename = "VSOCKCID", skip_serializing_if = "Option::is_none")]
    pub vsock_cid: Option<u32>,
    /// Nodes of the launcher pods of this instance, by UID of the pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub active_pods: BTreeMap<String, String>,
    /// Whether disks record which blocks change, for incremental backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    /// `Ready`, `LiveMigratable`, `AgentConnected`, `Paused` and others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineInstanceCondition>,
    /// The virtual processors the guest has now.
    #[serde(rename = "currentCPUTopology", skip_serializing_if = "Option::is_none")]
    pub current_cpu_topology: Option<CPUTopology>,
    /// The node that the guest has to leave, because it is drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation_node_name: Option<String>,
    /// `frozen` while the guest's filesystems are frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_freeze_status: Option<String>,
    /// What the guest agent reports about the guest.
    #[serde(rename = "guestOSInfo", skip_serializing_if = "Option::is_none")]
    pub guest_os_info: Option<VirtualMachineInstanceGuestOSInfo>,
    /// Network cards of the guest, with their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    /// Kernel and initrd the guest was booted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_boot_status: Option<KernelBootStatus>,
    /// The image of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_container_image_version: Option<String>,
    /// The machine type in use, versioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Memory the guest has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Volumes that are being copied to other claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    /// `LiveMigration`, or `BlockMigration` if disks are copied too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_method: Option<String>,
    /// The last migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// The transport of a migration: `Unix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_transport: Option<String>,
    /// The node it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded`, `Failed`, `WaitingForSync` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When each phase was entered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp>,
    /// Quality of service class of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BestEffort", "Burstable", "Guaranteed"]))]
    pub qos_class: Option<String>,
    /// Why the instance failed, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user ID of QEMU: 107.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_user: Option<u64>,
    /// SELinux context of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// What was decided at the first start and is kept for later ones: machine type, addresses of devices, MAC
    /// addresses, serial numbers. Not a field of KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_object")]
    pub stored_machine: Option<serde_json::Value>,
    /// The supervisor in the launcher pod, as it reports itself. Not a field of KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<SupervisorStatus>,
    /// What a node must offer for the guest to be migrated to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_hints: Option<TopologyHints>,
    /// The ControllerRevision with the version of the VirtualMachine that the instance was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_revision_name: Option<String>,
    /// State of each volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_status: Vec<VolumeStatus>,
}

/// `status.supervisor`: the supervisor in the launcher pod. Not a field of KubeVirt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SupervisorStatus {
    /// When it was started. Another time means that it was replaced or restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<meta::Time>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Any object: its content belongs to another program.
pub(super) fn free_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// `status.conditions[]` of a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceCondition {
    /// When the condition was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<meta::Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<meta::Time>,
    /// The reason in a sentence, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason in one word, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The type of the condition.
    pub r#type: String,
}

/// `status.phaseTransitionTimestamps[]`: when a phase was entered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePhaseTransitionTimestamp {
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When it was first entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<meta::Time>,
}

/// `status.guestOSInfo`: the operating system, as the guest agent reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestOSInfo {
    /// Identifier of the system (`debian`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Release of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// Version of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// Architecture (`x86_64`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Name of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name and version of the system, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
    /// Version of the system, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version of the system (`12`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
}

/// `status.interfaces[]`: a network card of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceNetworkInterface {
    /// Sources of this entry, separated by `, `: `domain`, `guest-agent`, `multus-status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info_source: Option<String>,
    /// Name of the card in the guest (`enp1s0`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// The first IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// All IP addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// State of the link: `up` or `down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
    /// MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Name in the specification; absent for cards that only the guest has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the interface in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interface_name: Option<String>,
    /// Number of queue pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<i32>,
}

/// `status.currentCPUTopology`: the virtual processors the guest has now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPUTopology {
    /// Cores of each socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Threads of each core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// `status.memory`: memory of the guest, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryStatus {
    /// Memory at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_at_boot: Option<Quantity>,
    /// Memory now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_current: Option<Quantity>,
    /// Memory that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_requested: Option<Quantity>,
    /// Memory of the pod besides the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<Quantity>,
}

/// `status.topologyHints`: what a node must offer for the guest to be migrated to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyHints {
    /// Frequency of the time stamp counter (TSC), in Hz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsc_frequency: Option<i64>,
}

/// `status.kernelBootStatus`: kernel and initrd the guest was booted with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBootStatus {
    /// The initrd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd_info: Option<InitrdInfo>,
    /// The kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_info: Option<KernelInfo>,
}

/// `status.kernelBootStatus.kernelInfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelInfo {
    /// CRC-32 of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u32>,
}

/// `status.kernelBootStatus.initrdInfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InitrdInfo {
    /// CRC-32 of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u32>,
}
