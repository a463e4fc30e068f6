//! Which small networks join the host and the namespaces of its VMs: one /30 and one /64 for each VM, both
//! chosen by one number.
//!
//! IPv4 comes from link-local space (169.254/16, RFC 3927): nothing beyond the host routes it, so it can
//! hide no network the guest needs to reach. The other candidates are in use where VMs run: 100.64/10 by
//! carriers and by Tailscale, which drops forwarded packets from it; RFC 1918 almost everywhere. The parts of
//! 169.254/16 that have a meaning somewhere are left out. IPv6 comes from one /48 of RFC 4193 space.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::names::{VmNetId, fingerprint};

/// Third bytes of 169.254.x/24 that are never used: reserved by RFC 3927 (0, 255), first hop of several
/// container networks (1), the DHCP server of the bridge binding ([`super::desired::BRIDGE_SERVER`]),
/// metadata and credentials services of clouds (169, 170, 171, 172).
const TAKEN_BLOCKS: [u8; 8] = [0, 1, 75, 169, 170, 171, 172, 255];

/// How many /30 networks the pool has, those left out included.
const NETWORKS: u16 = 1 << 14;

/// The first 48 bits of every IPv6 link network: `fd67:6172:626f::/48`.
const IPV6_PREFIX: [u16; 3] = [0xfd67, 0x6172, 0x626f];

/// Addresses of the two ends of the link between the host and one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkNetwork(u16);

impl LinkNetwork {
    /// The network whose host end is `address`, if that is one of this pool.
    pub fn of_host(address: Ipv4Net) -> Option<Self> {
        let [a, b, c, d] = address.addr().octets();
        let number = (u16::from(c) << 8 | u16::from(d)) >> 2;
        let network = Self(number);
        let ours = (a, b) == (169, 254) && network.host4() == address && network.usable();
        ours.then_some(network)
    }

    /// The host's end.
    pub fn host4(self) -> Ipv4Net {
        self.ipv4(1)
    }

    /// The namespace's end.
    pub fn guest4(self) -> Ipv4Net {
        self.ipv4(2)
    }

    /// The host's end.
    pub fn host6(self) -> Ipv6Net {
        self.ipv6(1)
    }

    /// The namespace's end.
    pub fn guest6(self) -> Ipv6Net {
        self.ipv6(2)
    }

    fn ipv4(self, end: u8) -> Ipv4Net {
        let [high, low] = (self.0 << 2).to_be_bytes();
        Ipv4Net::new_assert(Ipv4Addr::new(169, 254, high, low | end), 30)
    }

    fn ipv6(self, end: u16) -> Ipv6Net {
        let [a, b, c] = IPV6_PREFIX;
        Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, self.0, 0, 0, 0, end), 64)
    }

    fn usable(self) -> bool {
        let [block, _] = (self.0 << 2).to_be_bytes();
        self.0 < NETWORKS && !TAKEN_BLOCKS.contains(&block)
    }

    fn overlaps(self, taken: &IpNet) -> bool {
        match taken {
            IpNet::V4(net) => net.contains(&self.host4().network()) || self.host4().contains(&net.network()),
            IpNet::V6(net) => net.contains(&self.host6().network()) || self.host6().contains(&net.network()),
        }
    }
}

/// All networks for this VM that overlap nothing in `taken`, each once. Start and stride follow from the id,
/// so that two VMs started at the same moment rarely try the same one, and if they do go on to different
/// ones.
pub fn candidates<'a>(id: &VmNetId, taken: &'a [IpNet]) -> impl Iterator<Item = LinkNetwork> + 'a {
    let [a, b, c, d, ..] = fingerprint(id.as_str()).to_be_bytes();
    // An odd stride visits every number of a power of two.
    let (start, stride) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]) | 1);
    (0..NETWORKS)
        .map(move |step| LinkNetwork(start.wrapping_add(step.wrapping_mul(stride)) % NETWORKS))
        .filter(|network| network.usable())
        .filter(|network| !taken.iter().any(|net| network.overlaps(net)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: &str) -> VmNetId {
        text.parse().unwrap()
    }

    #[test]
    fn both_ends_are_in_one_network() {
        let network = LinkNetwork(0x0203);
        assert_eq!(network.host4().to_string(), "169.254.8.13/30");
        assert_eq!(network.guest4().to_string(), "169.254.8.14/30");
        assert_eq!(network.host6().to_string(), "fd67:6172:626f:203::1/64");
        assert_eq!(network.guest6().to_string(), "fd67:6172:626f:203::2/64");
    }

    #[test]
    fn every_candidate_comes_once_and_none_is_reserved() {
        let all: Vec<Ipv4Net> = candidates(&id("vm"), &[]).map(LinkNetwork::host4).collect();
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(all.len(), (256 - TAKEN_BLOCKS.len()) * 64);
        assert_eq!(distinct.len(), all.len());
        assert!(all.iter().all(|net| !TAKEN_BLOCKS.contains(&net.addr().octets()[2])));
    }

    #[test]
    fn a_network_in_use_is_passed_over_whichever_family_shows_it() {
        let first = candidates(&id("vm"), &[]).next().unwrap();
        let taken4 = [IpNet::V4(first.host4())];
        assert_ne!(candidates(&id("vm"), &taken4).next().unwrap(), first);
        let taken6 = [IpNet::V6(first.guest6())];
        assert_ne!(candidates(&id("vm"), &taken6).next().unwrap(), first);
        let everything = ["169.254.0.0/16".parse().unwrap()];
        assert_eq!(candidates(&id("vm"), &everything).next(), None);
    }

    proptest! {
        #[test]
        fn the_host_end_identifies_the_network(number in 0..NETWORKS) {
            let network = LinkNetwork(number);
            let expected = network.usable().then_some(network);
            prop_assert_eq!(LinkNetwork::of_host(network.host4()), expected);
            prop_assert_eq!(LinkNetwork::of_host(network.guest4()), None);
        }
    }
}
