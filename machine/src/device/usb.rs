//! USB devices.

use super::BlockFrontend;
use crate::argv::Properties;
use crate::id::DeviceId;

/// A port of a USB controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsbPort {
    /// The controller.
    pub controller: DeviceId,
    /// From 1.
    pub port: u32,
}

impl UsbPort {
    pub(super) fn device(&self, driver: &str, id: &DeviceId) -> Properties {
        Properties::new()
            .set("driver", driver)
            .set("id", id)
            .set("bus", format!("{}.0", self.controller))
            .set("port", self.port.to_string())
    }
}

/// `usb-storage`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsbStorage {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: UsbPort,
    /// What all disks have.
    pub block: BlockFrontend,
}

impl UsbStorage {
    pub(super) fn properties(&self) -> Properties {
        self.block.add_to(self.at.device("usb-storage", &self.id)).set("removable", false)
    }
}

/// `usb-bot`: bridge to a SCSI bus, for what `usb-storage` cannot be: a cdrom drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsbBot {
    /// Its ID; its bus is `<id>.0`.
    pub id: DeviceId,
    /// Where it is.
    pub at: UsbPort,
}

impl UsbBot {
    pub(super) fn properties(&self) -> Properties {
        self.at.device("usb-bot", &self.id)
    }
}

/// `usb-redir`: a USB device that a client redirects by usbredir's protocol. The guest sees none until a client has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsbRedir {
    /// Its ID.
    pub id: DeviceId,
    /// Where it is.
    pub at: UsbPort,
    /// The character device that its client is connected to.
    pub chardev: DeviceId,
}

impl UsbRedir {
    pub(super) fn properties(&self) -> Properties {
        self.at.device("usb-redir", &self.id).set("chardev", &self.chardev)
    }
}
