//! Joining the interfaces of a VM to the network inside its namespace, and handing out what the two
//! unprivileged processes need: taps and vhost-net for QEMU, bound sockets for the half that serves the guest.
//!
//! The order is that of dependence, with the nft table last: until it is there nothing reaches the guest, and
//! putting it there cannot fail half-way. Any failure takes back everything this call changed.

use std::os::fd::OwnedFd;

use crate::ensure::{
    Bridge, Ensured, Keep, change, delete_address, ensure_addresses, ensure_bridge, ensure_forwarding, ensure_mtu,
    ensure_port, ensure_setting, ensure_table, ensure_up,
};
use crate::error::NetError;
use crate::names::LinkName;
use crate::observed::{Link, Observed, Origin};
use crate::plan::desired::{Desired, Uplink, desired};
use crate::plan::guest::GuestAddresses;
use crate::plan::{self, Binding, NetPlan, NetPlanError};
use crate::seam::{Devices, LinkChange, Links, Namespace, Service, Sysctl};
use crate::undo::{UndoStack, UndoStep};

/// What was made, in the order of the plans.
#[derive(Debug)]
pub struct Plumbed {
    /// One for each plan.
    pub interfaces: Vec<PlumbedInterface>,
}

/// What was made for one interface. Dropping it removes the tap.
#[derive(Debug)]
pub struct PlumbedInterface {
    /// The interface's name, as in its plan.
    pub interface: String,
    /// What became of bridge, addresses and uplink; a tap is always new.
    pub outcome: Ensured,
    /// One descriptor for each queue.
    pub taps: Vec<OwnedFd>,
    /// One for each queue, or none where the host has no vhost-net.
    pub vhosts: Vec<OwnedFd>,
    /// For the half that serves the guest.
    pub sockets: Sockets,
    /// What the guest receives.
    pub guest: GuestAddresses,
}

/// Bound sockets that serve one guest on one bridge; each is absent when the guest does not get that service.
#[derive(Debug, Default)]
pub struct Sockets {
    /// DHCPv4 server.
    pub dhcp4: Option<OwnedFd>,
    /// DHCPv6 server.
    pub dhcp6: Option<OwnedFd>,
    /// Router advertisements.
    pub router_advertisement: Option<OwnedFd>,
}

/// Plumbs the namespace. Repeatable; a tap that some process still holds is refused.
pub async fn plumb_in<N: Namespace>(namespace: &N, plans: &[NetPlan]) -> Result<Plumbed, NetError> {
    let (seen, wanted) = decide(namespace, plans).await?;
    wanted.iter().try_for_each(|(plan, desired)| refuse_second_tap(plan, desired, &seen))?;
    let mut undo = UndoStack::default();
    let outcome = apply(namespace, &seen, &wanted, &mut undo).await;
    undo.settle(outcome).await
}

/// Opens only the sockets again, on a namespace that is plumbed already: for a half that was restarted while
/// QEMU holds the taps.
pub async fn sockets_in<N: Namespace>(
    namespace: &N,
    plans: &[NetPlan],
) -> Result<Vec<(Sockets, GuestAddresses)>, NetError> {
    let (_, wanted) = decide(namespace, plans).await?;
    let mut opened = Vec::with_capacity(wanted.len());
    for (_, desired) in wanted {
        opened.push((open_sockets(namespace, &desired).await?, desired.guest));
    }
    Ok(opened)
}

