//! The other end of a request for interfaces: what a shim on a bare host and a node agent on a cluster do alike, in the
//! namespace that they are given.

use std::error::Error;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use garboard_net::resolv::Resolver;
use garboard_net::{Binding, GuestAddresses, Masquerade, NetError, NetNs, NetPlan, Port, Protocol, Sockets};
use garboard_protocol::agent::{
    AgentReply, BRIDGE, BindingRequest, InterfaceReply, InterfaceRequest, SocketKind, UPLINK,
};

/// An answer and the descriptors that go with it.
#[derive(Debug)]
pub struct Reply {
    /// The answer.
    pub message: AgentReply<GuestAddresses>,
    /// What it announces, in its order.
    pub descriptors: Vec<OwnedFd>,
}

impl From<AgentReply<GuestAddresses>> for Reply {
    fn from(message: AgentReply<GuestAddresses>) -> Self {
        Self { message, descriptors: Vec::new() }
    }
}

/// Interfaces of one machine, and what is to be done for each.
#[derive(Clone, Copy, Debug)]
pub struct Interfaces<'a> {
    /// As they were requested.
    pub requests: &'a [InterfaceRequest],
    /// Their [`net_plans`].
    pub plans: &'a [NetPlan],
}

/// Why interfaces were not made.
#[derive(Debug, thiserror::Error)]
pub enum PlumbingError {
    /// A value of the request is invalid.
    #[error("interface {interface}: `{value}` is not a {what}")]
    Malformed {
        /// Name of the interface.
        interface: String,
        /// What the value should be.
        what: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The protocol of a port is unknown.
    #[error("unknown protocol `{0}`")]
    UnknownProtocol(String),
    /// The network was not changed.
    #[error("could not {doing}")]
    Network {
        /// What was being done.
        doing: &'static str,
        /// What stood in the way.
        #[source]
        source: NetError,
    },
}

/// What is to be done for each request.
///
/// # Errors
/// [`PlumbingError::Malformed`] and [`PlumbingError::UnknownProtocol`].
pub fn net_plans(requests: &[InterfaceRequest]) -> Result<Vec<NetPlan>, PlumbingError> {
    requests.iter().map(net_plan).collect()
}

/// Makes the interfaces and answers with taps, vhost descriptors and sockets.
///
/// # Errors
/// [`PlumbingError::Network`]; every change is undone.
pub async fn plumb(namespace: &NetNs, interfaces: Interfaces<'_>, resolver: &Resolver) -> Result<Reply, PlumbingError> {
    let made = garboard_net::plumb(namespace, interfaces.plans)
        .await
        .map_err(|source| PlumbingError::Network { doing: "create the machine's interfaces", source })?;
    let (mut replies, mut descriptors) = (Vec::new(), Vec::new());
    for (request, interface) in interfaces.requests.iter().zip(made.interfaces) {
        let counts = DescriptorCounts { taps: interface.taps.len(), vhosts: interface.vhosts.len() };
        descriptors.extend(interface.taps.into_iter().chain(interface.vhosts));
        let kinds = push_sockets(interface.sockets, &mut descriptors);
        replies.push(InterfaceReply { sockets: kinds, ..describe(request, counts, interface.guest, resolver) });
    }
    Ok(Reply { message: AgentReply::Plumbed { interfaces: replies }, descriptors })
}

/// Opens the sockets of interfaces that exist already.
///
/// # Errors
/// [`PlumbingError::Network`].
pub async fn sockets(
    namespace: &NetNs,
    interfaces: Interfaces<'_>,
    resolver: &Resolver,
) -> Result<Reply, PlumbingError> {
    let opened = garboard_net::sockets(namespace, interfaces.plans)
        .await
        .map_err(|source| PlumbingError::Network { doing: "open the DHCP sockets again", source })?;
    let (mut replies, mut descriptors) = (Vec::new(), Vec::new());
    for (request, (sockets, guest)) in interfaces.requests.iter().zip(opened) {
        let kinds = push_sockets(sockets, &mut descriptors);
        let counts = DescriptorCounts::default();
        replies.push(InterfaceReply { sockets: kinds, ..describe(request, counts, guest, resolver) });
    }
    Ok(Reply { message: AgentReply::Plumbed { interfaces: replies }, descriptors })
}

/// How many descriptors of an interface are sent.
#[derive(Clone, Copy, Default)]
struct DescriptorCounts {
    taps: usize,
    vhosts: usize,
}

/// An interface without its sockets.
fn describe(
    request: &InterfaceRequest,
    counts: DescriptorCounts,
    addresses: GuestAddresses,
    resolver: &Resolver,
) -> InterfaceReply<GuestAddresses> {
    InterfaceReply {
        name: request.name.clone(),
        taps: counts.taps,
        vhosts: counts.vhosts,
        sockets: Vec::new(),
        addresses,
        nameservers: resolver.nameservers.iter().map(ToString::to_string).collect(),
        searches: resolver.searches.clone(),
    }
}

fn push_sockets(sockets: Sockets, descriptors: &mut Vec<OwnedFd>) -> Vec<SocketKind> {
    let all = [
        (SocketKind::Dhcp4, sockets.dhcp4),
        (SocketKind::Dhcp6, sockets.dhcp6),
        (SocketKind::RouterAdvertisement, sockets.router_advertisement),
    ];
    let mut kinds = Vec::new();
    for (kind, descriptor) in all {
        if let Some(descriptor) = descriptor {
            kinds.push(kind);
            descriptors.push(descriptor);
        }
    }
    kinds
}

fn net_plan(request: &InterfaceRequest) -> Result<NetPlan, PlumbingError> {
    let binding = match &request.binding {
        BindingRequest::Bridge => Binding::Bridge,
        BindingRequest::Masquerade { ipv4, ipv6, ports } => Binding::Masquerade(Masquerade {
            ipv4: parse(request, "IPv4 range", ipv4)?,
            ipv6: parse(request, "IPv6 range", ipv6)?,
            ports: ports.iter().map(|(protocol, number)| port(request, protocol, *number)).collect::<Result<_, _>>()?,
            reserved_tcp: Vec::new(),
        }),
    };
    let queues = u16::try_from(request.queues)
        .map_err(|source| malformed(request, "number of queues", request.queues, source.into()))?;
    Ok(NetPlan {
        interface: request.name.clone(),
        uplink: parse(request, "name of a link", UPLINK)?,
        bridge: parse(request, "name of a link", BRIDGE)?,
        tap: parse(request, "name of a link", &request.tap)?,
        mac: parse(request, "MAC address", &request.mac)?,
        mtu: None,
        queues,
        binding,
    })
}

fn port(request: &InterfaceRequest, protocol: &str, number: u16) -> Result<Port, PlumbingError> {
    let protocol = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => return Err(PlumbingError::UnknownProtocol(other.to_owned())),
    };
    let port = number
        .try_into()
        .map_err(|source: std::num::TryFromIntError| malformed(request, "port", number, source.into()))?;
    Ok(Port { protocol, port })
}

