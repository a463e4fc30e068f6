//! The disks of a plan: where each comes from, its layers, what the guest sees.

use serde::{Deserialize, Serialize};

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskPlan {
    /// Name of the disk and of its volume.
    pub volume: String,
    /// Where its bytes come from.
    pub source: DiskSource,
    /// Format of the image, that is of the base if there is an overlay.
    pub format: ImageFormat,
    /// A fresh qcow2 layer takes the writes; it is made before the start and removed after the stop.
    pub overlay: bool,
    /// The most bytes that what the guest writes may take of the scratch directory; `None`: all that its disk could take, or
    /// there is no layer of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room_bytes: Option<u64>,
    /// The guest may not write.
    pub read_only: bool,
    /// More than one VM may have it open.
    pub shareable: bool,
    /// ID of the guest's device.
    pub device: String,
    /// What the guest sees.
    pub frontend: Frontend,
    /// Names of the block nodes. Empty for a drive without a medium.
    pub nodes: DiskNodes,
    /// Value of `/dev/fdset/N` for each layer, top first. Empty for a drive without a medium.
    pub descriptor_sets: Vec<u32>,
    /// Name the guest's kernel will most likely give it, for status (`vda`, `sda`).
    pub target: String,
    /// Tray of a cdrom drive; `None` for everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tray: Option<Tray>,
    /// Serial number, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The user's tag, handed to cloud-init's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Where the bytes of a disk come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum DiskSource {
    /// A file in a container image, under `disk/` unless `path` names it.
    ContainerDisk {
        /// The image.
        image: String,
        /// Absolute path inside of it; `None`: the only file under `/disk`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// A PersistentVolumeClaim, its `disk.img` or its block device.
    PersistentVolumeClaim {
        /// Name of the claim.
        claim: String,
        /// What it is.
        medium: Medium,
    },
    /// A PersistentVolumeClaim that is only read; writes are lost at the stop.
    EphemeralClaim {
        /// Name of the claim.
        claim: String,
        /// What it is.
        medium: Medium,
    },
    /// A new qcow2 image, lost at the stop.
    EmptyDisk {
        /// Size the guest sees, bytes.
        capacity_bytes: u64,
    },
    /// A file of the host.
    HostDisk {
        /// Its path.
        path: String,
        /// Whether it may be made.
        create: CreateHostDisk,
    },
    /// A unit of an iSCSI target. QEMU opens it itself: it has no descriptor.
    Iscsi {
        /// Host, in brackets where it is an IPv6 address, and port.
        portal: String,
        /// Name of the target.
        target: String,
        /// Number of the unit.
        lun: u32,
        /// Whether CHAP's user and password are shown to it.
        chap: bool,
    },
    /// cloud-init's seed.
    CloudInit {
        /// Which of cloud-init's data sources.
        flavour: CloudInitFlavour,
    },
    /// Files of a ConfigMap, Secret and the like on an ISO 9660 image.
    FileTree {
        /// What the files are.
        tree: FileTreeKind,
        /// Label of the image.
        label: String,
    },
    /// A cdrom drive without a medium.
    EmptyDrive,
}

/// File or block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Medium {
    /// A regular file.
    #[default]
    File,
    /// A block device.
    BlockDevice,
}

/// Whether a host disk may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "when", rename_all_fields = "camelCase")]
pub enum CreateHostDisk {
    /// It must exist (`type: Disk`).
    Never,
    /// It is made if missing (`type: DiskOrCreate`).
    IfMissing {
        /// Size, bytes.
        capacity_bytes: u64,
    },
}

/// cloud-init's data sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CloudInitFlavour {
    /// Label `cidata`.
    NoCloud,
    /// Label `config-2`.
    ConfigDrive,
}

/// Kinds of projected files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileTreeKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// Fields of the VMI itself.
    DownwardApi,
    /// A service account's token.
    ServiceAccount,
    /// Windows' answer files.
    Sysprep,
}

/// File formats of disk images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// Bytes of the disk one after another.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl ImageFormat {
    /// Name of the block driver.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// What the guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frontend {
    /// virtio-blk.
    VirtioBlk,
    /// SCSI disk.
    ScsiDisk,
    /// SCSI cdrom.
    ScsiCdrom,
    /// Commands go through to a real SCSI device.
    ScsiBlock,
    /// SATA disk.
    SataDisk,
    /// SATA cdrom.
    SataCdrom,
    /// USB disk.
    UsbDisk,
    /// USB cdrom.
    UsbCdrom,
}

/// Tray of a cdrom drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tray {
    /// The medium is in.
    Closed,
    /// The medium is out of reach: `blockdev-open-tray` before the guest runs.
    Open,
}

/// Names of the block nodes of a disk, as `query-named-block-nodes` lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskNodes {
    /// What the device is attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where the file under it ends, if it may not grow to what the image could take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<String>,
    /// The file under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The image under an overlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The file under that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_file: Option<String>,
}
