//! What is tried at boot, in which order.

use garboard_api::v1::Devices;

/// Gives out boot indexes.
///
/// If the manifest orders anything, only what it orders is tried. If it orders nothing, the disks are tried as they
/// are listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BootOrder {
    is_explicit: bool,
    next: u32,
}

impl BootOrder {
    pub(super) fn of(devices: &Devices) -> Self {
        let disks = devices.disks.iter().any(|disk| disk.boot_order.is_some());
        let interfaces = devices.interfaces.iter().any(|interface| interface.boot_order.is_some());
        Self { is_explicit: disks || interfaces, next: 1 }
    }

    /// The index of the next disk.
    pub(super) fn of_disk(&mut self, asked: Option<u32>) -> Option<u32> {
        if self.is_explicit {
            return asked;
        }
        let index = self.next;
        self.next += 1;
        Some(index)
    }

    /// The index of an interface.
    pub(super) fn of_interface(self, asked: Option<u32>) -> Option<u32> {
        if self.is_explicit { asked } else { None }
    }
}
