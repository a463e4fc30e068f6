//! From one plan and what is seen in the namespace to what must exist there. Pure.
//!
//! ```text
//!            masquerade                               bridge
//!   uplink  eth0 10.244.1.7/24  (routed, nft)    eth0 (no address) ┐
//!   bridge  k6t-eth0 10.0.2.1/24 ┐               k6t-eth0 169.254.75.10/32
//!   tap     tap0                 ┘               tap0              ┘
//!   guest   10.0.2.2                             10.244.1.7
//! ```
//!
//! With bridge binding the uplink's own address is what the guest will lease. Once it is taken off the
//! uplink the kernel no longer has it, so it is first written to the bridge's alias ([`Record`]): a second
//! run, also after a crash at any point, reads it there. It lives and dies with the namespace.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::guest::{GuestAddresses, GuestIpv4, GuestIpv6, GuestRoute};
use super::{Binding, Masquerade, NetPlan, NetPlanError};
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Link, Observed, Origin};

/// Address of the bridge with bridge binding: the DHCP server must send from some address, and the network's
/// own are not ours to take. Link-local, never routed.
pub const BRIDGE_SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 75, 10);

/// Address of every masquerade bridge. It is the same in each namespace, so that a guest that migrates finds
/// its gateway where its neighbour cache has it.
pub const GATEWAY_MAC: &str = "02:67:62:00:00:01";

/// Longest alias a link can carry, bytes (`IFALIASZ` without its NUL).
const ALIAS_MAX: usize = 255;

/// What must exist for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The bridge's name.
    pub bridge: LinkName,
    /// The bridge's address.
    pub bridge_mac: EthernetAddress,
    /// Its IP addresses.
    pub bridge_addresses: Vec<IpNet>,
    /// Its alias, if something must be remembered.
    pub record: Option<String>,
    /// The tap's name.
    pub tap: LinkName,
    /// Queues of the tap.
    pub queues: u16,
    /// What becomes of the uplink.
    pub uplink: Uplink,
    /// What the guest receives. Its MTU is also that of bridge and tap.
    pub guest: GuestAddresses,
}

/// What becomes of the uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// It stays as it is; packets are routed and translated.
    Routed,
    /// It becomes a port of the bridge.
    Enslaved {
        /// Its name.
        name: LinkName,
        /// An address instead of the one the guest uses too.
        new_mac: Option<EthernetAddress>,
        /// Its IP addresses, which it loses.
        addresses: Vec<IpNet>,
    },
}

/// Decides what one plan needs.
pub fn desired(plan: &NetPlan, seen: &Observed) -> Result<Desired, NetPlanError> {
    let no_uplink = || NetPlanError::NoUplink { interface: plan.interface.clone(), uplink: plan.uplink.clone() };
    let uplink = seen.link(plan.uplink.as_str()).ok_or_else(no_uplink)?;
    match &plan.binding {
        Binding::Masquerade(masquerade) => routed(plan, masquerade, uplink, seen),
        Binding::Bridge => enslaved(plan, uplink, seen),
    }
}

fn mtu(plan: &NetPlan, uplink: &Link) -> u16 {
    plan.mtu.unwrap_or_else(|| u16::try_from(uplink.mtu).unwrap_or(u16::MAX))
}

fn routed(plan: &NetPlan, masquerade: &Masquerade, uplink: &Link, seen: &Observed) -> Result<Desired, NetPlanError> {
    let outside: Vec<IpNet> = seen.addresses_of(&uplink.name).filter(|net| !link_local6(net)).collect();
    let has6 = outside.iter().any(|net| matches!(net, IpNet::V6(_)));
    // A namespace without any address still gives its guest an IPv4 address; one with IPv6 alone does not,
    // because a default route that leads nowhere makes every guest wait.
    let has4 = !has6 || outside.iter().any(|net| matches!(net, IpNet::V4(_)));
    refuse_overlap(plan, masquerade, &outside)?;
    let (gateway4, guest4) = masquerade.gateway_and_guest4()?;
    let (gateway6, guest6) = masquerade.gateway_and_guest6()?;
    let (range4, range6) = (masquerade.ipv4.trunc(), masquerade.ipv6.trunc());
    let on_range4 = |address| Ipv4Net::new_assert(address, range4.prefix_len());
    let ipv4 = has4.then(|| GuestIpv4 {
        address: on_range4(guest4),
        server: gateway4,
        gateway: Some(gateway4),
        routes: Vec::new(),
    });
    let ipv6 = has6.then_some(GuestIpv6 { address: guest6, network: range6, gateway: gateway6 });
    let address4 = has4.then(|| IpNet::V4(on_range4(gateway4)));
    let address6 = has6.then(|| IpNet::new_assert(IpAddr::V6(gateway6), range6.prefix_len()));
    Ok(Desired {
        bridge: plan.bridge.clone(),
        bridge_mac: gateway_mac(),
        bridge_addresses: address4.into_iter().chain(address6).collect(),
        record: None,
        tap: plan.tap.clone(),
        queues: plan.queues,
        uplink: Uplink::Routed,
        guest: GuestAddresses { mtu: mtu(plan, uplink), ipv4, ipv6 },
    })
}

