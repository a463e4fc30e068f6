//! Plumbing and the uplink, step by step, on the fake and on the real kernel: a second run changes nothing, a
//! failure anywhere leaves what was there before.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{faulty, once_free, real, snapshot};
use crate::ensure::Ensured;
use crate::error::NetError;
use crate::names::VmNetId;
use crate::observed::{Origin, Route};
use crate::plan::masquerade::TABLE;
use crate::plan::{Binding, Masquerade, NetPlan, NetPlanError};
use crate::plumb::{Plumbed, plumb_in, sockets_in};
use crate::seam::{LinkChange, Links, Namespace, Nft, Sysctl};
use crate::testing::{FakeHost, Faulty, root_or_skip};
use crate::uplink::{HostUplink, Removed, UplinkRequest, ensure_in, remove_in};

/// More changes than any path here makes.
const PLENTY: usize = 1000;

fn plan(binding: Binding) -> NetPlan {
    NetPlan {
        interface: "default".to_owned(),
        uplink: "eth0".parse().unwrap(),
        bridge: "k6t-eth0".parse().unwrap(),
        tap: "tap0".parse().unwrap(),
        mac: "02:00:00:aa:bb:01".parse().unwrap(),
        mtu: None,
        queues: 2,
        binding,
    }
}

fn bindings() -> [Binding; 2] {
    [Binding::Masquerade(Masquerade::default()), Binding::Bridge]
}

fn request(id: &str) -> UplinkRequest {
    UplinkRequest { id: id.parse().unwrap(), uplink: "eth0".parse().unwrap(), avoid: Vec::new() }
}

/// A host with an address, a way out and IPv6.
async fn connect_to_world<N: Namespace>(host: &N, world: &N) {
    let (eth0, far) = ("eth0".parse().unwrap(), "host0".parse().unwrap());
    host.add_veth(&eth0, world, &far, 1400).await.unwrap();
    for address in ["192.0.2.2/24", "2001:db8::2/64"] {
        host.add_address(&eth0, address.parse().unwrap()).await.unwrap();
    }
    host.change_link(&eth0, &LinkChange::Up).await.unwrap();
    world.change_link(&far, &LinkChange::Up).await.unwrap();
    let to = "0.0.0.0/0".parse().unwrap();
    let via = Some("192.0.2.1".parse().unwrap());
    host.add_route(&Route { to, via, link: "eth0".to_owned(), origin: Origin::Configured }).await.unwrap();
}

async fn everything_twice<N: Namespace>(host: &N, vm: &N, world: &N) {
    connect_to_world(host, world).await;
    let before = snapshot(host, &["garboard_vm-1"]).await;
    let request = request("vm-1");
    let first = ensure_in(host, vm, &request).await.unwrap();
    assert_eq!((first.outcome, first.mtu), (Ensured::Created, 1400));
    assert!(first.guest6.is_some() && first.obstacles.is_empty(), "{first:?}");
    let second = ensure_in(host, vm, &request).await.unwrap();
    assert_eq!(second, HostUplink { outcome: Ensured::AlreadySo, ..first.clone() });
    plumb_twice(vm, &plan(Binding::Masquerade(Masquerade::default()))).await;
    assert_eq!(ensure_in(host, vm, &request).await.unwrap().outcome, Ensured::AlreadySo);
    assert_eq!(remove_in(host, &request.id).await.unwrap(), Removed::Removed);
    assert_eq!(remove_in(host, &request.id).await.unwrap(), Removed::AlreadyAbsent);
    assert_eq!(snapshot(host, &["garboard_vm-1"]).await, before);
}

async fn plumb_twice<N: Namespace>(vm: &N, plan: &NetPlan) {
    let plans = std::slice::from_ref(plan);
    let first = plumb_in(vm, plans).await.unwrap();
    let interface = &first.interfaces[0];
    assert_eq!((interface.outcome, interface.taps.len()), (Ensured::Created, 2));
    assert!(interface.guest.ipv4.is_some());
    let held = plumb_in(vm, plans).await.unwrap_err();
    assert!(matches!(held.cause(), NetError::TapHeld { .. }), "{held}");
    assert!(held.left().is_empty());
    let another = NetPlan { tap: "tap7".parse().unwrap(), ..plan.clone() };
    let taken = plumb_in(vm, std::slice::from_ref(&another)).await.unwrap_err();
    assert!(matches!(taken.cause(), NetError::Plan(NetPlanError::BridgeTaken { tap, .. }) if tap == "tap0"), "{taken}");
    let guest = interface.guest.clone();
    drop(first);
    let second = once_free(async || plumb_in(vm, plans).await).await;
    assert_eq!((second.interfaces[0].outcome, &second.interfaces[0].guest), (Ensured::AlreadySo, &guest));
    drop_sockets_and_open_them_again(vm, plans, second).await;
}

