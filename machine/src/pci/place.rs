//! Slots, functions, ports and addresses: newtypes that cannot be wrong, and how they are written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PciError;
use crate::id::DeviceId;

/// Device number on a bus, 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct PciSlot(pub(super) u8);

/// Slot and function on the root complex, written `02.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciFunction {
    pub(super) slot: PciSlot,
    pub(super) function: u8,
}

/// Number of a root port, from 1: its ID is `port<number>`, its chassis `number`, the bus behind it `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortNumber(pub(super) u8);

/// Where a device is, written `port3` or `pcie.0/1e.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PciPlace {
    /// Alone behind a root port.
    Port(PortNumber),
    /// On the root complex itself.
    Root(PciFunction),
}

/// A guest-visible address as a manifest names it: `[domain:]bus:slot.function`, hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// PCI segment.
    pub domain: u16,
    /// Bus number.
    pub bus: u8,
    /// Slot on the bus.
    pub slot: PciSlot,
    /// Function of the slot, 0 to 7.
    pub function: u8,
}

impl PciPlace {
    /// Value of the property `bus`.
    #[must_use]
    pub fn bus(self) -> String {
        match self {
            Self::Port(number) => number.to_string(),
            Self::Root(_) => "pcie.0".to_owned(),
        }
    }

    /// Value of the property `addr`.
    #[must_use]
    pub fn addr(self) -> String {
        match self {
            Self::Port(_) => "0x0".to_owned(),
            Self::Root(at) => at.addr(),
        }
    }

    /// The address the guest sees: firmware numbers the buses behind the ports as the ports are numbered.
    #[must_use]
    pub const fn address(self) -> PciAddress {
        let (bus, slot, function) = match self {
            Self::Port(number) => (number.get(), PciSlot(0), 0),
            Self::Root(at) => (0, at.slot, at.function),
        };
        PciAddress { domain: 0, bus, slot, function }
    }
}

impl PciFunction {
    /// Value of the property `addr`: `0x2` or `0x2.0x3`.
    #[must_use]
    pub fn addr(self) -> String {
        match self.function {
            0 => format!("{:#x}", self.slot.0),
            function => format!("{:#x}.{function:#x}", self.slot.0),
        }
    }

    /// Whether QEMU needs the option for further functions in this slot.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.function == 0
    }

    /// Slot and function as the kernel packs them: `slot << 3 | function`.
    #[must_use]
    pub const fn devfn(self) -> u8 {
        self.slot.0 << 3 | self.function
    }
}

impl PortNumber {
    /// As a number, which is also the number of the bus behind the port.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// ID of the port's device.
    #[must_use]
    pub fn id(self) -> DeviceId {
        DeviceId::numbered("port", self.0.into())
    }
}

impl PciSlot {
    /// A slot.
    ///
    /// # Errors
    /// The number itself if it is above 31.
    pub const fn new(slot: u8) -> Result<Self, u8> {
        if slot < 32 { Ok(Self(slot)) } else { Err(slot) }
    }
}

impl TryFrom<u8> for PciSlot {
    type Error = String;

    fn try_from(slot: u8) -> Result<Self, String> {
        Self::new(slot).map_err(|slot| format!("PCI slot {slot} is above 31"))
    }
}

impl From<PciSlot> for u8 {
    fn from(slot: PciSlot) -> Self {
        slot.0
    }
}

impl fmt::Display for PortNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port{}", self.0)
    }
}

impl fmt::Display for PciFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}.{:x}", self.slot.0, self.function)
    }
}

impl fmt::Display for PciPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(number) => number.fmt(f),
            Self::Root(at) => write!(f, "pcie.0/{at}"),
        }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.slot.0, self.function)
    }
}

impl FromStr for PciFunction {
    type Err = PciError;

    fn from_str(text: &str) -> Result<Self, PciError> {
        let malformed = || PciError::Malformed { text: text.to_owned() };
        let (slot, function) = text.split_once('.').ok_or_else(malformed)?;
        let slot = u8::from_str_radix(slot, 16).ok().and_then(|slot| PciSlot::new(slot).ok()).ok_or_else(malformed)?;
        let function = u8::from_str_radix(function, 16).ok().filter(|&function| function < 8).ok_or_else(malformed)?;
        Ok(Self { slot, function })
    }
}

impl FromStr for PciPlace {
    type Err = PciError;

    fn from_str(text: &str) -> Result<Self, PciError> {
        if let Some(at) = text.strip_prefix("pcie.0/") {
            return at.parse().map(Self::Root);
        }
        let number = text.strip_prefix("port").and_then(|number| number.parse().ok()).filter(|&number| number > 0);
        number.map(|number| Self::Port(PortNumber(number))).ok_or_else(|| PciError::Malformed { text: text.to_owned() })
    }
}

impl FromStr for PciAddress {
    type Err = PciError;

    fn from_str(text: &str) -> Result<Self, PciError> {
        let malformed = || PciError::Malformed { text: text.to_owned() };
        let (buses, function) = text.rsplit_once(':').ok_or_else(malformed)?;
        let PciFunction { slot, function } = function.parse().map_err(|_| malformed())?;
        let (domain, bus) = buses.split_once(':').unwrap_or(("0", buses));
        Ok(Self {
            domain: u16::from_str_radix(domain, 16).map_err(|_| malformed())?,
            bus: u8::from_str_radix(bus, 16).map_err(|_| malformed())?,
            slot,
            function,
        })
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = PciError;

            fn try_from(text: String) -> Result<Self, PciError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(PciFunction);
as_text!(PciPlace);
