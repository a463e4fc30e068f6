//! The allocation of places.

use std::collections::BTreeMap;

use super::{PciAddress, PciError, PciFunction, PciMap, PciPlace, PciSlot, PortNumber, RootPort};
use crate::id::DeviceId;

/// Which place a device requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A root port of its own.
    Port,
    /// A root port among those of the network interfaces.
    InterfacePort,
    /// The root complex: a conventional PCI device, or one that a guest expects there.
    RootComplex,
    /// Slot 1 of the root complex, where firmware and guests look for the first screen.
    Graphics,
    /// Exactly here.
    Exactly(PciAddress),
}

/// Slots that ports and conventional devices share.
const FIRST_FREE_SLOT: u8 = 2;
const LAST_FREE_SLOT: u8 = 0x1e;
const GRAPHICS_SLOT: u8 = 1;

/// The most root ports: every function of every free slot.
pub const MAX_PORTS: u8 = (LAST_FREE_SLOT - FIRST_FREE_SLOT + 1) * 8;

/// Network interfaces and ports kept for them together, at least.
const INTERFACE_PORTS: usize = 4;

/// Guests above this get more spare ports, bytes.
const BIG_GUEST_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// How many free ports a VM keeps for hot plug when `in_use` are taken: KubeVirt's third PCI topology.
#[must_use]
pub fn spare_ports(in_use: usize, guest_memory_bytes: u64) -> usize {
    let (total, least) = if guest_memory_bytes > BIG_GUEST_BYTES { (16, 6) } else { (8, 3) };
    usize::saturating_sub(total, in_use).max(least)
}

/// Gives places to devices, in the order in which it is asked.
#[derive(Clone, Debug)]
pub struct PciAllocator {
    ports: Vec<RootPort>,
    /// Places of the stored map whose devices may still come.
    stored: BTreeMap<DeviceId, PciPlace>,
    placed: BTreeMap<DeviceId, PciPlace>,
    is_new: bool,
}

impl PciAllocator {
    /// Starts from the map a VM had at its last start, or from nothing.
    #[must_use]
    pub fn new(stored: Option<&PciMap>) -> Self {
        let is_new = stored.is_none();
        let map = stored.cloned().unwrap_or_default();
        Self { ports: map.ports, stored: map.devices, placed: BTreeMap::new(), is_new }
    }

    /// Lets go of the stored places of devices that will not come back to them.
    pub fn free(&mut self, is_gone: impl Fn(&DeviceId) -> bool) {
        self.stored.retain(|device, _| !is_gone(device));
    }

    /// The place of `device`: the one it had, else a free one.
    ///
    /// # Errors
    /// [`PciError`] if the place it requests is taken or there is none left.
    pub fn place(&mut self, device: &DeviceId, placement: Placement) -> Result<PciPlace, PciError> {
        let place = match (placement, self.stored.get(device)) {
            (Placement::Exactly(address), _) => self.exact_place(device, address)?,
            (
                Placement::Port | Placement::InterfacePort | Placement::RootComplex | Placement::Graphics,
                Some(&place),
            ) => place,
            (Placement::Port, None) => PciPlace::Port(self.free_port(device, false)?),
            (Placement::InterfacePort, None) => PciPlace::Port(self.free_port(device, true)?),
            (Placement::RootComplex, None) => PciPlace::Root(self.free_slot(device)?),
            (Placement::Graphics, None) => PciPlace::Root(PciFunction { slot: PciSlot(GRAPHICS_SLOT), function: 0 }),
        };
        if let Some(owner) = self.owner(place, device) {
            return Err(PciError::Taken { device: device.clone(), place, owner: owner.clone() });
        }
        self.placed.insert(device.clone(), place);
        Ok(place)
    }

    /// Keeps ports for later interfaces directly behind those of the present ones. Only a new machine gets them:
    /// between the ports of an old one there is no room.
    ///
    /// # Errors
    /// [`PciError::Full`].
    pub fn keep_interface_ports(&mut self) -> Result<(), PciError> {
        while self.is_new && self.ports.iter().filter(|port| port.for_interfaces).count() < INTERFACE_PORTS {
            self.append_port(true).ok_or_else(|| PciError::Full { device: DeviceId::constant("spare") })?;
        }
        Ok(())
    }

