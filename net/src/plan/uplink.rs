//! The way out of a VM's namespace on a bare host: the two ends of a veth pair, the host's nft table, and
//! what on this host may stand in the way. Pure.
//!
//! ```text
//!   host                                        namespace of the VM
//!   gb1a2b3c4d5e6f7 169.254.8.13/30 ── veth ──  eth0 169.254.8.14/30, default via .13
//!   table inet garboard_ID: masquerade, nothing in but answers
//! ```

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::pool::LinkNetwork;
use super::ruleset::{Chain, Hook, Rule, Ruleset};
use crate::names::VmNetId;
use crate::observed::Observed;

/// Which families the host can forward for the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone: the host has IPv6 switched off or no global address.
    Ipv4,
    /// Both.
    Both,
}

/// Both, if the host has an IPv6 address that reaches further than one link.
pub fn families(host: &Observed) -> Families {
    let reaches_out = |net: &IpNet| match net.addr() {
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let ours = |link: &str| host.link(link).and_then(|link| link.alias.as_deref()).is_some_and(is_our_alias);
    let found = host.addresses.iter().any(|seen| reaches_out(&seen.address) && !ours(&seen.link));
    if found { Families::Both } else { Families::Ipv4 }
}

fn is_our_alias(alias: &str) -> bool {
    alias.starts_with("garboard ")
}

/// Networks the link may not overlap: the host's addresses and routes, `avoid` beside them. Wide networks
/// that merely contain the pool (the zeroconf route 169.254.0.0/16 of some distributions) do not count, an
/// address in them does.
pub fn taken(host: &Observed, avoid: &[IpNet]) -> Vec<IpNet> {
    let narrow = |net: &IpNet| match net {
        IpNet::V4(net) => net.prefix_len() > 16,
        IpNet::V6(net) => net.prefix_len() > 48,
    };
    let addresses = host.addresses.iter().map(|seen| seen.address);
    let exact = addresses.map(|net| if narrow(&net) { net } else { IpNet::from(net.addr()) });
    let routes = host.routes.iter().map(|route| route.to).filter(narrow);
    exact.chain(routes).chain(avoid.iter().copied()).collect()
}

/// The link of the host's default route.
pub fn default_link(host: &Observed) -> Option<&str> {
    host.routes.iter().find(|route| route.to.prefix_len() == 0).map(|route| route.link.as_str())
}

/// MTU of the way out of the host: that of the link of its default route, else 1500.
pub fn mtu(host: &Observed) -> u16 {
    let link = default_link(host).and_then(|link| host.link(link));
    link.and_then(|link| u16::try_from(link.mtu).ok()).unwrap_or(1500)
}

/// IPv4 addresses at which clouds serve a host's metadata: link-local ones (most clouds), and those of Azure, Alibaba and Oracle.
const METADATA4: &str = "{ 100.100.100.200, 168.63.129.16, 169.254.0.0/16, 192.0.0.192 }";
/// IPv6 addresses at which clouds serve a host's metadata: those of Amazon, Scaleway and Google.
const METADATA6: &str = "{ fd00:42::42, fd00:ec2::/32, fd20:ce::254 }";

/// The host's table for one VM.
///
/// The guest's packets leave with the host's address; in come only answers: what is published is relayed by
/// a process of the host ([`crate::publish`]), and VMs do not reach one another through the host. The rules
/// match the VM's own link, so tables of several VMs do not see each other's packets.
///
/// Of the host itself a guest reaches name service and nothing else: what listens there on all addresses was not meant for
/// guests, nor was what the host's DNAT passes on (published ports of containers, services of a cluster). Nor does it reach
/// the addresses (`METADATA4`, `METADATA6`) where clouds hand out the host's credentials, but for name service, which some of them have there.
/// Other networks that the host has routes to are reached.
pub fn ruleset(id: &VmNetId, network: LinkNetwork, families: Families) -> Ruleset {
    let link = id.host_link();
    let (ipv4, ipv6) = (network.guest4().addr(), network.guest6().addr());
    let both = families == Families::Both;
    let rule = |purpose, text: String| Rule::new(purpose, text);
    let leaving = |family: &str, guest: IpAddr| {
        rule("guest to outside", format!("{family} saddr {guest} oifname != \"{link}\" masquerade"))
    };
    let foreign = |family: &str, guest: IpAddr| {
        rule("not the VM's address", format!("iifname \"{link}\" {family} saddr != {guest} drop"))
    };
    let mut postrouting = vec![leaving("ip", ipv4.into())];
    let mut forward = vec![foreign("ip", ipv4.into())];
    if both {
        postrouting.push(leaving("ip6", ipv6.into()));
        forward.push(foreign("ip6", ipv6.into()));
    } else {
        forward.push(rule("family not served", format!("iifname \"{link}\" meta nfproto ipv6 drop")));
    }
    forward.push(rule("answers", format!("oifname \"{link}\" ct state established,related accept")));
    forward.push(rule("nothing else comes in", format!("oifname \"{link}\" drop")));
    let from_guest = |purpose, what: &str| rule(purpose, format!("iifname \"{link}\" {what}"));
    forward.push(from_guest("services of the host, passed on", "ct status dnat drop"));
    for (family, metadata) in [("ip", METADATA4), ("ip6", METADATA6)] {
        let metadata = format!("{family} daddr {metadata}");
        forward.push(from_guest("metadata of a cloud", &format!("{metadata} udp dport != 53 drop")));
        forward.push(from_guest("metadata of a cloud", &format!("{metadata} tcp dport != 53 drop")));
        forward.push(from_guest("metadata of a cloud", &format!("{metadata} meta l4proto != {{ tcp, udp }} drop")));
    }
    let input = vec![
        from_guest("answers to the host", "ct state established,related accept"),
        from_guest("neighbours and ping", "meta l4proto icmp accept"),
        from_guest("neighbours and ping", "meta l4proto ipv6-icmp accept"),
        from_guest("name service", "udp dport 53 accept"),
        from_guest("name service", "tcp dport 53 accept"),
        from_guest("nothing else of the host", "drop"),
    ];
    let chains = vec![
        Chain { name: "input", hook: Some(Hook::FilterInput), rules: input },
        Chain { name: "postrouting", hook: Some(Hook::NatPostrouting), rules: postrouting },
        Chain { name: "forward", hook: Some(Hook::FilterForward), rules: forward },
    ];
    Ruleset { table: id.table(), chains }
}

/// Something of this host that may drop the guest's packets although our rules accept them: in nftables a
/// packet passes only if every table lets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A forward chain that drops by default, as Docker's iptables rules make it.
    ForwardDropped {
        /// Family of its table, for example `ip`.
        family: String,
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
    },
    /// firewalld rejects what comes from a link it has in no zone.
    Firewalld,
}

