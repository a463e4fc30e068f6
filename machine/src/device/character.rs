//! Serial port and virtio channels.

use crate::argv::Properties;
use crate::id::DeviceId;

/// `isa-serial`: a UART at its usual address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsaSerial {
    /// Its ID.
    pub id: DeviceId,
    /// Its character device.
    pub chardev: DeviceId,
    /// 0 is COM1, `ttyS0`.
    pub index: u32,
}

impl IsaSerial {
    pub(super) fn properties(&self) -> Properties {
        Properties::new()
            .set("driver", "isa-serial")
            .set("id", &self.id)
            .set("chardev", &self.chardev)
            .set("index", self.index)
    }
}

/// `virtserialport`: a named channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtSerialPort {
    /// Its ID.
    pub id: DeviceId,
    /// The `virtio-serial-pci` it hangs on.
    pub controller: DeviceId,
    /// Number on the controller, from 1.
    pub nr: u32,
    /// Its character device.
    pub chardev: DeviceId,
    /// Name the guest finds it by.
    pub name: String,
}

impl VirtSerialPort {
    pub(super) fn properties(&self) -> Properties {
        Properties::new()
            .set("driver", "virtserialport")
            .set("id", &self.id)
            .set("bus", format!("{}.0", self.controller))
            .set("nr", self.nr)
            .set("chardev", &self.chardev)
            .set("name", &self.name)
    }
}
