//! Status of a VirtualMachine, and the requests that wait in it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{
    ChangedBlockTrackingStatus, DataVolumeSource, Disk, PersistentVolumeClaimVolumeSource, StorageMigratedVolumeInfo,
};

/// `status` of a VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStatus {
    /// Whether disks record which blocks change, for incremental backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    /// `Ready`, `Failure`, `Paused`, `RestartRequired` and others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineCondition>,
    /// Whether an instance exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// The generation of the machine as it is written now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
    /// The instancetype in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    /// The requested memory dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump_request: Option<VirtualMachineMemoryDumpRequest>,
    /// The generation of the machine that the running instance was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The preference in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference_ref: Option<InstancetypeStatusRef>,
    /// The state for people: `Stopped`, `Starting`, `Running`, `Paused`, `CrashLoopBackOff` and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printable_status: Option<String>,
    /// Whether the instance is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Name of the restore that is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_in_progress: Option<String>,
    /// The run strategy that was applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// Name of the snapshot that is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_in_progress: Option<String>,
    /// Failed starts, and when the next one is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<VirtualMachineStartFailure>,
    /// Requested starts and stops that are not done yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state_change_requests: Vec<VirtualMachineStateChangeRequest>,
    /// What was decided at the first start and is kept for later ones: machine type, addresses of devices, MAC
    /// addresses, serial numbers. Not a field of KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::status::free_object")]
    pub stored_machine: Option<serde_json::Value>,
    /// Volumes to plug and unplug, in the order of the requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_requests: Vec<VirtualMachineVolumeRequest>,
    /// Which volumes can be part of a snapshot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
    /// Volumes that are being copied to other claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_update_state: Option<VolumeUpdateState>,
}

/// `status.conditions[]` of a VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCondition {
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

/// `status.startFailure`: the delay of the next start after failed ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStartFailure {
    /// Number of failed starts in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_fail_count: Option<i32>,
    /// UID of the instance that failed last.
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub last_failed_vmiuid: Option<String>,
    /// When the next start is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<meta::Time>,
}

/// `status.stateChangeRequests[]`: a requested start or stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStateChangeRequest {
    /// `Start` or `Stop`.
    pub action: String,
    /// Options of the request, such as `paused: "true"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// UID of the instance to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// `status.volumeRequests[]`: a volume to plug or unplug; one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineVolumeRequest {
    /// The volume to plug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_volume_options: Option<AddVolumeOptions>,
    /// The volume to unplug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// A volume to plug into a running guest; the body of the subresource `addvolume` too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AddVolumeOptions {
    /// How the guest sees it.
    pub disk: Disk,
    /// `All` checks the request and does nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
    /// Name of the volume.
    pub name: String,
    /// The source of the volume.
    pub volume_source: HotplugVolumeSource,
}

/// The source of a volume that can be plugged; one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HotplugVolumeSource {
    /// A DataVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeSource>,
    /// A claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}

/// A volume to unplug from a running guest; the body of the subresource `removevolume` too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoveVolumeOptions {
    /// `All` checks the request and does nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
    /// Name of the volume.
    pub name: String,
}

/// `status.memoryDumpRequest`: a dump of the guest's memory into a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineMemoryDumpRequest {
    /// The claim that holds the dump.
    pub claim_name: String,
    /// When the dump was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<meta::Time>,
    /// Name of the dump in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// Why the dump failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Associating`, `InProgress`, `Unmounting`, `Completed`, `Dissociating` or `Failed`.
    pub phase: String,
    /// Whether the claim is to be detached from the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    /// When the dump began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<meta::Time>,
}

/// `status.instancetypeRef` and `status.preferenceRef`: the object in use, and the copy that is kept of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeStatusRef {
    /// The ControllerRevision with the object as it was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    /// The volume whose labels named the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// What happens if the volume names none: `Reject` or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    /// Kind of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A reference to a ControllerRevision in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevisionRef {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `status.volumeSnapshotStatuses[]`: whether a volume can be part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// Whether it can.
    pub enabled: bool,
    /// Name of the volume.
    pub name: String,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `status.volumeUpdateState`: volumes that are being copied to other claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeUpdateState {
    /// The volumes that are copied while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// `status.volumeUpdateState.volumeMigrationState`: volumes that are copied while the guest runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMigrationState {
    /// The volumes, with the claims they are copied from and to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}
