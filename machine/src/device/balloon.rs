//! The balloon: memory the guest does not use goes back to the host.

use super::{VirtioRevision, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `virtio-balloon-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioBalloonPci {
    /// Its ID.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
    /// The guest reports pages it does not use, and the host takes them back.
    pub free_page_reporting: bool,
    /// Seconds between two statistics; 0: none.
    pub stats_interval_seconds: u32,
}

impl VirtioBalloonPci {
    pub(super) fn properties(&self) -> Properties {
        let interval = (self.stats_interval_seconds > 0).then_some(self.stats_interval_seconds);
        pci_device(self.revision.driver("virtio-balloon-pci"), &self.id, self.at)
            .set("free-page-reporting", self.free_page_reporting)
            .set_some("guest-stats-polling-interval", interval)
    }
}
