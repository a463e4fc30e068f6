//! Where the data of disks and filesystems is. Cloud-init has a file of its own.

use k8s_openapi::api::core::v1 as core;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::v1::{CloudInitConfigDriveSource, CloudInitNoCloudSource, Present};

impl Volume {
    /// Name of the claim behind it, whichever way it is named.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        let of_claim = self.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        let of_data = self.data_volume.as_ref().map(|data| data.name.as_str());
        let of_ephemeral = self.ephemeral.as_ref().and_then(|ephemeral| ephemeral.persistent_volume_claim.as_ref());
        of_claim.or(of_data).or(of_ephemeral.map(|claim| claim.claim_name.as_str()))
    }
}

/// `spec.volumes[]`: a name, and one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Cloud-init's data as an OpenStack ConfigDrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
    /// Cloud-init's data as a NoCloud medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
    /// The entries of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,
    /// A disk image in a container image. What the guest writes is lost when it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_disk: Option<ContainerDiskSource>,
    /// A path in the launcher's container, for filesystems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_path: Option<ContainerPathVolumeSource>,
    /// The claim of a DataVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeSource>,
    /// Fields of the pod as files.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardAPIVolumeSource>,
    /// Metrics of the host, as a small disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downward_metrics: Option<Present>,
    /// An empty disk. What the guest writes is lost when it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_disk: Option<EmptyDiskSource>,
    /// A claim that is only read; what the guest writes is kept aside, and lost when it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// A disk image in a directory of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disk: Option<HostDisk>,
    /// A claim that takes a dump of the guest's memory. The guest does not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump: Option<MemoryDumpVolumeSource>,
    /// The name by which a disk or filesystem refers to it, a DNS label.
    pub name: String,
    /// A claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// The entries of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,
    /// The token of a service account as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountVolumeSource>,
    /// Answer files of Windows setup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sysprep: Option<SysprepSource>,
}

/// `spec.volumes[].containerDisk`: a disk image below `/disk` of a container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerDiskSource {
    /// The container image.
    pub image: String,
    /// When it is pulled. Default: `Always` for the tag `latest` or none, else `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: Option<String>,
    /// The Secret with the registry's credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// The disk image in the container image. Default: the only file below `/disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// `spec.volumes[].persistentVolumeClaim`: a claim in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimVolumeSource {
    /// Its name.
    pub claim_name: String,
    /// Whether it was plugged into a running guest. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
    /// Whether it is only read. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// `spec.volumes[].dataVolume`: a DataVolume in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSource {
    /// Whether it was plugged into a running guest. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
    /// Its name, and its claim's.
    pub name: String,
}

/// `spec.volumes[].ephemeral`: a claim that is only read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolumeSource {
    /// The claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<core::PersistentVolumeClaimVolumeSource>,
}

/// `spec.volumes[].emptyDisk`: an empty disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDiskSource {
    /// Its size in bytes.
    pub capacity: Quantity,
}

/// `spec.volumes[].hostDisk`: a disk image in a directory of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostDisk {
    /// Its size in bytes if it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// Its path on the node.
    pub path: String,
    /// Whether several guests use it. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// `Disk` must exist; `DiskOrCreate` is created if it does not.
    pub r#type: String,
}

/// `spec.volumes[].configMap`: a ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolumeSource {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it may be missing. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// Label of the medium the guest sees. Default: `cfgdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `spec.volumes[].secret`: a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolumeSource {
    /// Whether it may be missing. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Label of the medium the guest sees. Default: `cfgdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `spec.volumes[].downwardAPI`: fields of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardAPIVolumeSource {
    /// Which field becomes which file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<core::DownwardAPIVolumeFile>,
    /// Label of the medium the guest sees. Default: `cfgdata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `spec.volumes[].serviceAccount`: a service account in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountVolumeSource {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// `spec.volumes[].sysprep`: answer files of Windows setup; one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SysprepSource {
    /// The ConfigMap with the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<core::LocalObjectReference>,
    /// The Secret with the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<core::LocalObjectReference>,
}

/// `spec.volumes[].memoryDump`: the claim that takes a dump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryDumpVolumeSource {
    /// Its name.
    pub claim_name: String,
    /// Whether it was plugged into a running guest. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
    /// Whether it is only read. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// `spec.volumes[].containerPath`: a path in the launcher's container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPathVolumeSource {
    /// The absolute path.
    pub path: String,
    /// Whether it is only read. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// `spec.utilityVolumes[]`: a claim that an operation on the guest needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UtilityVolume {
    /// The claim.
    pub claim_name: String,
    /// Name of the volume.
    pub name: String,
    /// Whether it is only read. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What it is for: `MemoryDump` or `Backup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}
