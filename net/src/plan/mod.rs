//! What is wanted for each interface of a VM, and (in the files below) what must therefore exist in its
//! network namespace. Pure: sees no namespace, no clock, no file.
//!
//! The caller of this crate maps its own types (a VMI, a message of the agent's protocol) to [`NetPlan`].
//! Whether the guest sees the link up or down (`state` of an interface) is QEMU's `set_link`, not ours.

pub mod desired;
pub mod guest;
pub mod masquerade;
pub mod pool;
pub mod ruleset;
pub mod uplink;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::names::{EthernetAddress, LinkName};

/// Most queues one tap may have: `MAX_TAP_QUEUES` of the kernel's `drivers/net/tun.c`.
pub const QUEUES_MAX: u16 = 256;

/// Smallest MTU accepted for a link the guest uses, bytes: what every IPv4 host must take (RFC 791).
pub const MTU_MIN: u16 = 576;

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetPlanError {
    /// The number of queues is out of range.
    #[error("interface `{interface}`: {queues} queues; write 1 to 256")]
    Queues {
        /// The interface.
        interface: String,
        /// What was asked.
        queues: u16,
    },
    /// The MTU is out of range.
    #[error("interface `{interface}`: MTU {mtu} is too small; write at least 576")]
    Mtu {
        /// The interface.
        interface: String,
        /// What was asked.
        mtu: u16,
    },
    /// The range has no room for a gateway and a guest.
    #[error("the guest's range {range} is too narrow: it must hold a gateway and a guest, so write at most /{longest}")]
    RangeTooNarrow {
        /// The range.
        range: String,
        /// Longest prefix that is accepted.
        longest: u8,
    },
    /// Two interfaces have the same name or the same link.
    #[error("interface `{interface}`: {what} `{name}` is used by interface `{other}` too; give each its own")]
    Clash {
        /// The later interface.
        interface: String,
        /// The earlier one.
        other: String,
        /// Which property.
        what: &'static str,
        /// Its value.
        name: String,
    },
    /// The uplink of an interface is not in the namespace.
    #[error("interface `{interface}`: the namespace has no link `{uplink}` to join it to")]
    NoUplink {
        /// The interface.
        interface: String,
        /// The link that is missing.
        uplink: LinkName,
    },
    /// The guest's range and the uplink's overlap: routing could not distinguish them.
    #[error(
        "interface `{interface}`: the guest's range {range} overlaps {taken} of the uplink; choose another `vmNetworkCIDR`"
    )]
    RangeTaken {
        /// The interface.
        interface: String,
        /// The guest's range.
        range: String,
        /// The address or route it overlaps.
        taken: String,
    },
    /// A record on the bridge is not one of ours.
    #[error(
        "interface `{interface}`: the bridge `{bridge}` carries the record `{record}`, which this version cannot read"
    )]
    Record {
        /// The interface.
        interface: String,
        /// The bridge.
        bridge: LinkName,
        /// What is written there.
        record: String,
    },
    /// Another tap is on the bridge.
    #[error("interface `{interface}`: the bridge `{bridge}` has the tap `{tap}` already, and takes one")]
    BridgeTaken {
        /// The interface.
        interface: String,
        /// The bridge.
        bridge: LinkName,
        /// The tap that is there.
        tap: String,
    },
    /// What must be remembered of the uplink does not fit into a link's alias.
    #[error("interface `{interface}`: {routes} routes of the uplink are too many to hand to a guest by bridge binding")]
    TooManyRoutes {
        /// The interface.
        interface: String,
        /// How many there are.
        routes: usize,
    },
}

/// One interface of the VM and how it is joined to the network. The links' names are decided by the caller
/// and unique among the plans given together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetPlan {
    /// The interface's name in the manifest, for messages.
    pub interface: String,
    /// The link of the namespace that leads outside, for example `eth0`.
    pub uplink: LinkName,
    /// The bridge to make, for example `k6t-eth0`.
    pub bridge: LinkName,
    /// The tap to make, for example `tap0`.
    pub tap: LinkName,
    /// Address of the guest's NIC.
    pub mac: EthernetAddress,
    /// Largest packet, bytes; the uplink's when absent.
    pub mtu: Option<u16>,
    /// Queues of the tap, 1 to [`QUEUES_MAX`].
    pub queues: u16,
    /// How it is joined.
    pub binding: Binding,
}

