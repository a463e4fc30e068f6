//! What a guest receives about its network: the result of plumbing, and what the DHCP server and the
//! router advertisements announce. Pure data, serialisable, so that the privileged half can send it to the
//! half that serves.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Addresses of one interface, as the guest will see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestAddresses {
    /// Largest packet, bytes.
    pub mtu: u16,
    /// Leased by DHCPv4; absent when the network has no IPv4 address to give.
    pub ipv4: Option<GuestIpv4>,
    /// Leased by DHCPv6; absent when the namespace has no IPv6, and with bridge binding, where the
    /// network's own routers serve the guest.
    pub ipv6: Option<GuestIpv6>,
}

/// The IPv4 lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestIpv4 {
    /// The guest's address and the prefix of its network.
    pub address: Ipv4Net,
    /// Address of the DHCP server itself.
    pub server: Ipv4Addr,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Routes beside the default one and the network itself.
    pub routes: Vec<GuestRoute>,
}

/// One classless route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestRoute {
    /// Where to.
    pub to: Ipv4Net,
    /// By which gateway; absent: on the link itself.
    pub via: Option<Ipv4Addr>,
}

/// The IPv6 lease. The gateway is the sender of the router advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestIpv6 {
    /// The guest's address.
    pub address: Ipv6Addr,
    /// The network that is on the link.
    pub network: Ipv6Net,
    /// The gateway's address in that network.
    pub gateway: Ipv6Addr,
}
