//! SATA disks and drives: QEMU calls what hangs on an AHCI port `ide-hd` and `ide-cd`.

use super::BlockFrontend;
use crate::argv::Properties;
use crate::id::DeviceId;

/// `ide-hd`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdeHd {
    /// Its ID.
    pub id: DeviceId,
    /// The port, for example `ide.0`.
    pub bus: String,
    /// What all disks have.
    pub block: BlockFrontend,
}

impl IdeHd {
    pub(super) fn properties(&self) -> Properties {
        self.block.add_to(ide_device("ide-hd", &self.id, &self.bus))
    }
}

/// `ide-cd`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdeCd {
    /// Its ID.
    pub id: DeviceId,
    /// The port, for example `ide.0`.
    pub bus: String,
    /// What all disks have.
    pub block: BlockFrontend,
}

impl IdeCd {
    pub(super) fn properties(&self) -> Properties {
        self.block.add_to(ide_device("ide-cd", &self.id, &self.bus))
    }
}

fn ide_device(driver: &str, id: &DeviceId, bus: &str) -> Properties {
    Properties::new().set("driver", driver).set("id", id).set("bus", bus).set("unit", 0_u32)
}