/// How an interface is joined to the namespace's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Binding {
    /// The guest has an address of its own behind network address translation.
    Masquerade(Masquerade),
    /// The guest gets the namespace's own address.
    Bridge,
}

/// Ranges and ports of the masquerade binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Masquerade {
    /// Range of gateway (first address) and guest (second). Default `10.0.2.0/24`.
    #[serde(default = "default_ipv4")]
    pub ipv4: Ipv4Net,
    /// Range of gateway (first address) and guest (second). Default `fd10:0:2::/120`.
    #[serde(default = "default_ipv6")]
    pub ipv6: Ipv6Net,
    /// If not empty, only these ports reach the guest; otherwise everything does.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// TCP ports that stay with the namespace although `ports` is empty: those the launcher itself listens
    /// on, for example for a migration.
    #[serde(default)]
    pub reserved_tcp: Vec<u16>,
}

impl Default for Masquerade {
    fn default() -> Self {
        Self { ipv4: default_ipv4(), ipv6: default_ipv6(), ports: Vec::new(), reserved_tcp: Vec::new() }
    }
}

/// The guest's IPv4 range when the manifest gives none.
pub const DEFAULT_IPV4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 2, 0), 24);

/// The guest's IPv6 range when the manifest gives none.
pub const DEFAULT_IPV6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 0), 120);

fn default_ipv4() -> Ipv4Net {
    DEFAULT_IPV4
}

fn default_ipv6() -> Ipv6Net {
    DEFAULT_IPV6
}

/// A port that reaches the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number, 1 to 65535.
    pub port: std::num::NonZeroU16,
}