impl Obstacle {
    /// What it is and the command that lets VMs pass, by the host's way out and not to its other networks.
    /// Nothing of ours changes another program's tables: their owner rewrites them, and we could not remove our rules
    /// again for sure.
    pub fn remedy(&self, default_link: &str) -> String {
        match self {
            Self::ForwardDropped { family, table, chain } if matches!(family.as_str(), "ip" | "ip6") => {
                let tool = if family == "ip" { "iptables" } else { "ip6tables" };
                let chain = if chain == "FORWARD" { "DOCKER-USER (or FORWARD)" } else { chain };
                format!(
                    "table {family} {table} drops forwarded packets by default; if the guest cannot reach the outside: \
                     {tool} -I {chain} -i gb+ -o {default_link} -j ACCEPT; \
                     {tool} -I {chain} -o gb+ -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
                )
            }
            Self::ForwardDropped { family, table, chain } => format!(
                "chain {chain} of table {family} {table} drops forwarded packets by default; if the guest cannot \
                 reach the outside: nft insert rule {family} {table} {chain} iifname \"gb*\" oifname \"{default_link}\" accept; \
                 nft insert rule {family} {table} {chain} oifname \"gb*\" ct state established,related accept"
            ),
            Self::Firewalld => {
                "firewalld rejects forwarded packets of links in no zone; if the guest cannot reach the \
                                outside: firewall-cmd --zone=trusted --add-interface=gb+"
                    .to_owned()
            }
        }
    }
}

