//! DataVolumes that a VirtualMachine brings along: the types of the Containerized Data Importer, `cdi.kubevirt.io/v1beta1`.
//! Garboard reads them to find and wait for their claims; filling them is the importer's work.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.dataVolumeTemplates[]`: a DataVolume that is created with the machine and deleted with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeTemplateSpec {
    /// `cdi.kubevirt.io/v1beta1`; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `DataVolume`; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name, labels and annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<meta::ObjectMeta>,
    /// Its specification.
    pub spec: DataVolumeSpec,
    /// Ignored; older versions of the API wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Present>,
}

/// Specification of a DataVolume: the source of its data, and the claim that holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSpec {
    /// Checkpoints of a warm import (a disk that is copied in several stages), in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<DataVolumeCheckpoint>,
    /// `kubevirt` (a disk image, the default) or `archive` (a tar file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether the last of `checkpoints` is the final one, after which the import is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    /// Whether all blocks of the claim are allocated before it is used. Default: the cluster's setting, usually false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// PriorityClass of the importer's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The claim, complete. Write `storage` instead to have what is missing chosen by the storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<core::PersistentVolumeClaimSpec>,
    /// Where the data comes from. Write `sourceRef` instead to name an object that has the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DataVolumeSource>,
    /// An object that has the source of the data, such as a DataSource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<DataVolumeSourceRef>,
    /// The claim; what is missing is chosen by the storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
}

/// `checkpoints[]`: a checkpoint of a warm import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeCheckpoint {
    /// The snapshot of this checkpoint, as the source names it.
    pub current: String,
    /// The snapshot of the checkpoint before it; empty for the first.
    pub previous: String,
}

/// `source`: where the data comes from; exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "CdiDataVolumeSource")]
pub struct DataVolumeSource {
    /// No source: the disk is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blank: Option<Present>,
    /// A bucket of Google's cloud storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs: Option<DataVolumeSourceGCS>,
    /// A web server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<DataVolumeSourceHTTP>,
    /// A disk of oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imageio: Option<DataVolumeSourceImageIO>,
    /// Another claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<DataVolumeSourcePVC>,
    /// A container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<DataVolumeSourceRegistry>,
    /// A bucket of S3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<DataVolumeSourceS3>,
    /// A volume snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DataVolumeSourceSnapshot>,
    /// A client that uploads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<Present>,
    /// A disk of VMware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vddk: Option<DataVolumeSourceVDDK>,
}

/// `source.gcs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceGCS {
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// URL of the object.
    pub url: String,
}

/// `source.http`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceHTTP {
    /// The ConfigMap with certificates to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Headers of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_headers: Vec<String>,
    /// Secrets with headers of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_extra_headers: Vec<String>,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// URL of the file.
    pub url: String,
}

/// `source.imageio`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceImageIO {
    /// The ConfigMap with certificates to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// ID of the disk.
    pub disk_id: String,
    /// Whether the certificate of the server is not checked. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// URL of oVirt's engine.
    pub url: String,
}

/// `source.pvc`: a claim to copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourcePVC {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// `source.registry`: a container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceRegistry {
    /// The ConfigMap with certificates to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// The ImageStream (OpenShift) with the image, instead of `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_stream: Option<String>,
    /// The platform whose image is taken from an image for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformOptions>,
    /// Who pulls: `pod` (default) or `node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_method: Option<String>,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// URL of the image, such as `docker://…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// `source.registry.platform`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformOptions {
    /// The architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// `source.s3`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceS3 {
    /// The ConfigMap with certificates to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// URL of the object.
    pub url: String,
}

/// `source.snapshot`: a volume snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceSnapshot {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// `source.vddk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceVDDK {
    /// Path of the disk at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    /// The ConfigMap with options of the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<String>,
    /// The container image with VMware's library.
    #[serde(rename = "initImageURL", skip_serializing_if = "Option::is_none")]
    pub init_image_url: Option<String>,
    /// The Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Fingerprint of the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// URL of vCenter or of the ESXi host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// UUID of the machine at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// `sourceRef`: an object that has the source of the data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceRef {
    /// `DataSource`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace. Default: the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// `storage`: the claim; what is missing is chosen by the storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageSpec {
    /// Access modes, such as `ReadWriteOnce`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// A snapshot or claim to begin from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<core::TypedLocalObjectReference>,
    /// An object to begin from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<core::TypedObjectReference>,
    /// The requested size: `storage` in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<core::VolumeResourceRequirements>,
    /// Labels that the volume must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<meta::LabelSelector>,
    /// Its storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// `Filesystem` or `Block`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Block", "Filesystem", "FromStorageProfile"]))]
    pub volume_mode: Option<String>,
    /// Name of the PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
}
