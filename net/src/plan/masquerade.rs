//! The nft table inside a VM's namespace: what the guest sends leaves with the uplink's address, what arrives
//! for the uplink goes to the guest. One table for all masquerade interfaces, replaced as a whole.
//!
//! The chain names are KubeVirt's where it has one, because administrators look for them. Beyond its rules these
//! add two limits: the guest may only use its own address, and it reaches nothing that listens in the
//! namespace except the services meant for it (DHCP, router discovery, ping).

use std::fmt::Write as _;

use super::desired::Desired;
use super::ruleset::{Chain, Hook, Rule, Ruleset};
use super::{Binding, Masquerade, NetPlan, Port, Protocol};

/// Name of the table inside the namespace.
pub const TABLE: &str = "garboard";

/// The rules for these interfaces; none if no interface is masqueraded.
pub fn ruleset(interfaces: &[(&NetPlan, &Desired)]) -> Option<Ruleset> {
    let mut inbound = Vec::new();
    let mut outbound = Vec::new();
    let mut chains = [Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for (plan, desired) in interfaces {
        let Binding::Masquerade(masquerade) = &plan.binding else { continue };
        let joined = Joined { plan, masquerade, desired };
        inbound.extend(joined.inbound());
        outbound.extend(joined.outbound());
        let [prerouting, output, postrouting, forward, input] = &mut chains;
        prerouting.push(joined.jump_inbound());
        output.extend(joined.localhost());
        postrouting.extend(joined.leaving());
        forward.extend(joined.spoofing());
        input.extend(joined.services());
    }
    if chains[0].is_empty() {
        return None;
    }
    let [prerouting, output, postrouting, forward, input] = chains;
    let base = |name, hook, rules| Chain { name, hook: Some(hook), rules };
    let chains = vec![
        Chain { name: "KUBEVIRT_PREINBOUND", hook: None, rules: inbound },
        Chain { name: "KUBEVIRT_POSTINBOUND", hook: None, rules: outbound },
        base("prerouting", Hook::NatPrerouting, prerouting),
        base("output", Hook::NatOutput, output),
        base("postrouting", Hook::NatPostrouting, postrouting),
        base("forward", Hook::FilterForward, forward),
        base("input", Hook::FilterInput, input),
    ];
    Some(Ruleset { table: TABLE.to_owned(), chains })
}

/// One masqueraded interface.
struct Joined<'a> {
    plan: &'a NetPlan,
    masquerade: &'a Masquerade,
    desired: &'a Desired,
}

impl Joined<'_> {
    /// (family for matches, family for dnat, guest) of each family that is served.
    fn guests(&self) -> impl Iterator<Item = (&'static str, String)> {
        let ipv4 = self.desired.guest.ipv4.as_ref().map(|lease| ("ip", lease.address.addr().to_string()));
        let ipv6 = self.desired.guest.ipv6.as_ref().map(|lease| ("ip6", lease.address.to_string()));
        ipv4.into_iter().chain(ipv6)
    }

    fn jump_inbound(&self) -> Rule {
        // Broadcasts and what merely passes is not for the guest.
        let uplink = &self.plan.uplink;
        Rule::new("arriving", format!("iifname \"{uplink}\" fib daddr type local jump KUBEVIRT_PREINBOUND"))
    }

    fn inbound(&self) -> Vec<Rule> {
        let uplink = &self.plan.uplink;
        let to_guest = |matches: &str| {
            let dnat = move |(family, guest): (&str, String)| {
                let protocol = if family == "ip" { "ipv4" } else { "ipv6" };
                let text = format!("iifname \"{uplink}\" meta nfproto {protocol} {matches}dnat {family} to {guest}");
                Rule::new("outside to guest", text)
            };
            self.guests().map(dnat).collect::<Vec<_>>()
        };
        if self.masquerade.ports.is_empty() {
            let kept = self.reserved(&format!("iifname \"{uplink}\""));
            return kept.into_iter().chain(to_guest("")).collect();
        }
        self.listed_ports().flat_map(|(protocol, ports)| to_guest(&format!("{protocol} dport {ports} "))).collect()
    }

    /// For each protocol that has listed ports, its name and the set.
    fn listed_ports(&self) -> impl Iterator<Item = (&'static str, String)> {
        [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().filter_map(|protocol| {
            let listed = |port: &&Port| port.protocol == protocol;
            let ports = self.masquerade.ports.iter().filter(listed).map(|port| port.port.get());
            Some((protocol.lower_case(), port_set(ports)?))
        })
    }

    /// Connections from inside the namespace to its localhost, for example those of `kubectl port-forward`,
    /// reach the guest.
    fn localhost(&self) -> Vec<Rule> {
        let Some(lease) = &self.desired.guest.ipv4 else { return Vec::new() };
        let guest = lease.address.addr();
        let rule = |matches: String| {
            Rule::new("localhost to guest", format!("ip daddr 127.0.0.1 {matches}dnat ip to {guest}"))
        };
        if !self.masquerade.ports.is_empty() {
            return self.listed_ports().map(|(protocol, ports)| rule(format!("{protocol} dport {ports} "))).collect();
        }
        let kept = self.reserved("ip daddr 127.0.0.1");
        kept.into_iter().chain([rule(String::new())]).collect()
    }

    fn reserved(&self, matches: &str) -> Option<Rule> {
        let ports = port_set(self.masquerade.reserved_tcp.iter().copied())?;
        Some(Rule::new("kept by the launcher", format!("{matches} tcp dport {ports} return")))
    }

    fn outbound(&self) -> Vec<Rule> {
        let Some(lease) = &self.desired.guest.ipv4 else { return Vec::new() };
        let text = format!("oifname \"{}\" ip saddr 127.0.0.1 snat ip to {}", self.plan.bridge, lease.server);
        vec![Rule::new("localhost to guest", text)]
    }

    fn leaving(&self) -> Vec<Rule> {
        let (uplink, bridge) = (&self.plan.uplink, &self.plan.bridge);
        let masquerade = |(family, guest)| {
            Rule::new("guest to outside", format!("oifname \"{uplink}\" {family} saddr {guest} masquerade"))
        };
        let jump = Rule::new("to guest", format!("oifname \"{bridge}\" jump KUBEVIRT_POSTINBOUND"));
        self.guests().map(masquerade).chain([jump]).collect()
    }

    fn spoofing(&self) -> Vec<Rule> {
        let bridge = &self.plan.bridge;
        let foreign = |(family, guest): (&str, String)| {
            Rule::new("not the guest's address", format!("iifname \"{bridge}\" {family} saddr != {guest} drop"))
        };
        let missing = [("ip", self.desired.guest.ipv4.is_none()), ("ip6", self.desired.guest.ipv6.is_none())];
        let unserved = missing.into_iter().filter(|(_, missing)| *missing).map(|(family, _)| {
            let protocol = if family == "ip" { "ipv4" } else { "ipv6" };
            Rule::new("family not served", format!("iifname \"{bridge}\" meta nfproto {protocol} drop"))
        });
        self.guests().map(foreign).chain(unserved).collect()
    }

    fn services(&self) -> Vec<Rule> {
        let bridge = &self.plan.bridge;
        let rule = |purpose, matches: &str| Rule::new(purpose, format!("iifname \"{bridge}\" {matches}"));
        vec![
            rule("guest's DHCP", "udp dport { 67, 547 } accept"),
            rule("guest's ping and neighbours", "meta l4proto { icmp, icmpv6 } accept"),
            rule("answers", "ct state established,related accept"),
            rule("nothing else of the namespace", "drop"),
        ]
    }
}

