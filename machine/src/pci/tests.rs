//! The topology's guarantees, by example and for every sequence of requests.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn id(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn fresh(nics: usize, others: usize) -> PciMap {
    let mut pci = PciAllocator::new(None);
    for nic in 0..nics {
        pci.place(&id(&format!("nic-{nic}")), Placement::InterfacePort).unwrap();
    }
    pci.keep_interface_ports().unwrap();
    for other in 0..others {
        pci.place(&id(&format!("disk-{other}")), Placement::Port).unwrap();
    }
    pci.place(&id("video"), Placement::Graphics).unwrap();
    pci.finish(|in_use| spare_ports(in_use, 1 << 30))
}

#[test]
fn interfaces_come_first_and_room_for_more_is_kept_behind_them() {
    let map = fresh(1, 2);
    assert_eq!(map.get(&id("nic-0")).unwrap().to_string(), "port1");
    assert_eq!(map.get(&id("nic-0")).unwrap().address().to_string(), "0000:01:00.0");
    assert_eq!(map.get(&id("video")).unwrap().address().to_string(), "0000:00:01.0");
    assert_eq!(map.get(&id("disk-0")).unwrap().to_string(), "port5");
    assert_eq!(map.get(&id("video")).unwrap().to_string(), "pcie.0/01.0");
    assert_eq!(map.ports.iter().filter(|port| port.for_interfaces).count(), 4);
    // Six are in use or kept, so three are spare.
    assert_eq!(map.ports.len(), 9);
    assert_eq!(map.ports[8].at.addr(), "0x3");
    assert_eq!(map.ports[7].at.addr(), "0x2.0x7");
}

#[test]
fn a_later_interface_takes_a_port_kept_for_it() {
    let map = fresh(1, 2);
    let mut pci = PciAllocator::new(Some(&map));
    assert_eq!(pci.place(&id("nic-0"), Placement::InterfacePort).unwrap().to_string(), "port1");
    assert_eq!(pci.place(&id("nic-new"), Placement::InterfacePort).unwrap().to_string(), "port2");
    assert_eq!(pci.place(&id("disk-new"), Placement::Port).unwrap().to_string(), "port7");
}

#[test]
fn a_device_that_is_gone_frees_its_port_at_the_next_start() {
    let map = fresh(1, 2);
    let mut pci = PciAllocator::new(Some(&map));
    pci.place(&id("disk-1"), Placement::Port).unwrap();
    let second = pci.finish(|_| 0);
    assert_eq!(second.ports, map.ports);
    let mut pci = PciAllocator::new(Some(&second));
    assert_eq!(pci.place(&id("disk-9"), Placement::Port).unwrap().to_string(), "port5");
}

#[test]
fn an_exact_address_is_the_bus_the_guest_will_see() {
    let mut pci = PciAllocator::new(None);
    let at = |text: &str| Placement::Exactly(text.parse().unwrap());
    assert_eq!(pci.place(&id("a"), at("0000:03:00.0")).unwrap().to_string(), "port3");
    assert_eq!(pci.place(&id("b"), at("00:1d.0")).unwrap().to_string(), "pcie.0/1d.0");
    assert_eq!(pci.place(&id("c"), Placement::Port).unwrap().to_string(), "port1");
    assert!(matches!(pci.place(&id("d"), at("0000:03:00.0")), Err(PciError::Taken { .. })));
    for impossible in ["0001:00:05.0", "0000:04:01.0", "0000:00:1f.0", "0000:00:05.1", "0000:00:02.0"] {
        assert!(matches!(pci.place(&id("e"), at(impossible)), Err(PciError::Unreachable { .. })), "{impossible}");
    }
}

#[test]
fn a_place_that_was_freed_may_be_asked_for_by_its_address() {
    let map = fresh(1, 3);
    let at = Placement::Exactly("0000:07:00.0".parse().unwrap());
    let mut pci = PciAllocator::new(Some(&map));
    assert!(matches!(pci.place(&id("disk-new"), at), Err(PciError::Taken { .. })));
    pci.free(|device| *device == id("disk-2"));
    assert_eq!(pci.place(&id("disk-new"), at).unwrap().to_string(), "port7");
    assert_eq!(pci.place(&id("disk-1"), Placement::Port).unwrap().to_string(), "port6");
}