/// The obstacles in the answer of `nft -j list chains`. What iptables-legacy holds is not visible to nft.
pub fn obstacles(listing: &str) -> Result<Vec<Obstacle>, serde_json::Error> {
    let listing: Listing = serde_json::from_str(listing)?;
    let chains = listing.nftables.into_iter().filter_map(|object| object.chain);
    let mut found = Vec::new();
    for chain in chains.filter(|chain| chain.hook.as_deref() == Some("forward")) {
        if chain.family == "bridge" || chain.table.starts_with("garboard_") {
            continue;
        }
        if chain.table == "firewalld" && !found.contains(&Obstacle::Firewalld) {
            found.push(Obstacle::Firewalld);
        } else if chain.policy.as_deref() == Some("drop") {
            found.push(Obstacle::ForwardDropped { family: chain.family, table: chain.table, chain: chain.name });
        }
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<ListedObject>,
}

#[derive(Deserialize)]
struct ListedObject {
    chain: Option<ListedChain>,
}

#[derive(Deserialize)]
struct ListedChain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::pool::candidates;
    use super::*;
    use crate::observed::{Admin, Link, LinkAddress, Origin, Route};

    fn host() -> Observed {
        let link = |name: &str, mtu, alias: Option<&str>| Link {
            name: name.to_owned(),
            index: mtu,
            kind: None,
            mac: None,
            mtu,
            admin: Admin::Up,
            controller: None,
            alias: alias.map(str::to_owned),
        };
        let address = |link: &str, text: &str| LinkAddress { link: link.to_owned(), address: text.parse().unwrap() };
        Observed {
            links: vec![link("lo", 65536, None), link("eth0", 1400, None), link("gb0", 1400, Some("garboard other"))],
            addresses: vec![
                address("lo", "127.0.0.1/8"),
                address("eth0", "192.0.2.2/24"),
                address("eth0", "169.254.9.9/16"),
                address("gb0", "169.254.8.13/30"),
                address("gb0", "fd67:6172:626f:203::1/64"),
            ],
            routes: vec![Route {
                to: "0.0.0.0/0".parse().unwrap(),
                via: Some("192.0.2.1".parse().unwrap()),
                link: "eth0".to_owned(),
                origin: Origin::Configured,
            }],
        }
    }

    #[test]
    fn the_mtu_is_that_of_the_hosts_way_out() {
        assert_eq!(mtu(&host()), 1400);
        assert_eq!(mtu(&Observed::default()), 1500);
    }

    #[test]
    fn ipv6_of_our_own_links_is_no_way_out() {
        let mut host = host();
        assert_eq!(families(&host), Families::Ipv4);
        host.addresses.push(LinkAddress { link: "eth0".to_owned(), address: "fd00::2/64".parse().unwrap() });
        assert_eq!(families(&host), Families::Both);
    }

    #[test]
    fn a_wide_network_does_not_take_the_pool_but_its_address_does() {
        let taken = taken(&host(), &["169.254.64.0/18".parse().unwrap()]);
        let id: VmNetId = "vm".parse().unwrap();
        let left: Vec<IpNet> = candidates(&id, &taken).map(|network| network.host4().into()).collect();
        assert!(left.len() > 10_000);
        let free = |text: &str| left.contains(&text.parse().unwrap());
        assert!(free("169.254.8.17/30") && !free("169.254.8.13/30"), "another VM's link");
        assert!(!free("169.254.9.9/30"), "an address of the host");
        assert!(!free("169.254.70.1/30"), "a range the caller avoids");
    }

    #[test]
    fn the_table_of_a_vm_matches_its_link_alone() {
        let network = LinkNetwork::of_host("169.254.8.13/30".parse().unwrap()).unwrap();
        let id: VmNetId = "vm-1".parse().unwrap();
        let golden = |name: &str| {
            let path = std::path::Path::new("tests/golden").join(name);
            let got =
                ruleset(&id, network, if name.contains("both") { Families::Both } else { Families::Ipv4 }).to_string();
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&path, &got).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), got, "{}", path.display());
        };
        golden("uplink-both.nft");
        golden("uplink-ipv4.nft");
    }

    #[test]
    fn foreign_forward_policies_are_named_with_their_remedy() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 1, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
            {"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER", "handle": 2}},
            {"chain": {"family": "inet", "table": "firewalld", "name": "filter_FORWARD", "handle": 3, "type": "filter", "hook": "forward", "prio": 10, "policy": "accept"}},
            {"chain": {"family": "inet", "table": "own", "name": "fw", "handle": 4, "type": "filter", "hook": "forward", "prio": 10, "policy": "drop"}},
            {"chain": {"family": "inet", "table": "garboard_x", "name": "forward", "handle": 3, "type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}},
            {"chain": {"family": "inet", "table": "f", "name": "input", "handle": 3, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}]}"#;
        let found = obstacles(listing).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].remedy("eth0").contains("iptables -I DOCKER-USER (or FORWARD) -i gb+ -o eth0"),
            "{}",
            found[0].remedy("eth0")
        );
        assert!(found[1].remedy("eth0").contains("firewall-cmd"));
        assert!(
            found[2].remedy("eth0").contains("nft insert rule inet own fw iifname \"gb*\" oifname \"eth0\" accept")
        );
        assert!(obstacles("not json").is_err());
        assert_eq!(obstacles(r#"{"nftables": []}"#).unwrap(), []);
    }
}