/// `{ 22, 80 }`, sorted, each once; none for no port.
fn port_set(ports: impl Iterator<Item = u16>) -> Option<String> {
    let ports: std::collections::BTreeSet<u16> = ports.collect();
    let mut set = String::new();
    for port in &ports {
        // Writing to a string cannot fail.
        let _ = write!(set, "{}{port}", if set.is_empty() { "{ " } else { ", " });
    }
    (!set.is_empty()).then(|| set + " }")
}

#[cfg(test)]
mod tests {
    use super::super::desired::desired;
    use super::super::tests::plan;
    use super::*;
    use crate::observed::{Admin, Link, LinkAddress, Observed};

    fn namespace(addresses: &[&str]) -> Observed {
        let link = Link {
            name: "eth0".to_owned(),
            index: 2,
            kind: None,
            mac: None,
            mtu: 1500,
            admin: Admin::Up,
            controller: None,
            alias: None,
        };
        let address = |text: &&str| LinkAddress { link: "eth0".to_owned(), address: text.parse().unwrap() };
        Observed { links: vec![link], addresses: addresses.iter().map(address).collect(), routes: Vec::new() }
    }

    fn script(masquerade: Masquerade, addresses: &[&str]) -> String {
        let plan = plan(Binding::Masquerade(masquerade));
        let desired = desired(&plan, &namespace(addresses)).unwrap();
        ruleset(&[(&plan, &desired)]).unwrap().to_string()
    }

    /// The golden files are what a reader of `nft list table inet garboard` sees, but for nft's spelling.
    fn assert_golden(name: &str, got: &str) {
        let path = std::path::Path::new("tests/golden").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, got).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), got, "{}", path.display());
    }

    fn port(protocol: Protocol, port: u16) -> Port {
        Port { protocol, port: port.try_into().unwrap() }
    }

    #[test]
    fn everything_reaches_the_guest_when_no_port_is_listed() {
        let both = ["10.244.1.7/24", "fd00::7/64"];
        assert_golden("masquerade-all.nft", &script(Masquerade::default(), &both));
        let reserved = Masquerade { reserved_tcp: vec![49153, 49152, 49152], ..Masquerade::default() };
        assert_golden("masquerade-reserved.nft", &script(reserved, &["10.244.1.7/24"]));
    }

    #[test]
    fn only_listed_ports_reach_the_guest() {
        let ports =
            vec![port(Protocol::Udp, 53), port(Protocol::Tcp, 443), port(Protocol::Tcp, 22), port(Protocol::Sctp, 5)];
        let masquerade = Masquerade { ports, ..Masquerade::default() };
        assert_golden("masquerade-ports.nft", &script(masquerade, &["10.244.1.7/24", "fd00::7/64"]));
    }

    #[test]
    fn a_namespace_with_ipv6_alone_lets_no_ipv4_through() {
        assert_golden("masquerade-ipv6.nft", &script(Masquerade::default(), &["fd00::7/64"]));
    }

    #[test]
    fn bridge_binding_needs_no_rules() {
        let plan = plan(Binding::Bridge);
        let desired = desired(&plan, &namespace(&["10.244.1.7/24"])).unwrap();
        assert_eq!(ruleset(&[(&plan, &desired)]), None);
    }
}
