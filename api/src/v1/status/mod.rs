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
    /// Context ID of the socket between host and guest, from 3.
    #[serde(rename = "VSOCKCID", skip_serializing_if = "Option::is_none")]
    pub vsock_cid: Option<u32>,
    /// Nodes of the pods that exist for it, by the pod's UID.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub active_pods: BTreeMap<String, String>,
    /// Which disks keep track of their changes for incremental backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    /// `Ready`, `LiveMigratable`, `AgentConnected`, `Paused` and others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineInstanceCondition>,
    /// The virtual processors the guest has now.
    #[serde(rename = "currentCPUTopology", skip_serializing_if = "Option::is_none")]
    pub current_cpu_topology: Option<CPUTopology>,
    /// The node that the guest has to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation_node_name: Option<String>,
    /// `frozen` while the guest's filesystems are.
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
    /// Image of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_container_image_version: Option<String>,
    /// The machine type in use, versioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Memory the guest has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Volumes that are being replaced by others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    /// `LiveMigration`, or `BlockMigration` if disks are copied too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_method: Option<String>,
    /// The last migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// How a migration reaches the target: `Unix`.
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
    /// Quality of service of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["BestEffort", "Burstable", "Guaranteed"]))]
    pub qos_class: Option<String>,
    /// Why it failed, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user QEMU runs as; 107.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_user: Option<u64>,
    /// SELinux label of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// What the first start decided and every later one keeps: machine type, places of devices, addresses, serials. Not
    /// KubeVirt's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_object")]
    pub stored_machine: Option<serde_json::Value>,
    /// The supervisor in the launcher pod, as it describes itself. Not KubeVirt's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<SupervisorStatus>,
    /// What a node must offer for the guest to move there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_hints: Option<TopologyHints>,
    /// The ControllerRevision of the machine it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_revision_name: Option<String>,
    /// State of each volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_status: Vec<VolumeStatus>,
}

/// `status.supervisor`. Not KubeVirt's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SupervisorStatus {
    /// When it was started; another time means that it was replaced.
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
    /// When it was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<meta::Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<meta::Time>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For programs, in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Which condition.
    pub r#type: String,
}

/// `status.phaseTransitionTimestamps[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePhaseTransitionTimestamp {
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When it was entered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<meta::Time>,
}

/// `status.guestOSInfo`: what the guest agent reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestOSInfo {
    /// Short name of the system (`debian`).
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
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
    /// Version for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version (`12`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
}

/// `status.interfaces[]`: a network card of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceNetworkInterface {
    /// The source of this: `domain`, `guest-agent`, `multus-status`, separated by `, `.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info_source: Option<String>,
    /// Name in the guest (`enp1s0`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// First address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Every address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// `up` or `down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
    /// Hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Name in the specification; absent for cards that only the guest has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interface_name: Option<String>,
    /// Queue pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<i32>,
}

/// `status.currentCPUTopology`.
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

/// `status.memory`, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryStatus {
    /// What the guest started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_at_boot: Option<Quantity>,
    /// What the guest has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_current: Option<Quantity>,
    /// What the guest should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_requested: Option<Quantity>,
    /// What everything but the guest's memory may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<Quantity>,
}

/// `status.topologyHints`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyHints {
    /// Frequency of the time stamp counter, in Hz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsc_frequency: Option<i64>,
}

/// `status.kernelBootStatus`.
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
