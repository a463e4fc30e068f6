use super::super::tests::plan;
use super::*;
use crate::observed::{Admin, LinkAddress, Route};
use proptest::prelude::*;

fn uplink(mac: &str) -> Link {
    Link {
        name: "eth0".to_owned(),
        index: 2,
        kind: Some("veth".to_owned()),
        mac: Some(mac.parse().unwrap()),
        mtu: 1450,
        admin: Admin::Up,
        controller: None,
        alias: None,
    }
}

fn address(text: &str) -> LinkAddress {
    LinkAddress { link: "eth0".to_owned(), address: text.parse().unwrap() }
}

fn route(to: &str, via: Option<&str>, origin: Origin) -> Route {
    let via = via.map(|via| via.parse().unwrap());
    Route { to: to.parse().unwrap(), via, link: "eth0".to_owned(), origin }
}

fn pod(addresses: &[&str]) -> Observed {
    Observed {
        links: vec![uplink("0a:58:0a:f4:01:07")],
        addresses: addresses.iter().map(|text| address(text)).collect(),
        routes: vec![
            route("0.0.0.0/0", Some("10.244.1.1"), Origin::Configured),
            route("10.244.1.0/24", None, Origin::Kernel),
            route("10.96.0.0/12", Some("10.244.1.1"), Origin::Configured),
        ],
    }
}

#[test]
fn masquerade_gives_the_second_address_and_the_uplinks_mtu() {
    let masquerade = plan(Binding::Masquerade(Masquerade::default()));
    let wanted = desired(&masquerade, &pod(&["10.244.1.7/24", "fd00:10:244::7/64", "fe80::1/64"])).unwrap();
    let ipv4 = wanted.guest.ipv4.unwrap();
    assert_eq!((ipv4.address.to_string().as_str(), ipv4.gateway), ("10.0.2.2/24", Some(Ipv4Addr::new(10, 0, 2, 1))));
    assert_eq!(wanted.guest.ipv6.unwrap().address.to_string(), "fd10:0:2::2");
    assert_eq!(wanted.guest.mtu, 1450);
    let addresses: Vec<String> = wanted.bridge_addresses.iter().map(IpNet::to_string).collect();
    assert_eq!(addresses, ["10.0.2.1/24", "fd10:0:2::1/120"]);
    assert_eq!(wanted.uplink, Uplink::Routed);
    assert_eq!(wanted.bridge_mac.to_string(), GATEWAY_MAC);
}

#[test]
fn masquerade_serves_the_families_the_uplink_has() {
    let masquerade = plan(Binding::Masquerade(Masquerade::default()));
    let families = |addresses: &[&str]| {
        let guest = desired(&masquerade, &pod(addresses)).unwrap().guest;
        (guest.ipv4.is_some(), guest.ipv6.is_some())
    };
    assert_eq!(families(&["10.244.1.7/24", "fe80::1/64"]), (true, false));
    assert_eq!(families(&["fd00:10:244::7/64"]), (false, true));
    assert_eq!(families(&[]), (true, false));
}

#[test]
fn a_range_that_holds_the_uplinks_address_is_refused() {
    let masquerade = plan(Binding::Masquerade(Masquerade::default()));
    let refused = desired(&masquerade, &pod(&["10.0.2.77/16"])).unwrap_err();
    assert!(matches!(refused, NetPlanError::RangeTaken { .. }), "{refused}");
}

#[test]
fn an_uplink_that_is_not_there_is_named() {
    let refused = desired(&plan(Binding::Bridge), &Observed::default()).unwrap_err();
    assert_eq!(refused.to_string(), "interface `default`: the namespace has no link `eth0` to join it to");
}

