//! `-device`: what the guest sees. One struct for each device type, in QEMU's terms; the JSON it renders to is also
//! the argument of `device_add`.

mod balloon;
mod block;
mod bus;
mod character;
mod display;
mod ide;
mod input;
mod nic;
mod panic;
mod rng;
mod scsi;
mod sound;
mod usb;
mod virtio_blk;
mod virtio_net;
mod watchdog;

pub use balloon::VirtioBalloonPci;
pub use block::{BlockErrors, BlockFrontend, BlockSizes, WriteCache};
pub use bus::{Ich9Ahci, PcieRootPort, QemuXhci, VirtioScsiPci, VirtioSerialPci};
pub use character::{IsaSerial, VirtSerialPort};
pub use display::{Display, DisplayModel};
pub use ide::{IdeCd, IdeHd};
pub use input::{UsbTablet, VirtioInput, VirtioInputModel};
pub use nic::{EmulatedNic, EmulatedNicModel};
pub use panic::{Pvpanic, PvpanicPci};
pub use rng::VirtioRngPci;
pub use scsi::{ScsiAddress, ScsiBlock, ScsiCd, ScsiHd};
pub use sound::{Ac97, HdaDuplex, Ich9IntelHda};
pub use usb::{UsbBot, UsbPort, UsbRedir, UsbStorage};
pub use virtio_blk::{IothreadUse, VirtioBlkPci};
pub use virtio_net::VirtioNetPci;
pub use watchdog::I6300Esb;

use crate::argv::{Arg, Argument, Properties};
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// Which revisions of virtio a device uses; the end of its type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioRevision {
    /// 1.0 and later only.
    NonTransitional,
    /// 0.9.5 as well, for old guests.
    Transitional,
}

impl VirtioRevision {
    fn driver(self, base: &str) -> String {
        match self {
            Self::NonTransitional => format!("{base}-non-transitional"),
            Self::Transitional => format!("{base}-transitional"),
        }
    }
}

fn pci_device(driver: impl Into<String>, id: &DeviceId, at: PciPlace) -> Properties {
    Properties::new().set("driver", driver.into()).set("id", id).set("bus", at.bus()).set("addr", at.addr())
}

macro_rules! devices {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// `-device`
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant is the struct of its name")]
        pub enum Device {
            $($name($name)),+
        }

        impl Device {
            /// The argument of `device_add`.
            #[must_use]
            pub fn properties(&self) -> Properties {
                match self {
                    $(Self::$name(device) => device.properties()),+
                }
            }

            /// Its ID.
            #[must_use]
            pub fn id(&self) -> &DeviceId {
                match self {
                    $(Self::$name(device) => &device.id),+
                }
            }
        }

        $(impl From<$name> for Device {
            fn from(device: $name) -> Self {
                Self::$name(device)
            }
        })+
    };
}

devices!(
    PcieRootPort,
    Ich9Ahci,
    QemuXhci,
    VirtioScsiPci,
    VirtioSerialPci,
    VirtSerialPort,
    IsaSerial,
    VirtioBlkPci,
    ScsiHd,
    ScsiCd,
    ScsiBlock,
    IdeHd,
    IdeCd,
    UsbStorage,
    UsbBot,
    UsbRedir,
    VirtioNetPci,
    EmulatedNic,
    Display,
    UsbTablet,
    VirtioInput,
    VirtioRngPci,
    VirtioBalloonPci,
    I6300Esb,
    Pvpanic,
    PvpanicPci,
    Ich9IntelHda,
    HdaDuplex,
    Ac97,
);

impl Arg for Device {
    fn argument(&self) -> Argument {
        Argument::json("-device", self.properties())
    }
}
