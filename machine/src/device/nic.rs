//! NICs that imitate real ones.

use super::pci_device;
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// A NIC that imitates a real one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedNic {
    /// Its ID.
    pub id: DeviceId,
    /// Which one.
    pub model: EmulatedNicModel,
    /// Where it is.
    pub at: PciPlace,
    /// Its backend.
    pub netdev: DeviceId,
    /// MAC address.
    pub mac: String,
    /// Position among what is tried at boot; without one the boot ROM is not even loaded.
    pub bootindex: Option<u32>,
    /// Index that systemd names the interface after.
    pub acpi_index: Option<u32>,
}

/// Real NICs QEMU imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are QEMU's")]
pub enum EmulatedNicModel {
    E1000,
    E1000e,
    Igb,
    Rtl8139,
    Ne2kPci,
    Pcnet,
}

impl EmulatedNicModel {
    /// Name of the device type.
    #[must_use]
    pub const fn driver(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Igb => "igb",
            Self::Rtl8139 => "rtl8139",
            Self::Ne2kPci => "ne2k_pci",
            Self::Pcnet => "pcnet",
        }
    }

    /// Whether the real one was a PCI Express card.
    #[must_use]
    pub const fn is_express(self) -> bool {
        match self {
            Self::E1000e | Self::Igb => true,
            Self::E1000 | Self::Rtl8139 | Self::Ne2kPci | Self::Pcnet => false,
        }
    }
}

impl EmulatedNic {
    pub(super) fn properties(&self) -> Properties {
        let romfile = if self.bootindex.is_none() { Some("") } else { None };
        pci_device(self.model.driver(), &self.id, self.at)
            .set("netdev", &self.netdev)
            .set("mac", &self.mac)
            .set_some("bootindex", self.bootindex)
            .set_some("acpi-index", self.acpi_index)
            .set_some("romfile", romfile)
    }
}
