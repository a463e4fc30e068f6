//! The watchdog.

use super::pci_device;
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `i6300esb`: watchdog; what it does when it runs out is `-action watchdog=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct I6300Esb {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
}

impl I6300Esb {
    pub(super) fn properties(&self) -> Properties {
        pci_device("i6300esb", &self.id, self.at)
    }
}