fn parse<T>(request: &InterfaceRequest, what: &'static str, text: &str) -> Result<T, PlumbingError>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    text.parse().map_err(|source: T::Err| malformed(request, what, text, source.into()))
}

fn malformed(
    request: &InterfaceRequest,
    what: &'static str,
    value: impl Display,
    source: Box<dyn Error + Send + Sync>,
) -> PlumbingError {
    PlumbingError::Malformed { interface: request.name.clone(), what, value: value.to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(binding: BindingRequest) -> InterfaceRequest {
        let mac = "02:00:00:aa:bb:01".to_owned();
        InterfaceRequest { name: "default".into(), tap: "tap0".into(), mac, queues: 1, binding }
    }

    fn masquerade(ipv4: &str, ports: Vec<(String, u16)>) -> InterfaceRequest {
        request(BindingRequest::Masquerade { ipv4: ipv4.into(), ipv6: "fd10:0:2::/120".into(), ports })
    }

    #[test]
    fn a_request_becomes_a_plan() {
        let plans = net_plans(&[masquerade("10.0.2.0/24", vec![("TCP".into(), 22)])]).unwrap();
        assert_eq!(plans[0].uplink.to_string(), UPLINK);
        let Binding::Masquerade(masquerade) = &plans[0].binding else { panic!("{plans:?}") };
        assert_eq!(masquerade.ports.len(), 1);
    }

    #[test]
    fn planner_and_network_have_the_same_default_ranges() {
        assert_eq!(garboard_plan::DEFAULT_IPV4, garboard_net::DEFAULT_IPV4.to_string());
        assert_eq!(garboard_plan::DEFAULT_IPV6, garboard_net::DEFAULT_IPV6.to_string());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let bad = [
            masquerade("10.0.2.0", Vec::new()),
            masquerade("10.0.2.0/24", vec![("TCP".into(), 0)]),
            masquerade("10.0.2.0/24", vec![("ICMP".into(), 1)]),
            InterfaceRequest { queues: 70_000, ..request(BindingRequest::Bridge) },
            InterfaceRequest { tap: "../../etc/passwd".into(), ..request(BindingRequest::Bridge) },
            InterfaceRequest { mac: "none".into(), ..request(BindingRequest::Bridge) },
        ];
        for request in bad {
            assert!(net_plans(std::slice::from_ref(&request)).is_err(), "{request:?}");
        }
    }
}
