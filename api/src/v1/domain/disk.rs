//! What the guest sees as disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.devices.disks[]`: at most one of disk, cdrom and lun is set. Default: disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Sizes of blocks the guest sees. Default: 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Place in the boot order, from 1. Default: after those that have one, in the order of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// `none`, `writethrough` or `writeback`. Default: `none` where the volume takes direct I/O, else `writethrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// An optical drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdrom: Option<CDRomTarget>,
    /// Whether changes are kept track of for incremental backups. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<bool>,
    /// Whether a thread serves only this disk. Default: false.
    #[serde(rename = "dedicatedIOThread", skip_serializing_if = "Option::is_none")]
    pub dedicated_io_thread: Option<bool>,
    /// A disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    /// What an I/O error does: `stop` (default), `ignore`, `report` or `enospace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<String>,
    /// `native` or `threads`. Default: `native` where the volume takes direct I/O and is allocated, else `threads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// A SCSI device of the host, with its commands passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<LunTarget>,
    /// Name of the volume.
    pub name: String,
    /// Serial number the guest sees, at most 256 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Whether several guests write to it. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
    /// What the guest's metadata calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `spec.domain.devices.disks[].disk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskTarget {
    /// `virtio`, `sata`, `scsi` or `usb`. Default: `sata` on amd64, else `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Place on the PCI bus, such as `0000:81:01.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Whether the guest cannot write. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

/// `spec.domain.devices.disks[].lun`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LunTarget {
    /// `scsi`. Default: `sata` on amd64, else `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Whether the guest cannot write. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Whether the guest may make SCSI persistent reservations. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
}

/// `spec.domain.devices.disks[].cdrom`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CDRomTarget {
    /// `sata`, `scsi` or `usb`. Default: `sata` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Whether the guest cannot write. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// `open` or `closed`. Default: `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tray: Option<String>,
}

/// `spec.domain.devices.disks[].blockSize`: one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockSize {
    /// Sizes of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBlockSize>,
    /// The sizes that the volume has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_volume: Option<FeatureState>,
}

/// `spec.domain.devices.disks[].blockSize.custom`. Sizes are powers of 2 from 512 to 2097152.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomBlockSize {
    /// Bytes that can be given back at once; a multiple of `logical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u32>,
    /// Bytes the guest addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<u32>,
    /// Bytes the disk writes at once; at least `logical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<u32>,
}
