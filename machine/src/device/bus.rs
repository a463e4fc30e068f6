//! Devices that other devices hang on.

use super::{VirtioRevision, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::{PciPlace, RootPort};

/// `pcie-root-port`: one hot-pluggable PCIe slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcieRootPort {
    /// `port<number>`.
    pub id: DeviceId,
    /// Its number and place.
    pub port: RootPort,
}

impl PcieRootPort {
    /// The device of one port of the map.
    #[must_use]
    pub fn new(port: RootPort) -> Self {
        Self { id: port.number.id(), port }
    }

    pub(super) fn properties(&self) -> Properties {
        let at = self.port.at;
        // Chassis and slot must be unique together; port is what the guest sees in the link capabilities.
        pci_device("pcie-root-port", &self.id, PciPlace::Root(at))
            .set("chassis", u32::from(self.port.number.get()))
            .set("port", u32::from(at.devfn()))
            .set_some("multifunction", at.is_first().then_some(true))
    }
}

/// `ich9-ahci`: six more SATA ports, when those of the chipset are used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ich9Ahci {
    /// Its ID; its buses are `<id>.0` to `<id>.5`.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
}

impl Ich9Ahci {
    pub(super) fn properties(&self) -> Properties {
        pci_device("ich9-ahci", &self.id, self.at)
    }
}

/// `qemu-xhci`: USB 3 with [`QemuXhci::PORTS`] ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuXhci {
    /// Its ID; its bus is `<id>.0`.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
}

impl QemuXhci {
    /// Ports of one controller (`XHCI_MAXPORTS_2`).
    pub const PORTS: u32 = 15;

    pub(super) fn properties(&self) -> Properties {
        pci_device("qemu-xhci", &self.id, self.at).set("p2", Self::PORTS).set("p3", Self::PORTS)
    }
}

/// `virtio-scsi-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioScsiPci {
    /// Its ID; its bus is `<id>.0`.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
    /// Thread that serves it.
    pub iothread: Option<DeviceId>,
    /// Request queues; `None`: as many as vCPUs.
    pub num_queues: Option<u32>,
}

impl VirtioScsiPci {
    pub(super) fn properties(&self) -> Properties {
        pci_device(self.revision.driver("virtio-scsi-pci"), &self.id, self.at)
            .set_some("iothread", self.iothread.as_ref())
            .set_some("num_queues", self.num_queues)
    }
}

/// `virtio-serial-pci`: bus of the channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioSerialPci {
    /// Its ID; its bus is `<id>.0`.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
}

impl VirtioSerialPci {
    pub(super) fn properties(&self) -> Properties {
        pci_device(self.revision.driver("virtio-serial-pci"), &self.id, self.at)
    }
}
