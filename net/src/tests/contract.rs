//! What the crate relies on of a kernel, asked of the fake and of the real one.

use std::io::ErrorKind;

use super::{once_free, real};
use crate::error::NetError;
use crate::names::LinkName;
use crate::observed::{Admin, Origin, Route};
use crate::plan::ruleset::{Chain, Hook, Rule, Ruleset};
use crate::seam::{LinkChange, Namespace, Service, Sysctl};
use crate::testing::{FakeHost, root_or_skip};

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn kind<T: std::fmt::Debug>(outcome: Result<T, NetError>) -> ErrorKind {
    let error = outcome.unwrap_err();
    let (NetError::Netlink { source, .. } | NetError::Sysctl { source, .. }) = error else { panic!("{error:?}") };
    source.kind()
}

async fn bridges_are_made_once_and_keep_what_they_are_given<N: Namespace>(here: &N) {
    let (bridge, mac) = (name("k6t-eth0"), "02:67:62:00:00:01".parse().unwrap());
    here.add_bridge(&bridge, mac, 1400).await.unwrap();
    assert_eq!(kind(here.add_bridge(&bridge, mac, 1400).await), ErrorKind::AlreadyExists);
    let seen = here.observe().await.unwrap();
    let link = seen.link("k6t-eth0").unwrap();
    assert_eq!((link.kind.as_deref(), link.mac, link.mtu, link.admin), (Some("bridge"), Some(mac), 1400, Admin::Down));
    here.change_link(&bridge, &LinkChange::Alias("garboard 1".to_owned())).await.unwrap();
    let port = here.open_tap(&name("tap0"), 1).await.unwrap();
    here.change_link(&name("tap0"), &LinkChange::Port(bridge.clone())).await.unwrap();
    assert_eq!(here.observe().await.unwrap().link("k6t-eth0").unwrap().mtu, 1400, "although its port has 1500");
    drop(port);
    drop(once_free(async || here.open_tap(&name("tap0"), 1).await).await);
    assert_eq!(here.observe().await.unwrap().link("k6t-eth0").unwrap().mtu, 1400, "although its port is gone");
    here.change_link(&bridge, &LinkChange::Mtu(1300)).await.unwrap();
    let seen = here.observe().await.unwrap();
    let link = seen.link("k6t-eth0").unwrap();
    assert_eq!((link.alias.as_deref(), link.mtu), (Some("garboard 1"), 1300));
    here.delete_link(&bridge).await.unwrap();
    assert_eq!(kind(here.delete_link(&bridge).await), ErrorKind::NotFound);
}

async fn a_veth_pair_spans_namespaces_and_dies_at_both_ends<N: Namespace>(here: &N, there: &N) {
    let (near, far) = (name("gb0"), name("eth0"));
    here.add_veth(&near, there, &far, 1400).await.unwrap();
    assert_eq!(kind(here.add_veth(&near, there, &name("eth9"), 1400).await), ErrorKind::AlreadyExists);
    let seen = there.observe().await.unwrap();
    let link = seen.link("eth0").unwrap();
    assert_eq!((link.kind.as_deref(), link.mtu, link.admin), (Some("veth"), 1400, Admin::Down));
    assert!(here.observe().await.unwrap().link("eth0").is_none());
    there.delete_link(&far).await.unwrap();
    assert!(here.observe().await.unwrap().link("gb0").is_none());
}

async fn addresses_bring_routes_when_the_link_is_up<N: Namespace>(here: &N, there: &N) {
    let (near, far) = (name("gb0"), name("eth0"));
    here.add_veth(&near, there, &far, 1500).await.unwrap();
    let address = "192.0.2.1/24".parse().unwrap();
    here.add_address(&near, address).await.unwrap();
    assert_eq!(kind(here.add_address(&near, address).await), ErrorKind::AlreadyExists);
    let outside = Route {
        to: "0.0.0.0/0".parse().unwrap(),
        via: Some("192.0.2.9".parse().unwrap()),
        link: "gb0".to_owned(),
        origin: Origin::Configured,
    };
    assert!(here.add_route(&outside).await.is_err(), "the link is down");
    here.change_link(&near, &LinkChange::Up).await.unwrap();
    there.change_link(&far, &LinkChange::Up).await.unwrap();
    here.add_route(&outside).await.unwrap();
    assert_eq!(kind(here.add_route(&outside).await), ErrorKind::AlreadyExists);
    let unreachable =
        Route { to: "203.0.113.0/24".parse().unwrap(), via: Some("198.51.100.1".parse().unwrap()), ..outside.clone() };
    assert!(here.add_route(&unreachable).await.is_err());
    let routes = here.observe().await.unwrap().routes;
    assert!(routes.contains(&outside), "{routes:?}");
    let connected = Route { to: "192.0.2.0/24".parse().unwrap(), via: None, origin: Origin::Kernel, ..outside.clone() };
    assert!(routes.contains(&connected), "{routes:?}");
    here.delete_address(&near, address).await.unwrap();
    assert_eq!(kind(here.delete_address(&near, address).await), ErrorKind::AddrNotAvailable);
    let routes = here.observe().await.unwrap().routes;
    assert!(!routes.iter().any(|route| route.to.addr().is_ipv4()), "{routes:?}");
    here.delete_link(&near).await.unwrap();
}