async fn drop_sockets_and_open_them_again<N: Namespace>(vm: &N, plans: &[NetPlan], mut plumbed: Plumbed) {
    let guest = plumbed.interfaces[0].guest.clone();
    drop(std::mem::take(&mut plumbed.interfaces[0].sockets));
    let again = once_free(async || sockets_in(vm, plans).await).await;
    let (sockets, received) = &again[0];
    assert_eq!(received, &guest);
    assert_eq!((sockets.dhcp4.is_some(), sockets.dhcp6.is_some()), (guest.ipv4.is_some(), guest.ipv6.is_some()));
    assert_eq!(sockets.router_advertisement.is_some(), guest.ipv6.is_some());
}

#[tokio::test]
async fn on_the_fake_everything_may_run_twice() {
    let host = FakeHost::new();
    everything_twice(&host.namespace(), &host.namespace(), &host.namespace()).await;
}

#[tokio::test]
async fn on_the_kernel_everything_may_run_twice() {
    if !root_or_skip("on_the_kernel_everything_may_run_twice") {
        return;
    }
    everything_twice(&real(), &real(), &real()).await;
}

async fn bridge_twice<N: Namespace>(host: &N, vm: &N, world: &N) {
    connect_to_world(host, world).await;
    let uplink = ensure_in(host, vm, &request("vm-1")).await.unwrap();
    plumb_twice(vm, &plan(Binding::Bridge)).await;
    let plumbed = once_free(async || plumb_in(vm, &[plan(Binding::Bridge)]).await).await;
    let lease = plumbed.interfaces[0].guest.ipv4.clone().unwrap();
    assert_eq!((lease.address, lease.gateway), (uplink.guest4, Some(uplink.host4.addr())));
    let seen = vm.observe().await.unwrap();
    assert_eq!(seen.addresses_of("eth0").count(), 0);
    assert_eq!(seen.link("eth0").unwrap().controller.as_deref(), Some("k6t-eth0"));
    assert_eq!(ensure_in(host, vm, &request("vm-1")).await.unwrap().outcome, Ensured::AlreadySo);
}

#[tokio::test]
async fn on_the_fake_a_bridged_address_is_remembered() {
    let host = FakeHost::new();
    bridge_twice(&host.namespace(), &host.namespace(), &host.namespace()).await;
}

#[tokio::test]
async fn on_the_kernel_a_bridged_address_is_remembered() {
    if !root_or_skip("on_the_kernel_a_bridged_address_is_remembered") {
        return;
    }
    bridge_twice(&real(), &real(), &real()).await;
}

/// Lets the first change fail, then the second, and so on until none does. Returns how many there were.
async fn fail_each_step<N: Namespace>(make: impl Fn() -> (N, N, N), binding: Option<Binding>) -> usize {
    let (host, vm, world) = make();
    connect_to_world(&host, &world).await;
    if binding.is_some() {
        ensure_in(&host, &vm, &request("vm-1")).await.unwrap();
    }
    let (host, vm, left) = faulty(host, vm, PLENTY);
    for budget in 0..PLENTY {
        let before = (snapshot(&host, &["garboard_vm-1"]).await, snapshot(&vm, &[TABLE]).await);
        left.store(budget, Ordering::Relaxed);
        let outcome = match &binding {
            None => ensure_in(&host, &vm, &request("vm-1")).await.map(drop),
            Some(binding) => plumb_in(&vm, &[plan(binding.clone())]).await.map(drop),
        };
        let Err(error) = outcome else { return budget };
        assert!(error.to_string().contains("could not make this change"), "{error:?}");
        assert!(error.left().is_empty(), "step {budget}: {error}");
        // The host forwards from now on; that is no part of the snapshot, because it stays on purpose.
        let same = async {
            while (snapshot(&host, &["garboard_vm-1"]).await, snapshot(&vm, &[TABLE]).await) != before {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), same).await.is_err() {
            let after = (snapshot(&host, &["garboard_vm-1"]).await, snapshot(&vm, &[TABLE]).await);
            assert_eq!(after, before, "after step {budget}");
        }
    }
    panic!("it never succeeded");
}