async fn decide<'p, N: Namespace>(
    namespace: &N,
    plans: &'p [NetPlan],
) -> Result<(Observed, Vec<(&'p NetPlan, Desired)>), NetError> {
    plan::check(plans)?;
    let seen = namespace.observe().await?;
    let decide = |plan| Ok((plan, desired(plan, &seen)?));
    let wanted = plans.iter().map(decide).collect::<Result<Vec<_>, NetError>>()?;
    Ok((seen, wanted))
}

/// A bridge is one interface's: a tap of another name on it belongs to a caller that asks again for its own.
fn refuse_second_tap(plan: &NetPlan, desired: &Desired, seen: &Observed) -> Result<(), NetPlanError> {
    let is_other = |link: &&Link| {
        let is_port = link.controller.as_deref() == Some(desired.bridge.as_str());
        is_port && link.kind.as_deref() == Some("tun") && link.name != desired.tap.as_str()
    };
    let taken = |link: &Link| NetPlanError::BridgeTaken {
        interface: plan.interface.clone(),
        bridge: desired.bridge.clone(),
        tap: link.name.clone(),
    };
    seen.links.iter().find(is_other).map(taken).map_or(Ok(()), Err)
}

async fn apply<'a, N: Namespace>(
    namespace: &'a N,
    seen: &Observed,
    wanted: &[(&NetPlan, Desired)],
    undo: &mut UndoStack<'a, N>,
) -> Result<Plumbed, NetError> {
    if let Ok(loopback) = "lo".parse() {
        ensure_up(namespace, seen, &loopback, undo).await?;
    }
    if wanted.iter().any(|(plan, _)| matches!(plan.binding, Binding::Masquerade(_))) {
        ensure_forwarding(namespace, seen, Keep::UntilFailure, undo).await?;
    }
    let mut interfaces = Vec::with_capacity(wanted.len());
    for (plan, desired) in wanted {
        interfaces.push(join(namespace, seen, plan, desired, undo).await?);
    }
    let joined: Vec<(&NetPlan, &Desired)> = wanted.iter().map(|(plan, desired)| (*plan, desired)).collect();
    if let Some(ruleset) = plan::masquerade::ruleset(&joined) {
        let table = ensure_table(namespace, &ruleset).await?;
        for interface in &mut interfaces {
            interface.outcome = interface.outcome.with(table);
        }
    }
    Ok(Plumbed { interfaces })
}

async fn join<'a, N: Namespace>(
    namespace: &'a N,
    seen: &Observed,
    plan: &NetPlan,
    desired: &Desired,
    undo: &mut UndoStack<'a, N>,
) -> Result<PlumbedInterface, NetError> {
    let mtu = desired.guest.mtu;
    let bridge = Bridge { name: &desired.bridge, mac: desired.bridge_mac, mtu, record: desired.record.as_deref() };
    let mut outcome = ensure_bridge(namespace, seen, &bridge, undo).await?;
    settle_bridge(namespace, desired, undo).await?;
    if let Uplink::Enslaved { .. } = desired.uplink {
        outcome = outcome.with(enslave(namespace, seen, desired, undo).await?);
    }
    let addresses = &desired.bridge_addresses;
    outcome = outcome.with(ensure_addresses(namespace, seen, &desired.bridge, addresses, undo).await?);
    outcome = outcome.with(ensure_up(namespace, seen, &desired.bridge, undo).await?);
    let taps = open_tap(namespace, desired).await?;
    let vhosts = namespace.open_vhost(desired.queues).await?;
    let sockets = open_sockets(namespace, desired).await?;
    tracing::info!(interface = plan.interface, bridge = %desired.bridge, tap = %desired.tap, ?outcome, "interface created");
    Ok(PlumbedInterface {
        interface: plan.interface.clone(),
        outcome,
        taps,
        vhosts,
        sockets,
        guest: desired.guest.clone(),
    })
}

/// Settings of the bridge that must hold before it is up.
async fn settle_bridge<'a, N: Namespace>(
    namespace: &'a N,
    desired: &Desired,
    undo: &mut UndoStack<'a, N>,
) -> Result<(), NetError> {
    let bridge = || desired.bridge.clone();
    // IPv6 on the bridge is for guests that get theirs from us; what they advertise is ignored.
    let disabled = if desired.guest.ipv6.is_some() { "0" } else { "1" };
    let localnet = if desired.uplink == Uplink::Routed { "1" } else { "0" };
    let settings = [
        (Sysctl::AcceptRa(bridge()), "0"),
        (Sysctl::AcceptDad(bridge()), "0"),
        (Sysctl::DisableIpv6(bridge()), disabled),
        (Sysctl::RouteLocalnet(bridge()), localnet),
    ];
    for (setting, value) in settings {
        ensure_setting(namespace, setting, value, Keep::UntilFailure, undo).await?;
    }
    Ok(())
}

