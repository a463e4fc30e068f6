//! What the guest sees as disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::FeatureState;

/// `spec.domain.devices.disks[]`: at most one of disk, cdrom and lun is set. Default: disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Block sizes that the guest sees. Default: 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Place in the boot order, from 1. Default: after the devices that have one, in the order of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// QEMU's cache mode: `none`, `writethrough` or `writeback`. Default: `none` where the volume takes direct I/O,
    /// else `writethrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// An optical drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdrom: Option<CDRomTarget>,
    /// Whether QEMU records which blocks change, for incremental backups. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<bool>,
    /// Whether the disk has an I/O thread of its own. Default: false.
    #[serde(rename = "dedicatedIOThread", skip_serializing_if = "Option::is_none")]
    pub dedicated_io_thread: Option<bool>,
    /// A disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    /// What happens at an I/O error: `stop` pauses the guest (default), `report` passes it to the guest, `ignore` does
    /// nothing, `enospace` pauses the guest if there is no space and otherwise passes the error to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<String>,
    /// QEMU's way of asynchronous I/O: `native` or `threads`. Default: `native` where the volume takes direct I/O and
    /// is allocated, else `threads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// A SCSI device of the host; SCSI commands are passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<LunTarget>,
    /// Name of the volume.
    pub name: String,
    /// Serial number the guest sees, at most 256 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Whether several guests may write to the volume at the same time. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
    /// Tag with which cloud-init metadata lists the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `spec.domain.devices.disks[].disk`: how the guest sees the disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskTarget {
    /// The bus: `virtio`, `sata`, `scsi` or `usb`. Default: `sata` on amd64, else `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// PCI address, such as `0000:81:01.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Whether the guest cannot write. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

/// `spec.domain.devices.disks[].lun`: how the guest sees the SCSI device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LunTarget {
    /// The bus; only `scsi` passes commands through. Default: `sata` on amd64, else `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Whether the guest cannot write. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Whether the guest may make SCSI persistent reservations. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
}

/// `spec.domain.devices.disks[].cdrom`: how the guest sees the optical drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CDRomTarget {
    /// The bus: `sata`, `scsi` or `usb`. Default: `sata` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Whether the guest cannot write. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// The tray at the start: `open` or `closed`. Default: `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tray: Option<String>,
}

/// `spec.domain.devices.disks[].blockSize`: one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockSize {
    /// Block sizes that are written here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBlockSize>,
    /// The block sizes of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_volume: Option<FeatureState>,
}

/// `spec.domain.devices.disks[].blockSize.custom`. Sizes are powers of 2 from 512 to 2097152.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomBlockSize {
    /// Smallest range that the guest can discard (give back to the storage), in bytes; a multiple of `logical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u32>,
    /// Logical block size in bytes: the unit in which the guest addresses the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<u32>,
    /// Physical block size in bytes: the smallest unit that the disk writes without reading; at least `logical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<u32>,
}
