//! Incremental backups.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `status.changedBlockTracking`: whether disks record which blocks change, for incremental backups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTrackingStatus {
    /// The last backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_status: Option<VirtualMachineInstanceBackupStatus>,
    /// `Enabled`, `Disabled`, `Pending…` or `Initializing`.
    pub state: String,
}

/// `status.changedBlockTracking.backupStatus`: the last backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceBackupStatus {
    /// A message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_msg: Option<String>,
    /// Name of the VirtualMachineBackup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,
    /// The checkpoint from which the next incremental backup starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_name: Option<String>,
    /// Whether the backup has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<meta::Time>,
    /// Whether the backup failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// Whether the guest's filesystems were frozen for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiesce_status: Option<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<meta::Time>,
    /// The volumes in the backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VirtualMachineInstanceBackupVolumeInfo>,
}

/// `status.changedBlockTracking.backupStatus.volumes[]`: a volume in the backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceBackupVolumeInfo {
    /// Name of the volume.
    pub volume_name: String,
}