/// Protocols that have ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As nft writes it.
    pub fn lower_case(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// Checks what can be checked without looking at a namespace: ranges, numbers, clashes between plans.
pub fn check(plans: &[NetPlan]) -> Result<(), NetPlanError> {
    plans.iter().try_for_each(check_one)?;
    plans
        .iter()
        .enumerate()
        .try_for_each(|(at, plan)| plans.iter().take(at).try_for_each(|earlier| check_pair(earlier, plan)))
}

fn check_one(plan: &NetPlan) -> Result<(), NetPlanError> {
    let interface = || plan.interface.clone();
    if !(1..=QUEUES_MAX).contains(&plan.queues) {
        return Err(NetPlanError::Queues { interface: interface(), queues: plan.queues });
    }
    if let Some(mtu) = plan.mtu.filter(|mtu| *mtu < MTU_MIN) {
        return Err(NetPlanError::Mtu { interface: interface(), mtu });
    }
    if let Binding::Masquerade(masquerade) = &plan.binding {
        masquerade.gateway_and_guest4()?;
        masquerade.gateway_and_guest6()?;
    }
    Ok(())
}

fn check_pair(earlier: &NetPlan, plan: &NetPlan) -> Result<(), NetPlanError> {
    let both = [
        ("name", &earlier.interface, &plan.interface),
        ("uplink", &earlier.uplink.to_string(), &plan.uplink.to_string()),
        ("bridge", &earlier.bridge.to_string(), &plan.bridge.to_string()),
        ("tap", &earlier.tap.to_string(), &plan.tap.to_string()),
        ("MAC address", &earlier.mac.to_string(), &plan.mac.to_string()),
    ];
    let same = both.into_iter().find(|(_, one, other)| one == other).map(|(what, name, _)| (what, name.clone()));
    match same.or_else(|| shared_range(&earlier.binding, &plan.binding)) {
        None => Ok(()),
        Some((what, name)) => {
            Err(NetPlanError::Clash { interface: plan.interface.clone(), other: earlier.interface.clone(), what, name })
        }
    }
}

/// The range of `binding` if it overlaps that of `earlier`: one namespace cannot route to both.
fn shared_range(earlier: &Binding, binding: &Binding) -> Option<(&'static str, String)> {
    let (Binding::Masquerade(one), Binding::Masquerade(other)) = (earlier, binding) else { return None };
    let overlap4 = one.ipv4.contains(&other.ipv4.network()) || other.ipv4.contains(&one.ipv4.network());
    let overlap6 = one.ipv6.contains(&other.ipv6.network()) || other.ipv6.contains(&one.ipv6.network());
    let range = if overlap4 { Some(other.ipv4.to_string()) } else { overlap6.then(|| other.ipv6.to_string()) };
    range.map(|range| ("range", range))
}

impl Masquerade {
    /// Gateway and guest in the IPv4 range: its first and second address.
    pub fn gateway_and_guest4(&self) -> Result<(Ipv4Addr, Ipv4Addr), NetPlanError> {
        let too_narrow = || NetPlanError::RangeTooNarrow { range: self.ipv4.to_string(), longest: 30 };
        if self.ipv4.prefix_len() > 30 {
            return Err(too_narrow());
        }
        let mut hosts = self.ipv4.trunc().hosts();
        hosts.next().zip(hosts.next()).ok_or_else(too_narrow)
    }

    /// Gateway and guest in the IPv6 range: its first and second address.
    pub fn gateway_and_guest6(&self) -> Result<(Ipv6Addr, Ipv6Addr), NetPlanError> {
        let too_narrow = || NetPlanError::RangeTooNarrow { range: self.ipv6.to_string(), longest: 126 };
        if self.ipv6.prefix_len() > 126 {
            return Err(too_narrow());
        }
        let network = u128::from(self.ipv6.network());
        Ok((Ipv6Addr::from(network | 1), Ipv6Addr::from(network | 2)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(binding: Binding) -> NetPlan {
        NetPlan {
            interface: "default".to_owned(),
            uplink: "eth0".parse().unwrap(),
            bridge: "k6t-eth0".parse().unwrap(),
            tap: "tap0".parse().unwrap(),
            mac: "02:00:00:aa:bb:01".parse().unwrap(),
            mtu: None,
            queues: 1,
            binding,
        }
    }

    #[test]
    fn the_first_two_addresses_of_a_range_are_gateway_and_guest() {
        let default = Masquerade::default();
        assert_eq!(default.gateway_and_guest4().unwrap(), (Ipv4Addr::new(10, 0, 2, 1), Ipv4Addr::new(10, 0, 2, 2)));
        let (gateway, guest) = default.gateway_and_guest6().unwrap();
        assert_eq!((gateway.to_string().as_str(), guest.to_string().as_str()), ("fd10:0:2::1", "fd10:0:2::2"));
        let narrow = Masquerade { ipv4: "192.168.1.77/30".parse().unwrap(), ..Masquerade::default() };
        assert_eq!(narrow.gateway_and_guest4().unwrap().1, Ipv4Addr::new(192, 168, 1, 78));
    }

    #[test]
    fn a_range_without_room_for_two_is_refused() {
        let four = Masquerade { ipv4: "10.0.2.0/31".parse().unwrap(), ..Masquerade::default() };
        assert!(matches!(
            check(&[plan(Binding::Masquerade(four))]),
            Err(NetPlanError::RangeTooNarrow { longest: 30, .. })
        ));
        let six = Masquerade { ipv6: "fd10::/127".parse().unwrap(), ..Masquerade::default() };
        assert!(matches!(
            check(&[plan(Binding::Masquerade(six))]),
            Err(NetPlanError::RangeTooNarrow { longest: 126, .. })
        ));
    }

    #[test]
    fn queues_and_mtu_out_of_range_are_refused() {
        for queues in [0, 257] {
            let refused = check(&[NetPlan { queues, ..plan(Binding::Bridge) }]);
            assert!(matches!(refused, Err(NetPlanError::Queues { .. })));
        }
        assert!(check(&[NetPlan { queues: 256, ..plan(Binding::Bridge) }]).is_ok());
        let refused = check(&[NetPlan { mtu: Some(575), ..plan(Binding::Bridge) }]);
        assert!(matches!(refused, Err(NetPlanError::Mtu { mtu: 575, .. })));
    }

    #[test]
    fn plans_that_share_a_link_are_refused_by_the_later_name() {
        let second = NetPlan {
            interface: "second".to_owned(),
            uplink: "eth1".parse().unwrap(),
            bridge: "k6t-eth1".parse().unwrap(),
            mac: "02:00:00:aa:bb:02".parse().unwrap(),
            ..plan(Binding::Bridge)
        };
        let refused = check(&[plan(Binding::Bridge), second]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "interface `second`: tap `tap0` is used by interface `default` too; give each its own"
        );
    }

    #[test]
    fn a_masquerade_written_empty_has_the_defaults() {
        let read: Masquerade = serde_json::from_str("{}").unwrap();
        assert_eq!(read, Masquerade::default());
        assert!(serde_json::from_str::<Masquerade>(r#"{"port":[]}"#).is_err());
    }
}