#[test]
fn bridge_hands_the_uplinks_address_gateway_and_routes_to_the_guest() {
    let wanted = desired(&plan(Binding::Bridge), &pod(&["10.244.1.7/24"])).unwrap();
    let ipv4 = wanted.guest.ipv4.unwrap();
    assert_eq!(ipv4.address.to_string(), "10.244.1.7/24");
    assert_eq!(ipv4.gateway, Some(Ipv4Addr::new(10, 244, 1, 1)));
    assert_eq!(ipv4.routes.len(), 1, "the kernel's own route to the network is not repeated");
    assert_eq!(ipv4.server, BRIDGE_SERVER);
    assert_eq!(wanted.record.as_deref(), Some("garboard 10.244.1.7/24 via 10.244.1.1 10.96.0.0/12@10.244.1.1"));
    let Uplink::Enslaved { new_mac, addresses, .. } = wanted.uplink else { panic!("not enslaved") };
    assert_eq!((new_mac, addresses.len()), (None, 1));
}

#[test]
fn bridge_changes_the_uplinks_mac_only_when_the_guest_has_the_same() {
    let same = NetPlan { mac: "0a:58:0a:f4:01:07".parse().unwrap(), ..plan(Binding::Bridge) };
    let Uplink::Enslaved { new_mac, .. } = desired(&same, &pod(&["10.244.1.7/24"])).unwrap().uplink else { panic!() };
    let new_mac = new_mac.unwrap();
    assert_ne!(new_mac, same.mac);
    assert_ne!(new_mac, desired(&same, &pod(&["10.244.1.7/24"])).unwrap().bridge_mac);
}

#[test]
fn what_the_bridge_remembers_counts_more_than_what_is_left_of_the_uplink() {
    let mut seen = pod(&[]);
    seen.routes.clear();
    let bridge = Link { name: "k6t-eth0".to_owned(), ..uplink("02:00:00:00:00:05") };
    let record = "garboard 10.244.1.7/24 via 10.244.1.1 10.96.0.0/12@10.244.1.1";
    seen.links.push(Link { alias: Some(record.to_owned()), ..bridge.clone() });
    assert_eq!(
        desired(&plan(Binding::Bridge), &seen).unwrap().guest.ipv4.unwrap().address.to_string(),
        "10.244.1.7/24"
    );
    seen.links[1] = Link { alias: Some("of another owner".to_owned()), ..bridge };
    assert!(matches!(desired(&plan(Binding::Bridge), &seen), Err(NetPlanError::Record { .. })));
}

#[test]
fn bridge_without_an_address_serves_no_guest() {
    let wanted = desired(&plan(Binding::Bridge), &pod(&["fd00::7/64"])).unwrap();
    assert_eq!((wanted.guest.ipv4, wanted.guest.ipv6, wanted.record), (None, None, None));
    assert!(wanted.bridge_addresses.is_empty());
}

#[test]
fn more_routes_than_an_alias_holds_are_refused_with_their_number() {
    let mut seen = pod(&["10.244.1.7/24"]);
    seen.routes.extend((0..20).map(|n| route(&format!("10.{n}.0.0/16"), Some("10.244.1.1"), Origin::Configured)));
    let refused = desired(&plan(Binding::Bridge), &seen).unwrap_err();
    assert!(matches!(refused, NetPlanError::TooManyRoutes { routes: 21, .. }), "{refused}");
}

fn any_net() -> impl Strategy<Value = Ipv4Net> {
    (any::<u32>(), 0u8..=32).prop_map(|(address, prefix)| Ipv4Net::new(address.into(), prefix).unwrap())
}

proptest! {
    #[test]
    fn a_record_survives_its_text(
        address in any_net(),
        gateway in proptest::option::of(any::<u32>().prop_map(Ipv4Addr::from)),
        routes in proptest::collection::vec((any_net(), proptest::option::of(any::<u32>().prop_map(Ipv4Addr::from))), 0..6),
    ) {
        let routes = routes.into_iter().map(|(to, via)| GuestRoute { to, via }).collect();
        let record = Record { address, gateway, routes };
        prop_assert_eq!(Record::parse(&record.to_string()), Some(record));
    }

    #[test]
    fn any_alias_is_read_or_refused_without_harm(text in ".{0,300}") {
        let _ = Record::parse(&text);
    }
}
