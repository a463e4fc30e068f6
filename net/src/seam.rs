//! Where this crate ends and the kernel begins: three small traits, each for one network namespace.
//!
//! [`crate::kernel::Kernel`] is the real thing, `testing::FakeNamespace` (feature `testing`) keeps the same
//! state in memory; both pass the same contract tests. Operations are single steps: what is safe to repeat
//! is made of them in [`crate::ensure`].

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::error::NetError;
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Link, LinkAddress, Observed, Route};
use crate::plan::ruleset::Ruleset;

/// Links, addresses, routes and settings of one namespace.
pub trait Links: Sync {
    /// All links, in the order of their indices.
    fn links(&self) -> impl Future<Output = Result<Vec<Link>, NetError>> + Send;
    /// All addresses.
    fn addresses(&self) -> impl Future<Output = Result<Vec<LinkAddress>, NetError>> + Send;
    /// The unicast routes of the main table, both families.
    fn routes(&self) -> impl Future<Output = Result<Vec<Route>, NetError>> + Send;
    /// Makes a bridge, down, without ports, that does not snoop multicast.
    fn add_bridge(
        &self,
        name: &LinkName,
        mac: EthernetAddress,
        mtu: u16,
    ) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Makes a veth pair, both ends down: `name` here, `peer` in the namespace `there`.
    fn add_veth(
        &self,
        name: &LinkName,
        there: &Self,
        peer: &LinkName,
        mtu: u16,
    ) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Removes a link. An absent one is an error ([`std::io::ErrorKind::NotFound`] as source).
    fn delete_link(&self, name: &LinkName) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Changes one property of a link.
    fn change_link(&self, name: &LinkName, change: &LinkChange) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Adds an address. IPv6 addresses are usable at once, without duplicate detection: every link here has
    /// exactly two ends and we made both.
    fn add_address(&self, link: &LinkName, address: IpNet) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Removes an address.
    fn delete_address(&self, link: &LinkName, address: IpNet) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Adds a route to the main table.
    fn add_route(&self, route: &Route) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Reads a setting; none if this kernel or namespace does not have it (for example without IPv6).
    fn setting(&self, setting: &Sysctl) -> impl Future<Output = Result<Option<String>, NetError>> + Send;
    /// Writes a setting.
    fn change_setting(&self, setting: &Sysctl, value: &str) -> impl Future<Output = Result<(), NetError>> + Send;

    /// Links, addresses and routes together.
    fn observe(&self) -> impl Future<Output = Result<Observed, NetError>> + Send {
        async {
            let links = self.links().await?;
            let addresses = self.addresses().await?;
            let routes = self.routes().await?;
            Ok(Observed { links, addresses, routes })
        }
    }
}

/// One change of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// Its Ethernet address.
    Mac(EthernetAddress),
    /// Its largest packet, bytes.
    Mtu(u32),
    /// Set up.
    Up,
    /// Set down; its routes are lost.
    Down,
    /// Becomes a port of this bridge.
    Port(LinkName),
    /// Is no port any more.
    NoPort,
    /// Its alias.
    Alias(String),
}

/// A per-namespace setting below `/proc/sys/net`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sysctl {
    /// Whether IPv4 packets are forwarded between links.
    Ipv4Forwarding,
    /// Whether IPv6 packets are forwarded between links.
    Ipv6Forwarding,
    /// Whether router advertisements are accepted on a link: 0 no, 1 unless forwarding, 2 always.
    AcceptRa(LinkName),
    /// Whether new IPv6 addresses of a link are first checked for duplicates.
    AcceptDad(LinkName),
    /// Whether a link has no IPv6 at all.
    DisableIpv6(LinkName),
    /// Whether 127.0.0.0/8 may pass a link.
    RouteLocalnet(LinkName),
}

impl Sysctl {
    /// The file that holds it.
    pub fn path(&self) -> PathBuf {
        let path = match self {
            Self::Ipv4Forwarding => "ipv4/ip_forward".to_owned(),
            Self::Ipv6Forwarding => "ipv6/conf/all/forwarding".to_owned(),
            Self::AcceptRa(link) => format!("ipv6/conf/{link}/accept_ra"),
            Self::AcceptDad(link) => format!("ipv6/conf/{link}/accept_dad"),
            Self::DisableIpv6(link) => format!("ipv6/conf/{link}/disable_ipv6"),
            Self::RouteLocalnet(link) => format!("ipv4/conf/{link}/route_localnet"),
        };
        PathBuf::from("/proc/sys/net").join(path)
    }
}

/// nftables of one namespace.
pub trait Nft: Sync {
    /// What the table of that name (family `inet`) holds; none if there is no such table.
    fn outline(&self, table: &str) -> impl Future<Output = Result<Option<Outline>, NetError>> + Send;
    /// Puts this table in place of whatever has its name, in one transaction.
    fn replace(&self, ruleset: &Ruleset) -> impl Future<Output = Result<(), NetError>> + Send;
    /// Removes a table. An absent one is not an error.
    fn delete_table(&self, table: &str) -> impl Future<Output = Result<(), NetError>> + Send;
    /// The answer of `nft -j list chains`, for [`crate::plan::uplink::obstacles`].
    fn list_chains(&self) -> impl Future<Output = Result<String, NetError>> + Send;
}

/// Of each chain of a table in order, the comments of its rules; a rule without one is an empty text.
pub type Outline = Vec<(String, Vec<String>)>;

/// Descriptors that only a process with privileges in the namespace can make.
pub trait Devices: Sync {
    /// Makes a tap, down, with `queues` queues and one descriptor for each. It vanishes with the last of
    /// them. A tap that exists is refused with [`NetError::TapHeld`].
    fn open_tap(&self, name: &LinkName, queues: u16) -> impl Future<Output = Result<Vec<OwnedFd>, NetError>> + Send;
    /// `queues` descriptors of vhost-net; none where the host does not have it.
    fn open_vhost(&self, queues: u16) -> impl Future<Output = Result<Vec<OwnedFd>, NetError>> + Send;
    /// A bound socket that serves the guest on that bridge.
    fn open_socket(&self, kind: Service, bridge: &LinkName) -> impl Future<Output = Result<OwnedFd, NetError>> + Send;
}

/// The services a guest needs from its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// UDP port 67.
    Dhcp4,
    /// UDP port 547, in the group of all DHCP servers.
    Dhcp6,
    /// Raw ICMPv6, router solicitations only, in the group of all routers.
    RouterAdvertisement,
}

impl Service {
    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dhcp4 => "DHCPv4",
            Self::Dhcp6 => "DHCPv6",
            Self::RouterAdvertisement => "router advertisement",
        }
    }
}

/// Everything about one namespace.
pub trait Namespace: Links + Nft + Devices {}

impl<T: Links + Nft + Devices> Namespace for T {}
