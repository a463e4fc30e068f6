//! Sound. It is not played: the backend is `none`, but guests that require a card find one.

use super::pci_device;
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `ich9-intel-hda`: bus of the codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ich9IntelHda {
    /// Its ID; its bus is `<id>.0`.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
}

impl Ich9IntelHda {
    pub(super) fn properties(&self) -> Properties {
        pci_device("ich9-intel-hda", &self.id, self.at)
    }
}

/// `hda-duplex`: line in and out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HdaDuplex {
    /// Its ID.
    pub id: DeviceId,
    /// The controller.
    pub controller: DeviceId,
    /// The audio backend.
    pub audiodev: DeviceId,
}

impl HdaDuplex {
    pub(super) fn properties(&self) -> Properties {
        Properties::new()
            .set("driver", "hda-duplex")
            .set("id", &self.id)
            .set("bus", format!("{}.0", self.controller))
            .set("cad", 0_u32)
            .set("audiodev", &self.audiodev)
    }
}

/// `AC97`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ac97 {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: PciPlace,
    /// The audio backend.
    pub audiodev: DeviceId,
}

impl Ac97 {
    pub(super) fn properties(&self) -> Properties {
        pci_device("AC97", &self.id, self.at).set("audiodev", &self.audiodev)
    }
}
