//! Graphics.

use super::pci_device;
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// A graphics device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Display {
    /// Its ID.
    pub id: DeviceId,
    /// Which one, and where it is.
    pub model: DisplayModel,
}

/// Graphics devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are QEMU's; `at` is where the device is")]
pub enum DisplayModel {
    /// Standard VGA with 16 MiB.
    Vga { at: PciPlace },
    /// Like VGA, without legacy registers: for UEFI.
    Bochs { at: PciPlace },
    /// Cirrus Logic GD 5446, for guests of its time.
    Cirrus { at: PciPlace },
    /// virtio-gpu with VGA compatibility.
    VirtioVga { at: PciPlace },
    /// A frame buffer in the guest's memory, set up by firmware; not on PCI.
    Ramfb,
}

impl Display {
    pub(super) fn properties(&self) -> Properties {
        let id = &self.id;
        match self.model {
            DisplayModel::Vga { at } => pci_device("VGA", id, at).set("vgamem_mb", 16_u32),
            DisplayModel::Bochs { at } => pci_device("bochs-display", id, at).set("vgamem", 16_u64 << 20),
            DisplayModel::Cirrus { at } => pci_device("cirrus-vga", id, at).set("vgamem_mb", 16_u32),
            DisplayModel::VirtioVga { at } => pci_device("virtio-vga", id, at),
            DisplayModel::Ramfb => Properties::new().set("driver", "ramfb").set("id", id),
        }
    }
}