#[test]
fn addresses_that_are_none_are_refused() {
    for text in ["", "0000", "0000:00", "0000:00:20.0", "0000:00:01.8", "x:00:01.0", "0000:100:01.0"] {
        assert!(text.parse::<PciAddress>().is_err(), "{text}");
    }
}

#[test]
fn a_full_machine_is_an_error() {
    let mut pci = PciAllocator::new(None);
    for device in 0..u32::from(MAX_PORTS) {
        pci.place(&DeviceId::numbered("d", device), Placement::Port).unwrap();
    }
    assert!(matches!(pci.place(&id("more"), Placement::Port), Err(PciError::Full { .. })));
    assert!(matches!(pci.place(&id("more"), Placement::RootComplex), Err(PciError::Full { .. })));
}

#[test]
fn spare_ports_follow_the_size_of_the_guest() {
    let big = 4 << 30;
    let table = [(0, 1, 8), (5, 1, 3), (20, 1, 3), (0, big, 16), (12, big, 6)];
    for (in_use, memory, expected) in table {
        assert_eq!(spare_ports(in_use, memory), expected, "{in_use} {memory}");
    }
}

fn requests() -> impl Strategy<Value = Vec<(u16, Placement)>> {
    let placement = prop_oneof![Just(Placement::Port), Just(Placement::InterfacePort), Just(Placement::RootComplex)];
    proptest::collection::vec((0_u16..60, placement), 0..50)
}

fn plan(stored: Option<&PciMap>, requests: &[(u16, Placement)]) -> PciMap {
    let mut pci = PciAllocator::new(stored);
    let mut seen = BTreeSet::new();
    for (number, placement) in requests {
        if seen.insert(number) && pci.place(&id(&format!("d{number}")), *placement).is_err() {
            break;
        }
    }
    pci.finish(|in_use| spare_ports(in_use, 0))
}

proptest! {
    #[test]
    fn no_two_devices_share_a_place(requests in requests()) {
        let map = plan(None, &requests);
        let places: BTreeSet<_> = map.devices.values().collect();
        prop_assert_eq!(places.len(), map.devices.len());
        let functions: BTreeSet<_> = map.ports.iter().map(|port| port.at.devfn()).collect();
        prop_assert_eq!(functions.len(), map.ports.len());
        for place in map.devices.values() {
            match place {
                PciPlace::Root(at) => prop_assert!(map.ports.iter().all(|port| port.at.slot != at.slot)),
                PciPlace::Port(number) => prop_assert!(map.ports.iter().any(|port| port.number == *number)),
            }
        }
    }

    #[test]
    fn ports_are_numbered_in_the_order_firmware_finds_them(requests in requests()) {
        let map = plan(None, &requests);
        prop_assert!(map.ports.windows(2).all(|pair| pair[0].at < pair[1].at));
        prop_assert!(map.ports.iter().zip(1..).all(|(port, number)| port.number.get() == number));
        // Function 0 of a slot must exist, else firmware skips the slot.
        for port in &map.ports {
            prop_assert!(map.ports.iter().any(|first| first.at.slot == port.at.slot && first.at.is_first()));
        }
    }

    #[test]
    fn what_is_stored_never_moves(first in requests(), second in requests()) {
        let before = plan(None, &first);
        let after = plan(Some(&before), &second);
        prop_assert!(after.ports.starts_with(&before.ports));
        for (device, place) in &after.devices {
            if let Some(old) = before.devices.get(device) {
                prop_assert_eq!(old, place);
            }
        }
        // A start for which there is no room stores nothing.
        if second.iter().all(|(number, _)| after.devices.contains_key(&id(&format!("d{number}")))) {
            let again = plan(Some(&after), &second);
            prop_assert_eq!(again, after);
        }
    }

    #[test]
    fn a_map_survives_serde(requests in requests()) {
        let map = plan(None, &requests);
        let json = serde_json::to_string(&map).unwrap();
        prop_assert_eq!(serde_json::from_str::<PciMap>(&json).unwrap(), map);
    }
}