async fn a_link_set_down_loses_its_routes<N: Namespace>(here: &N, there: &N) {
    let (near, far) = (name("gb0"), name("eth0"));
    here.add_veth(&near, there, &far, 1500).await.unwrap();
    for address in ["192.0.2.1/24", "fd00::1/64"] {
        here.add_address(&near, address.parse().unwrap()).await.unwrap();
    }
    here.change_link(&near, &LinkChange::Up).await.unwrap();
    there.change_link(&far, &LinkChange::Up).await.unwrap();
    assert!(here.observe().await.unwrap().routes.iter().any(|route| route.to == "fd00::/64".parse().unwrap()));
    here.change_setting(&Sysctl::DisableIpv6(near.clone()), "1").await.unwrap();
    let seen = here.observe().await.unwrap();
    assert_eq!(seen.addresses_of("gb0").count(), 1, "no IPv6 is left");
    assert!(here.add_address(&near, "fd00::1/64".parse().unwrap()).await.is_err());
    here.change_link(&near, &LinkChange::Down).await.unwrap();
    let seen = here.observe().await.unwrap();
    assert!(seen.routes.iter().all(|route| route.link != "gb0"), "{:?}", seen.routes);
    assert_eq!(seen.addresses_of("gb0").count(), 1);
    here.delete_link(&near).await.unwrap();
}

async fn settings_belong_to_links_and_go_with_them<N: Namespace>(here: &N) {
    let bridge = name("k6t-eth0");
    let setting = Sysctl::AcceptRa(bridge.clone());
    assert_eq!(here.setting(&setting).await.unwrap(), None);
    assert_eq!(kind(here.change_setting(&setting, "0").await), ErrorKind::NotFound);
    here.add_bridge(&bridge, "02:67:62:00:00:01".parse().unwrap(), 1500).await.unwrap();
    here.change_setting(&setting, "0").await.unwrap();
    assert_eq!(here.setting(&setting).await.unwrap().as_deref(), Some("0"));
    for value in ["1", "0"] {
        here.change_setting(&Sysctl::Ipv4Forwarding, value).await.unwrap();
        assert_eq!(here.setting(&Sysctl::Ipv4Forwarding).await.unwrap().as_deref(), Some(value));
    }
    here.delete_link(&bridge).await.unwrap();
    assert_eq!(here.setting(&setting).await.unwrap(), None);
}

async fn a_tap_lives_as_long_as_its_descriptors<N: Namespace>(here: &N) {
    let (bridge, tap) = (name("k6t-eth0"), name("tap0"));
    here.add_bridge(&bridge, "02:67:62:00:00:01".parse().unwrap(), 1500).await.unwrap();
    for queues in [1, 4] {
        let opened = here.open_tap(&tap, queues).await.unwrap();
        assert_eq!(opened.len(), usize::from(queues));
        assert!(matches!(here.open_tap(&tap, queues).await, Err(NetError::TapHeld { .. })));
        here.change_link(&tap, &LinkChange::Port(bridge.clone())).await.unwrap();
        let seen = here.observe().await.unwrap();
        let link = seen.link("tap0").unwrap();
        assert_eq!((link.kind.as_deref(), link.controller.as_deref()), (Some("tun"), Some("k6t-eth0")));
        drop(opened);
        drop(once_free(async || here.open_tap(&tap, queues).await).await);
    }
    here.delete_link(&bridge).await.unwrap();
}

async fn sockets_need_their_bridge<N: Namespace>(here: &N) {
    let bridge = name("k6t-eth0");
    for kind in [Service::Dhcp4, Service::Dhcp6, Service::RouterAdvertisement] {
        assert!(matches!(here.open_socket(kind, &bridge).await, Err(NetError::Socket { .. })), "{kind:?}");
    }
    here.add_bridge(&bridge, "02:67:62:00:00:01".parse().unwrap(), 1500).await.unwrap();
    here.change_link(&bridge, &LinkChange::Up).await.unwrap();
    for kind in [Service::Dhcp4, Service::Dhcp6, Service::RouterAdvertisement] {
        here.open_socket(kind, &bridge).await.unwrap();
    }
    here.delete_link(&bridge).await.unwrap();
}

async fn tables_are_replaced_and_outlined<N: Namespace>(here: &N) {
    let ruleset = |texts: &[&str]| Ruleset {
        table: "garboard_contract-1".to_owned(),
        chains: vec![
            Chain { name: "JUMPED", hook: None, rules: vec![] },
            Chain {
                name: "forward",
                hook: Some(Hook::FilterForward),
                rules: texts.iter().map(|text| Rule::new("guest's rule", (*text).to_owned())).collect(),
            },
        ],
    };
    assert_eq!(here.outline("garboard_contract-1").await.unwrap(), None);
    for texts in [&["drop"][..], &["accept", "jump JUMPED"]] {
        here.replace(&ruleset(texts)).await.unwrap();
        assert_eq!(here.outline("garboard_contract-1").await.unwrap(), Some(ruleset(texts).outline()));
    }
    here.delete_table("garboard_contract-1").await.unwrap();
    assert_eq!(here.outline("garboard_contract-1").await.unwrap(), None);
    here.delete_table("garboard_contract-1").await.unwrap();
}

async fn whole_contract<N: Namespace>(here: &N, there: &N) {
    bridges_are_made_once_and_keep_what_they_are_given(here).await;
    a_veth_pair_spans_namespaces_and_dies_at_both_ends(here, there).await;
    addresses_bring_routes_when_the_link_is_up(here, there).await;
    a_link_set_down_loses_its_routes(here, there).await;
    settings_belong_to_links_and_go_with_them(here).await;
    a_tap_lives_as_long_as_its_descriptors(here).await;
    sockets_need_their_bridge(here).await;
    tables_are_replaced_and_outlined(here).await;
}

#[tokio::test]
async fn the_fake_keeps_the_contract() {
    let host = FakeHost::new();
    whole_contract(&host.namespace(), &host.namespace()).await;
}

#[tokio::test]
async fn the_kernel_keeps_the_contract() {
    if !root_or_skip("the_kernel_keeps_the_contract") {
        return;
    }
    whole_contract(&real(), &real()).await;
}