fn gateway_mac() -> EthernetAddress {
    // The constant is a valid address (a test reads it); the fallback exists because this cannot panic.
    GATEWAY_MAC.parse().unwrap_or_else(|_| EthernetAddress::derived(GATEWAY_MAC))
}

fn link_local6(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local())
}

fn refuse_overlap(plan: &NetPlan, masquerade: &Masquerade, outside: &[IpNet]) -> Result<(), NetPlanError> {
    let taken = |range: IpNet, net: &IpNet| NetPlanError::RangeTaken {
        interface: plan.interface.clone(),
        range: range.to_string(),
        taken: net.to_string(),
    };
    let ranges = [IpNet::V4(masquerade.ipv4), IpNet::V6(masquerade.ipv6)];
    let clash = |range: &IpNet| outside.iter().find(|net| range.contains(&net.addr())).map(|net| taken(*range, net));
    ranges.iter().find_map(clash).map_or(Ok(()), Err)
}

fn enslaved(plan: &NetPlan, uplink: &Link, seen: &Observed) -> Result<Desired, NetPlanError> {
    let bridge_alias = seen.link(plan.bridge.as_str()).and_then(|link| link.alias.as_deref());
    let record = match bridge_alias {
        Some(alias) => Some(Record::parse(alias).ok_or_else(|| NetPlanError::Record {
            interface: plan.interface.clone(),
            bridge: plan.bridge.clone(),
            record: alias.to_owned(),
        })?),
        None => Record::of(&uplink.name, seen),
    };
    let text = record.as_ref().map(Record::to_string);
    if text.as_ref().is_some_and(|text| text.len() > ALIAS_MAX) {
        let routes = record.map_or(0, |record| record.routes.len());
        return Err(NetPlanError::TooManyRoutes { interface: plan.interface.clone(), routes });
    }
    let server = record.is_some().then(|| IpNet::new_assert(IpAddr::V4(BRIDGE_SERVER), 32));
    Ok(Desired {
        bridge: plan.bridge.clone(),
        bridge_mac: EthernetAddress::derived(&format!("bridge of {}", plan.mac)),
        bridge_addresses: server.into_iter().collect(),
        record: text,
        tap: plan.tap.clone(),
        queues: plan.queues,
        uplink: Uplink::Enslaved {
            name: plan.uplink.clone(),
            new_mac: (uplink.mac == Some(plan.mac))
                .then(|| EthernetAddress::derived(&format!("uplink of {}", plan.mac))),
            addresses: seen.addresses_of(&uplink.name).collect(),
        },
        guest: GuestAddresses { mtu: mtu(plan, uplink), ipv4: record.map(Record::into_guest), ipv6: None },
    })
}

/// What the kernel removes when the uplink loses its address: address, default gateway, other routes.
/// Written as `garboard 10.244.1.7/24 via 10.244.1.1 10.96.0.0/12@10.244.1.1 169.254.1.1/32@-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    address: Ipv4Net,
    gateway: Option<Ipv4Addr>,
    routes: Vec<GuestRoute>,
}

impl Record {
    /// From the first IPv4 address of the uplink; none if it has none.
    fn of(uplink: &str, seen: &Observed) -> Option<Self> {
        let address =
            seen.addresses_of(uplink).find_map(|net| if let IpNet::V4(net) = net { Some(net) } else { None })?;
        let mut gateway = None;
        let mut routes = Vec::new();
        for route in seen.routes.iter().filter(|route| route.link == uplink && route.origin == Origin::Configured) {
            let IpNet::V4(to) = route.to else { continue };
            let via = route.via.and_then(|via| if let IpAddr::V4(via) = via { Some(via) } else { None });
            if to.prefix_len() == 0 {
                gateway = gateway.or(via);
            } else {
                routes.push(GuestRoute { to, via });
            }
        }
        Some(Self { address, gateway, routes })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let address = (parts.next() == Some("garboard")).then(|| parts.next())??.parse().ok()?;
        let mut parts = parts.peekable();
        let gateway = match parts.next_if_eq(&"via") {
            Some(_) => Some(parts.next()?.parse().ok()?),
            None => None,
        };
        let routes = parts.map(parse_route).collect::<Option<Vec<_>>>()?;
        Some(Self { address, gateway, routes })
    }

    fn into_guest(self) -> GuestIpv4 {
        GuestIpv4 { address: self.address, server: BRIDGE_SERVER, gateway: self.gateway, routes: self.routes }
    }
}

fn parse_route(route: &str) -> Option<GuestRoute> {
    let (to, via) = route.split_once('@')?;
    let via = if via == "-" { None } else { Some(via.parse().ok()?) };
    Some(GuestRoute { to: to.parse().ok()?, via })
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "garboard {}", self.address)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        for route in &self.routes {
            match route.via {
                Some(via) => write!(f, " {}@{via}", route.to)?,
                None => write!(f, " {}@-", route.to)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