fn fakes() -> (crate::testing::FakeNamespace, crate::testing::FakeNamespace, crate::testing::FakeNamespace) {
    let host = FakeHost::new();
    (host.namespace(), host.namespace(), host.namespace())
}

#[tokio::test]
async fn on_the_fake_a_failure_anywhere_leaves_what_was_there() {
    assert!(fail_each_step(fakes, None).await > 10);
    for binding in bindings() {
        assert!(fail_each_step(fakes, Some(binding)).await > 10);
    }
}

#[tokio::test]
async fn on_the_kernel_a_failing_uplink_leaves_what_was_there() {
    if !root_or_skip("on_the_kernel_a_failing_uplink_leaves_what_was_there") {
        return;
    }
    assert!(fail_each_step(|| (real(), real(), real()), None).await > 10);
}

#[tokio::test]
async fn on_the_kernel_failing_plumbing_leaves_what_was_there() {
    if !root_or_skip("on_the_kernel_failing_plumbing_leaves_what_was_there") {
        return;
    }
    for binding in bindings() {
        assert!(fail_each_step(|| (real(), real(), real()), Some(binding)).await > 10);
    }
}

#[tokio::test]
async fn vms_of_one_host_get_networks_of_their_own() {
    let host = FakeHost::new();
    let (outside, world) = (host.namespace(), host.namespace());
    connect_to_world(&outside, &world).await;
    let mut networks = Vec::new();
    for number in 0..40 {
        let made = ensure_in(&outside, &host.namespace(), &request(&format!("vm-{number}"))).await.unwrap();
        networks.push((made.host4, made.guest6));
    }
    let count = networks.len();
    networks.sort();
    networks.dedup();
    assert_eq!(networks.len(), count);
}

/// All of the pool but 64 networks.
fn crowded() -> Vec<ipnet::IpNet> {
    let rest = ["169.254.128.0/17", "169.254.64.0/18", "169.254.32.0/19", "169.254.16.0/20", "169.254.0.0/21"];
    let rest = rest.into_iter().chain(["169.254.8.0/22", "169.254.12.0/23", "169.254.14.0/24"]);
    rest.map(|net| net.parse().unwrap()).collect()
}

#[tokio::test]
async fn vms_that_start_at_once_get_different_networks() {
    if !root_or_skip("vms_that_start_at_once_get_different_networks") {
        return;
    }
    let (host, world) = (real(), real());
    connect_to_world(&host, &world).await;
    let start = async |number: usize| {
        let request = UplinkRequest { avoid: crowded(), ..request(&format!("vm-{number}")) };
        ensure_in(&host, &real(), &request).await.unwrap().host4
    };
    let mut networks = futures::future::join_all((0..12).map(start)).await;
    networks.sort();
    networks.dedup();
    assert_eq!(networks.len(), 12);
    assert!(networks.iter().all(|net| net.addr().octets()[2] == 15), "{networks:?}");
}

#[tokio::test]
async fn a_pool_without_a_free_network_is_reported_as_empty() {
    let (host, vm, world) = fakes();
    connect_to_world(&host, &world).await;
    let before = snapshot(&host, &[]).await;
    let request = UplinkRequest { avoid: vec!["169.254.0.0/16".parse().unwrap()], ..request("vm-1") };
    assert!(matches!(ensure_in(&host, &vm, &request).await, Err(NetError::PoolEmpty)));
    assert_eq!(snapshot(&host, &[]).await, before);
}

