//! Random numbers for the guest.

use super::{VirtioRevision, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `virtio-rng-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioRngPci {
    /// Its ID.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
    /// The object the numbers come from.
    pub rng: DeviceId,
}

impl VirtioRngPci {
    pub(super) fn properties(&self) -> Properties {
        pci_device(self.revision.driver("virtio-rng-pci"), &self.id, self.at).set("rng", &self.rng)
    }
}
