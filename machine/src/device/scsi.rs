//! SCSI devices behind a `virtio-scsi-pci`.

use super::BlockFrontend;
use crate::argv::Properties;
use crate::id::DeviceId;

/// Where a SCSI device is: all are logical units of target 0 of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiAddress {
    /// The controller.
    pub controller: DeviceId,
    /// Logical unit.
    pub lun: u32,
}

impl ScsiAddress {
    fn device(&self, driver: &str, id: &DeviceId) -> Properties {
        Properties::new()
            .set("driver", driver)
            .set("id", id)
            .set("bus", format!("{}.0", self.controller))
            .set("channel", 0_u32)
            .set("scsi-id", 0_u32)
            .set("lun", self.lun)
    }

    /// A device with the name the guest finds in the device identification page (`/dev/disk/by-id`): its serial number,
    /// else its ID. The name is made anew at each start; a changed serial number renames the disk.
    fn named(&self, driver: &str, id: &DeviceId, block: &BlockFrontend) -> Properties {
        let name = block.serial.clone().unwrap_or_else(|| id.to_string());
        self.device(driver, id).set("device_id", name)
    }
}

/// `scsi-hd`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiHd {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: ScsiAddress,
    /// What all disks have.
    pub block: BlockFrontend,
}

impl ScsiHd {
    pub(super) fn properties(&self) -> Properties {
        self.block.add_to(self.at.named("scsi-hd", &self.id, &self.block))
    }
}

/// `scsi-cd`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiCd {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: ScsiAddress,
    /// What all disks have.
    pub block: BlockFrontend,
}

impl ScsiCd {
    pub(super) fn properties(&self) -> Properties {
        self.block.add_to(self.at.named("scsi-cd", &self.id, &self.block))
    }
}

/// `scsi-block`: the guest's commands go to a real SCSI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiBlock {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: ScsiAddress,
    /// What all disks have. Serial number, block sizes and write cache are the real device's, so they are left out.
    pub block: BlockFrontend,
}

impl ScsiBlock {
    pub(super) fn properties(&self) -> Properties {
        let block = BlockFrontend {
            serial: None,
            write_cache: super::WriteCache::Auto,
            sizes: super::BlockSizes::default(),
            ..self.block.clone()
        };
        block.add_to(self.at.device("scsi-block", &self.id))
    }
}
