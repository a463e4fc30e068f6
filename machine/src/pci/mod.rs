//! PCI topology of q35 and where each device is in it.
//!
//! ```text
//!  pcie.0 ┬ 00.0 host bridge            (QEMU's)
//!         ├ 01.0 graphics               Placement::Graphics
//!         ├ 02.0 … root ports 1, 2, 3 … eight to a slot, each with one device (Placement::Port, Placement::InterfacePort)
//!         ├ … 1e.0 conventional devices, from the top down (Placement::RootComplex)
//!         └ 1f.x ISA bridge, SATA, SMBus (QEMU's)
//! ```
//!
//! A guest remembers addresses: network names, boot entries and Windows' drivers hang on them. So a [`PciMap`] is
//! stored with the VM and honoured: a device that is in it stays where it is, a new one takes a free place, and ports
//! are only ever appended, so that firmware numbers the buses behind the old ones as before (bus N is port N).

mod allocate;
mod place;
#[cfg(test)]
mod tests;

pub use allocate::{MAX_PORTS, PciAllocator, Placement, spare_ports};
pub use place::{PciAddress, PciFunction, PciPlace, PciSlot, PortNumber};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::DeviceId;
use crate::tolerant;

/// One root port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootPort {
    /// Its number.
    pub number: PortNumber,
    /// Where it is.
    pub at: PciFunction,
    /// Kept for network interfaces, so that their names in the guest stay in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_interfaces: bool,
}

/// The whole topology of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PciMap {
    /// By number, ascending without gaps.
    #[serde(deserialize_with = "tolerant::each")]
    pub ports: Vec<RootPort>,
    /// Every device that has a place.
    #[serde(deserialize_with = "tolerant::entries")]
    pub devices: BTreeMap<DeviceId, PciPlace>,
}

/// Why a device has no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PciError {
    /// Not an address.
    #[error("`{text}` is no PCI address; write it like 0000:05:00.0")]
    Malformed {
        /// The text.
        text: String,
    },
    /// An address this topology cannot have.
    #[error("there is no {address} on this machine: {why}")]
    Unreachable {
        /// The address.
        address: PciAddress,
        /// What there is.
        why: &'static str,
    },
    /// Two devices at one place.
    #[error("`{device}` requests {place}, which belongs to `{owner}`")]
    Taken {
        /// The device that requests it.
        device: DeviceId,
        /// What.
        place: PciPlace,
        /// The device that has it.
        owner: DeviceId,
    },
    /// No place is left.
    #[error("`{device}` has no free place: the machine has its {MAX_PORTS} PCIe ports and all slots in use")]
    Full {
        /// The device that requests one.
        device: DeviceId,
    },
}

impl PciMap {
    /// The place of `device`.
    #[must_use]
    pub fn get(&self, device: &DeviceId) -> Option<PciPlace> {
        self.devices.get(device).copied()
    }

    /// Ports without a device, those kept for interfaces last.
    pub fn free_ports(&self) -> impl Iterator<Item = &RootPort> {
        let is_free = |port: &&RootPort| !self.devices.values().any(|&place| place == PciPlace::Port(port.number));
        let plain = self.ports.iter().filter(|port| !port.for_interfaces).filter(is_free);
        plain.chain(self.ports.iter().filter(|port| port.for_interfaces).filter(is_free))
    }
}
