//! Where the data of disks and filesystems is. Cloud-init has a file of its own.

use k8s_openapi::api::core::v1 as core;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::v1::{CloudInitConfigDriveSource, CloudInitNoCloudSource, Present};

/// Where the data of a volume is: one of these for each source that [`Volume`] has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeSource<'a> {
    /// `cloudInitConfigDrive`.
    CloudInitConfigDrive(&'a CloudInitConfigDriveSource),
    /// `cloudInitNoCloud`.
    CloudInitNoCloud(&'a CloudInitNoCloudSource),
    /// `configMap`.
    ConfigMap(&'a ConfigMapVolumeSource),
    /// `containerDisk`.
    ContainerDisk(&'a ContainerDiskSource),
    /// `containerPath`.
    ContainerPath(&'a ContainerPathVolumeSource),
    /// `dataVolume`.
    DataVolume(&'a DataVolumeSource),
    /// `downwardAPI`.
    DownwardApi(&'a DownwardAPIVolumeSource),
    /// `downwardMetrics`.
    DownwardMetrics(&'a Present),
    /// `emptyDisk`.
    EmptyDisk(&'a EmptyDiskSource),
    /// `ephemeral`.
    Ephemeral(&'a EphemeralVolumeSource),
    /// `hostDisk`.
    HostDisk(&'a HostDisk),
    /// `iscsi`.
    Iscsi(&'a IscsiSource),
    /// `memoryDump`.
    MemoryDump(&'a MemoryDumpVolumeSource),
    /// `persistentVolumeClaim`.
    PersistentVolumeClaim(&'a PersistentVolumeClaimVolumeSource),
    /// `secret`.
    Secret(&'a SecretVolumeSource),
    /// `serviceAccount`.
    ServiceAccount(&'a ServiceAccountVolumeSource),
    /// `sysprep`.
    Sysprep(&'a SysprepSource),
}

impl VolumeSource<'_> {
    /// Its field in a manifest.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::CloudInitConfigDrive(_) => "cloudInitConfigDrive",
            Self::CloudInitNoCloud(_) => "cloudInitNoCloud",
            Self::ConfigMap(_) => "configMap",
            Self::ContainerDisk(_) => "containerDisk",
            Self::ContainerPath(_) => "containerPath",
            Self::DataVolume(_) => "dataVolume",
            Self::DownwardApi(_) => "downwardAPI",
            Self::DownwardMetrics(_) => "downwardMetrics",
            Self::EmptyDisk(_) => "emptyDisk",
            Self::Ephemeral(_) => "ephemeral",
            Self::HostDisk(_) => "hostDisk",
            Self::Iscsi(_) => "iscsi",
            Self::MemoryDump(_) => "memoryDump",
            Self::PersistentVolumeClaim(_) => "persistentVolumeClaim",
            Self::Secret(_) => "secret",
            Self::ServiceAccount(_) => "serviceAccount",
            Self::Sysprep(_) => "sysprep",
        }
    }
}

impl Volume {
    /// Its source. Rules refuse a volume that has none or several.
    #[must_use]
    pub fn source(&self) -> Option<VolumeSource<'_>> {
        self.sources().next()
    }

    /// Every source that is written.
    pub fn sources(&self) -> impl Iterator<Item = VolumeSource<'_>> {
        // Every field: a source that is not listed below is an error here.
        let Self {
            name: _,
            cloud_init_config_drive,
            cloud_init_no_cloud,
            config_map,
            container_disk,
            container_path,
            data_volume,
            downward_api,
            downward_metrics,
            empty_disk,
            ephemeral,
            host_disk,
            iscsi,
            memory_dump,
            persistent_volume_claim,
            secret,
            service_account,
            sysprep,
        } = self;
        let all = [
            cloud_init_config_drive.as_ref().map(VolumeSource::CloudInitConfigDrive),
            cloud_init_no_cloud.as_ref().map(VolumeSource::CloudInitNoCloud),
            config_map.as_ref().map(VolumeSource::ConfigMap),
            container_disk.as_ref().map(VolumeSource::ContainerDisk),
            container_path.as_ref().map(VolumeSource::ContainerPath),
            data_volume.as_ref().map(VolumeSource::DataVolume),
            downward_api.as_ref().map(VolumeSource::DownwardApi),
            downward_metrics.as_ref().map(VolumeSource::DownwardMetrics),
            empty_disk.as_ref().map(VolumeSource::EmptyDisk),
            ephemeral.as_ref().map(VolumeSource::Ephemeral),
            host_disk.as_ref().map(VolumeSource::HostDisk),
            iscsi.as_ref().map(VolumeSource::Iscsi),
            memory_dump.as_ref().map(VolumeSource::MemoryDump),
            persistent_volume_claim.as_ref().map(VolumeSource::PersistentVolumeClaim),
            secret.as_ref().map(VolumeSource::Secret),
            service_account.as_ref().map(VolumeSource::ServiceAccount),
            sysprep.as_ref().map(VolumeSource::Sysprep),
        ];
        all.into_iter().flatten()
    }

    /// Name of the claim behind it, whichever way it is named.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        match self.source()? {
            VolumeSource::PersistentVolumeClaim(claim) => Some(&claim.claim_name),
            // A DataVolume fills a claim of its own name.
            VolumeSource::DataVolume(data) => Some(&data.name),
            VolumeSource::Ephemeral(ephemeral) => {
                ephemeral.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str())
            }
            // The guest does not see it.
            VolumeSource::MemoryDump(_)
            | VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics(_)
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_) => None,
        }
    }
}

/// `spec.volumes[]`: a name, and one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Data of cloud-init, as an OpenStack ConfigDrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
    /// Data of cloud-init, as a NoCloud medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
    /// The entries of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,
    /// A disk image in a container image. What the guest writes is lost when it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_disk: Option<ContainerDiskSource>,
    /// A path in the container of the launcher, for filesystems.
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
    /// A claim that is only read; writes of the guest go to a temporary layer, and are lost when it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// A disk image in a directory of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disk: Option<HostDisk>,
    /// Not KubeVirt's: a unit of an iSCSI target, which QEMU itself opens over the network of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<IscsiSource>,
    /// A claim for a dump of the guest's memory. The guest does not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump: Option<MemoryDumpVolumeSource>,
    /// The name by which a disk or filesystem refers to it, a DNS label.
    pub name: String,
    /// A PersistentVolumeClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// The entries of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,
    /// The token of a service account as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountVolumeSource>,
    /// Answer files of the Windows setup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sysprep: Option<SysprepSource>,
}

/// `spec.volumes[].iscsi`: a unit of an iSCSI target (RFC 7143). Not KubeVirt's; the names are those of Kubernetes' own iSCSI volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IscsiSource {
    /// Name of the target, `iqn.…`.
    pub iqn: String,
    /// Number of the unit, from 0 to 255.
    pub lun: i32,
    /// A Secret with `node.session.auth.username` and `node.session.auth.password`, for CHAP. Default: none is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<core::LocalObjectReference>,
    /// Name or address of the target's host, and behind a colon its port. Default of the port: 3260.
    pub target_portal: String,
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
    /// Whether the volume was plugged into a running guest. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
    /// Whether the volume is only read. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// `spec.volumes[].dataVolume`: a DataVolume in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSource {
    /// Whether the volume was plugged into a running guest. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
    /// Name of the DataVolume, and of its claim.
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
    /// Size of the image in bytes, if it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// Its path on the node.
    pub path: String,
    /// Whether several guests may use it at the same time. Default: false.
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

/// `spec.volumes[].downwardAPI`: fields of the pod as files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardAPIVolumeSource {
    /// The fields, each with the path of its file.
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

/// `spec.volumes[].memoryDump`: the claim for a dump of the guest's memory.
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
    /// Name of the claim.
    pub claim_name: String,
    /// Name of the volume.
    pub name: String,
    /// Whether it is only read. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// The operation that it is for: `MemoryDump` or `Backup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}