    /// The finished map. `spare` free ports are kept for hot plug, as many as still fit.
    #[must_use]
    pub fn finish(mut self, spare: impl FnOnce(usize) -> usize) -> PciMap {
        let is_free = |this: &Self, port: &RootPort| {
            !port.for_interfaces && !this.placed.values().any(|&place| place == PciPlace::Port(port.number))
        };
        let free = self.ports.iter().filter(|port| is_free(&self, port)).count();
        let wanted = spare(self.ports.len() - free);
        for _ in free..wanted {
            if self.append_port(false).is_none() {
                break;
            }
        }
        PciMap { ports: self.ports, devices: self.placed }
    }

    fn owner(&self, place: PciPlace, besides: &DeviceId) -> Option<&DeviceId> {
        self.placed.iter().chain(&self.stored).find(|&(id, &taken)| taken == place && id != besides).map(|(id, _)| id)
    }

    fn is_taken(&self, place: PciPlace) -> bool {
        self.placed.values().chain(self.stored.values()).any(|&taken| taken == place)
    }

    fn free_port(&mut self, device: &DeviceId, for_interface: bool) -> Result<PortNumber, PciError> {
        let free = |port: &&RootPort| !self.is_taken(PciPlace::Port(port.number));
        let kept = self.ports.iter().filter(free).find(|port| port.for_interfaces == for_interface);
        if let Some(port) = kept {
            return Ok(port.number);
        }
        if for_interface
            && !self.is_new
            && let Some(port) = self.ports.iter().find(free)
        {
            return Ok(port.number);
        }
        self.append_port(for_interface).ok_or_else(|| PciError::Full { device: device.clone() })
    }

    /// The next port, behind all others so that no bus number changes.
    fn append_port(&mut self, for_interfaces: bool) -> Option<PortNumber> {
        let number = PortNumber(u8::try_from(self.ports.len() + 1).ok()?);
        let at = match self.ports.last() {
            Some(RootPort { at, .. }) if at.function < 7 => PciFunction { slot: at.slot, function: at.function + 1 },
            last => {
                let after = last.map_or(FIRST_FREE_SLOT, |port| port.at.slot.0 + 1);
                let slot = (after..=LAST_FREE_SLOT).map(PciSlot).find(|&slot| !self.is_slot_taken(slot))?;
                PciFunction { slot, function: 0 }
            }
        };
        self.ports.push(RootPort { number, at, for_interfaces });
        Some(number)
    }

    fn free_slot(&self, device: &DeviceId) -> Result<PciFunction, PciError> {
        (FIRST_FREE_SLOT..=LAST_FREE_SLOT)
            .rev()
            .map(PciSlot)
            .find(|&slot| !self.is_slot_taken(slot))
            .map(|slot| PciFunction { slot, function: 0 })
            .ok_or_else(|| PciError::Full { device: device.clone() })
    }

    fn is_slot_taken(&self, slot: PciSlot) -> bool {
        let by_device = |place: &PciPlace| matches!(place, PciPlace::Root(at) if at.slot == slot);
        self.placed.values().chain(self.stored.values()).any(by_device)
            || self.ports.iter().any(|port| port.at.slot == slot)
    }

    fn exact_place(&mut self, device: &DeviceId, address: PciAddress) -> Result<PciPlace, PciError> {
        let unreachable = |why| PciError::Unreachable { address, why };
        if address.domain != 0 {
            return Err(unreachable("the only PCI domain is 0000"));
        }
        if address.function != 0 {
            return Err(unreachable("devices have one function, .0"));
        }
        if address.bus != 0 {
            if address.slot.0 != 0 {
                return Err(unreachable("a device behind a PCIe root port is in slot 00 of its bus"));
            }
            while self.ports.len() < usize::from(address.bus) {
                self.append_port(false).ok_or_else(|| PciError::Full { device: device.clone() })?;
            }
            return Ok(PciPlace::Port(PortNumber(address.bus)));
        }
        if !(GRAPHICS_SLOT..=LAST_FREE_SLOT).contains(&address.slot.0) {
            return Err(unreachable("slots 00 and 1f of bus 00 belong to the chipset"));
        }
        if self.ports.iter().any(|port| port.at.slot == address.slot) {
            return Err(unreachable("root ports are in that slot of bus 00"));
        }
        Ok(PciPlace::Root(PciFunction { slot: address.slot, function: 0 }))
    }
}