#[tokio::test]
async fn a_host_that_has_its_routes_from_advertisements_keeps_them_when_it_forwards() {
    let (host, vm, world) = fakes();
    connect_to_world(&host, &world).await;
    let advertised = Route {
        to: "::/0".parse().unwrap(),
        via: Some("2001:db8::1".parse().unwrap()),
        link: "eth0".to_owned(),
        origin: Origin::Advertised,
    };
    host.add_route(&advertised).await.unwrap();
    ensure_in(&host, &vm, &request("vm-1")).await.unwrap();
    let accept = |link: &str| Sysctl::AcceptRa(link.parse().unwrap());
    assert_eq!(host.setting(&accept("eth0")).await.unwrap().as_deref(), Some("2"));
    assert_eq!(host.setting(&accept("lo")).await.unwrap().as_deref(), Some("1"), "others are left alone");
    assert_eq!(host.setting(&Sysctl::Ipv6Forwarding).await.unwrap().as_deref(), Some("1"));
}

#[tokio::test]
async fn a_lost_namespace_is_joined_anew() {
    let host = FakeHost::new();
    let (outside, world) = (host.namespace(), host.namespace());
    connect_to_world(&outside, &world).await;
    let first = ensure_in(&outside, &host.namespace(), &request("vm-1")).await.unwrap();
    let fresh = host.namespace();
    let second = ensure_in(&outside, &fresh, &request("vm-1")).await.unwrap();
    assert_eq!((second.outcome, second.host_link), (Ensured::Changed, first.host_link));
    assert!(fresh.observe().await.unwrap().link("eth0").is_some());
}

#[tokio::test]
async fn another_owners_link_is_neither_used_nor_removed() {
    let host = FakeHost::new();
    let (outside, vm) = (host.namespace(), host.namespace());
    let id: VmNetId = "vm-1".parse().unwrap();
    outside.add_bridge(&id.host_link(), "02:00:00:00:00:09".parse().unwrap(), 1500).await.unwrap();
    let refused = ensure_in(&outside, &vm, &request("vm-1")).await.unwrap_err();
    assert!(matches!(refused.cause(), NetError::LinkTaken { .. }), "{refused}");
    assert!(matches!(remove_in(&outside, &id).await, Err(NetError::LinkTaken { .. })));
    assert!(outside.observe().await.unwrap().link(id.host_link().as_str()).is_some());
}

#[tokio::test]
async fn a_link_that_goes_with_its_namespace_while_it_is_removed_is_gone() {
    let host = FakeHost::new();
    let (outside, vm, world) = (host.namespace(), host.namespace(), host.namespace());
    connect_to_world(&outside, &world).await;
    ensure_in(&outside, &vm, &request("vm-1")).await.unwrap();
    let id: VmNetId = "vm-1".parse().unwrap();
    let failing = |kind| Faulty::new(outside.clone(), Arc::new(AtomicUsize::new(0))).failing_as(kind);
    assert!(remove_in(&failing(ErrorKind::PermissionDenied), &id).await.is_err());
    ensure_in(&outside, &vm, &request("vm-1")).await.unwrap();
    assert_eq!(remove_in(&failing(ErrorKind::NotFound), &id).await.unwrap(), Removed::Removed);
}

#[tokio::test]
async fn a_changed_table_is_restored() {
    let host = FakeHost::new();
    let (outside, vm, world) = (host.namespace(), host.namespace(), host.namespace());
    connect_to_world(&outside, &world).await;
    ensure_in(&outside, &vm, &request("vm-1")).await.unwrap();
    let emptied = crate::plan::ruleset::Ruleset { table: "garboard_vm-1".to_owned(), chains: Vec::new() };
    outside.replace(&emptied).await.unwrap();
    assert_eq!(ensure_in(&outside, &vm, &request("vm-1")).await.unwrap().outcome, Ensured::Changed);
    assert!(!outside.outline("garboard_vm-1").await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn vhost_descriptors_come_one_for_each_queue() {
    let host = FakeHost::new();
    let (outside, vm, world) = (host.namespace(), host.namespace().with_vhost_net(), host.namespace());
    connect_to_world(&outside, &world).await;
    ensure_in(&outside, &vm, &request("vm-1")).await.unwrap();
    let plumbed = plumb_in(&vm, &[plan(Binding::Bridge)]).await.unwrap();
    assert_eq!(plumbed.interfaces[0].vhosts.len(), 2);
}

#[tokio::test]
async fn the_callers_own_namespace_is_refused() {
    if !root_or_skip("the_callers_own_namespace_is_refused") {
        return;
    }
    let here = crate::NetNs::current().unwrap();
    assert!(matches!(crate::plumb(&here, &[plan(Binding::Bridge)]).await, Err(NetError::OwnNamespace)));
}
