//! What is seen in a network namespace: links, addresses, routes. Plain data, equal for the real kernel and
//! the fake of `testing`, with links named and not numbered, because plans use names.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::names::EthernetAddress;

/// One link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Its name; the kernel allows more characters than [`crate::LinkName`].
    pub name: String,
    /// The kernel's number of it, unique in the namespace and never used again for another link.
    pub index: u32,
    /// `bridge`, `veth`, `tun` (also for a tap), …; absent for hardware and loopback.
    pub kind: Option<String>,
    /// Its Ethernet address, if it has one of six bytes that is not a group address.
    pub mac: Option<EthernetAddress>,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Whether it has been set up (not whether it has a carrier).
    pub admin: Admin,
    /// Name of the bridge it is a port of.
    pub controller: Option<String>,
    /// Free text set on it.
    pub alias: Option<String>,
}

/// What `ip link set up` and `down` change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admin {
    /// Set up.
    Up,
    /// Set down.
    Down,
}

/// One address of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddress {
    /// The link's name.
    pub link: String,
    /// Address and prefix length.
    pub address: IpNet,
}

/// One route of the main table, unicast.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where to; `0.0.0.0/0` or `::/0` for the default.
    pub to: IpNet,
    /// The gateway; absent: on the link itself.
    pub via: Option<IpAddr>,
    /// Name of the link it leaves by. A route over several links is reported once for each.
    pub link: String,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The kernel, because of an address.
    Kernel,
    /// The kernel, because a router advertised it.
    Advertised,
    /// A user or another program.
    Configured,
}

/// Everything that plans are decided from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<LinkAddress>,
    /// The main table.
    pub routes: Vec<Route>,
}

impl Observed {
    /// The link of that name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Addresses of the link of that name, in the kernel's order.
    pub fn addresses_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = IpNet> + 'a {
        self.addresses.iter().filter(move |seen| seen.link == name).map(|seen| seen.address)
    }
}
