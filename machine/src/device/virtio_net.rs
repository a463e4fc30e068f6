//! `virtio-net-pci`

use super::{VirtioRevision, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `virtio-net-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioNetPci {
    /// Its ID.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
    /// Its backend.
    pub netdev: DeviceId,
    /// MAC address.
    pub mac: String,
    /// Queue pairs, at least 1.
    pub queues: u32,
    /// Position among what is tried at boot; without one the boot ROM is not even loaded.
    pub bootindex: Option<u32>,
    /// Index that systemd names the interface after.
    pub acpi_index: Option<u32>,
    /// The largest packet its network carries, bytes (`VIRTIO_NET_F_MTU`); `None`: the guest takes 1500 for granted.
    pub mtu: Option<u16>,
}

impl VirtioNetPci {
    pub(super) fn properties(&self) -> Properties {
        // Two vectors for each queue pair, one for changes of configuration, one for the control queue.
        let vectors = (self.queues > 1).then_some(self.queues.saturating_mul(2).saturating_add(2));
        let romfile = if self.bootindex.is_none() { Some("") } else { None };
        pci_device(self.revision.driver("virtio-net-pci"), &self.id, self.at)
            .set("netdev", &self.netdev)
            .set("mac", &self.mac)
            .set_some("mq", vectors.map(|_| true))
            .set_some("vectors", vectors)
            .set_some("bootindex", self.bootindex)
            .set_some("acpi-index", self.acpi_index)
            .set_some("host_mtu", self.mtu.map(u32::from))
            .set_some("romfile", romfile)
    }
}