/// Makes the uplink a port of the bridge, without any address. The bridge's alias already remembers what is
/// lost here.
async fn enslave<'a, N: Namespace>(
    namespace: &'a N,
    seen: &Observed,
    desired: &Desired,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let Uplink::Enslaved { name, new_mac, addresses } = &desired.uplink else { return Ok(Ensured::AlreadySo) };
    remember_routes(namespace, seen, name, undo);
    for address in addresses {
        if address.addr().is_ipv6() {
            // The kernel removes these with the setting below.
            undo.push(namespace, UndoStep::AddAddress(name.clone(), *address));
        } else {
            delete_address(namespace, name, *address, undo).await?;
        }
    }
    let no_ipv6 = Sysctl::DisableIpv6(name.clone());
    let mut outcome = ensure_setting(namespace, no_ipv6, "1", Keep::UntilFailure, undo).await?;
    if let Some(new_mac) = new_mac {
        let before = seen.link(name.as_str()).and_then(|link| link.mac).map(LinkChange::Mac);
        change(namespace, name, LinkChange::Mac(*new_mac), before, undo).await?;
        outcome = Ensured::Changed;
    }
    if let Some(link) = seen.link(name.as_str()) {
        outcome = outcome.with(ensure_mtu(namespace, link, name, desired.guest.mtu, undo).await?);
    }
    outcome = outcome.with(ensure_port(namespace, seen, name, &desired.bridge, undo).await?);
    outcome = outcome.with(ensure_up(namespace, seen, name, undo).await?);
    Ok(outcome)
}

/// Routes vanish with the address they need. They are restored last, those by a gateway after those that
/// lead to it.
fn remember_routes<'a, N: Namespace>(
    namespace: &'a N,
    seen: &Observed,
    uplink: &LinkName,
    undo: &mut UndoStack<'a, N>,
) {
    let configured =
        |route: &&crate::observed::Route| route.link == uplink.as_str() && route.origin == Origin::Configured;
    let (by_gateway, direct): (Vec<_>, Vec<_>) =
        seen.routes.iter().filter(configured).partition(|route| route.via.is_some());
    for route in by_gateway.into_iter().chain(direct) {
        undo.push(namespace, UndoStep::AddRoute(route.clone()));
    }
}

async fn open_tap<N: Links + Devices>(namespace: &N, desired: &Desired) -> Result<Vec<OwnedFd>, NetError> {
    let taps = namespace.open_tap(&desired.tap, desired.queues).await?;
    let no_ipv6 = Sysctl::DisableIpv6(desired.tap.clone());
    if namespace.setting(&no_ipv6).await?.is_some_and(|value| value == "0") {
        namespace.change_setting(&no_ipv6, "1").await?;
    }
    for change in [LinkChange::Mtu(desired.guest.mtu.into()), LinkChange::Port(desired.bridge.clone()), LinkChange::Up]
    {
        // Nothing to take back: the tap goes with its descriptors.
        namespace.change_link(&desired.tap, &change).await?;
    }
    Ok(taps)
}

async fn open_sockets<N: Devices>(namespace: &N, desired: &Desired) -> Result<Sockets, NetError> {
    let mut sockets = Sockets::default();
    if desired.guest.ipv4.is_some() {
        sockets.dhcp4 = Some(namespace.open_socket(Service::Dhcp4, &desired.bridge).await?);
    }
    if desired.guest.ipv6.is_some() {
        sockets.dhcp6 = Some(namespace.open_socket(Service::Dhcp6, &desired.bridge).await?);
        let advertise = namespace.open_socket(Service::RouterAdvertisement, &desired.bridge).await?;
        sockets.router_advertisement = Some(advertise);
    }
    Ok(sockets)
}
