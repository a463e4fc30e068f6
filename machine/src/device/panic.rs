//! Where a guest reports its panic.

use super::pci_device;
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `pvpanic`: the guest reports its panic at an ISA port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pvpanic {
    /// Its ID.
    pub id: DeviceId,
}

impl Pvpanic {
    pub(super) fn properties(&self) -> Properties {
        Properties::new().set("driver", "pvpanic").set("id", &self.id)
    }
}

/// `pvpanic-pci`: the same on PCI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvpanicPci {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
}

impl PvpanicPci {
    pub(super) fn properties(&self) -> Properties {
        pci_device("pvpanic-pci", &self.id, self.at)
    }
}
