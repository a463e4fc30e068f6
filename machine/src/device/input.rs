//! Pointers and keyboards.

use super::{UsbPort, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `usb-tablet`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsbTablet {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: UsbPort,
}

impl UsbTablet {
    pub(super) fn properties(&self) -> Properties {
        self.at.device("usb-tablet", &self.id)
    }
}

/// `virtio-tablet-pci`, `virtio-keyboard-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioInput {
    /// Its ID.
    pub id: DeviceId,
    /// Which one.
    pub model: VirtioInputModel,
    /// Where it is.
    pub at: PciPlace,
}

/// virtio input devices. They exist since virtio 1.0, so there is no transitional kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioInputModel {
    /// A pointer with absolute coordinates.
    Tablet,
    /// A keyboard.
    Keyboard,
}

impl VirtioInput {
    pub(super) fn properties(&self) -> Properties {
        let driver = match self.model {
            VirtioInputModel::Tablet => "virtio-tablet-pci",
            VirtioInputModel::Keyboard => "virtio-keyboard-pci",
        };
        pci_device(driver, &self.id, self.at)
    }
}
