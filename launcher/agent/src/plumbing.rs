//! The other end of a request for interfaces: what a shim on a bare host and a node agent on a cluster do alike,
//! whoever's namespace it is.

use std::error::Error;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use garboard_net::resolv::Resolver;
use garboard_net::{Binding, GuestAddresses, Masquerade, NetError, NetNs, NetPlan, Port, Protocol, Sockets};
use garboard_plan::{BindingPlan, Protocol as PlannedProtocol};
use garboard_protocol::agent::{
    AgentReply, BRIDGE, BindingRequest, InterfaceRequest, PlumbedInterface, SocketKind, UPLINK,
};

/// An answer and the descriptors that go with it.
pub type Reply = (AgentReply<GuestAddresses>, Vec<OwnedFd>);

/// Why interfaces were not made.
#[derive(Debug, thiserror::Error)]
pub enum PlumbingError {
    /// A word of the request is not what it should be.
    #[error("interface {interface}: `{value}` is not a {what}")]
    Malformed {
        /// Name of the interface.
        interface: String,
        /// What the word should be.
        what: &'static str,
        /// The word.
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

/// The tap of a binding, and what whoever has power over the network does with it; nothing for bindings that need nobody.
#[must_use]
pub fn tapped(binding: &BindingPlan) -> Option<(String, BindingRequest)> {
    match binding {
        BindingPlan::Masquerade { tap, ipv4, ipv6, ports, .. } => {
            let ports = ports.iter().map(|plan| (word_of(plan.protocol).to_owned(), plan.port)).collect();
            Some((tap.clone(), BindingRequest::Masquerade { ipv4: ipv4.clone(), ipv6: ipv6.clone(), ports }))
        }
        BindingPlan::Bridge { tap } => Some((tap.clone(), BindingRequest::Bridge)),
        BindingPlan::User { .. } | BindingPlan::Passt { .. } => None,
    }
}

fn word_of(protocol: PlannedProtocol) -> &'static str {
    match protocol {
        PlannedProtocol::Tcp => "TCP",
        PlannedProtocol::Udp => "UDP",
        PlannedProtocol::Sctp => "SCTP",
    }
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
/// [`PlumbingError::Network`]; everything that was changed is taken back.
pub async fn plumb(
    namespace: &NetNs,
    (requests, plans): (&[InterfaceRequest], &[NetPlan]),
    resolver: &Resolver,
) -> Result<Reply, PlumbingError> {
    let made = garboard_net::plumb(namespace, plans)
        .await
        .map_err(|source| PlumbingError::Network { doing: "create the machine's interfaces", source })?;
    let (mut replies, mut descriptors) = (Vec::new(), Vec::new());
    for (request, interface) in requests.iter().zip(made.interfaces) {
        let counts = (interface.taps.len(), interface.vhosts.len());
        descriptors.extend(interface.taps.into_iter().chain(interface.vhosts));
        let kinds = push_sockets(interface.sockets, &mut descriptors);
        replies.push(describe((request, counts), kinds, interface.guest, resolver));
    }
    Ok((AgentReply::Plumbed { interfaces: replies }, descriptors))
}

/// Opens the sockets of interfaces that exist already.
///
/// # Errors
/// [`PlumbingError::Network`].
pub async fn sockets(
    namespace: &NetNs,
    (requests, plans): (&[InterfaceRequest], &[NetPlan]),
    resolver: &Resolver,
) -> Result<Reply, PlumbingError> {
    let opened = garboard_net::sockets(namespace, plans)
        .await
        .map_err(|source| PlumbingError::Network { doing: "open the DHCP sockets again", source })?;
    let (mut replies, mut descriptors) = (Vec::new(), Vec::new());
    for (request, (sockets, guest)) in requests.iter().zip(opened) {
        let kinds = push_sockets(sockets, &mut descriptors);
        replies.push(describe((request, (0, 0)), kinds, guest, resolver));
    }
    Ok((AgentReply::Plumbed { interfaces: replies }, descriptors))
}

fn describe(
    (request, (taps, vhosts)): (&InterfaceRequest, (usize, usize)),
    sockets: Vec<SocketKind>,
    addresses: GuestAddresses,
    resolver: &Resolver,
) -> PlumbedInterface<GuestAddresses> {
    PlumbedInterface {
        name: request.name.clone(),
        taps,
        vhosts,
        sockets,
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
            ipv4: word(request, "IPv4 range", ipv4)?,
            ipv6: word(request, "IPv6 range", ipv6)?,
            ports: ports.iter().map(|one| port(request, one)).collect::<Result<_, _>>()?,
            reserved_tcp: Vec::new(),
        }),
    };
    let queues = u16::try_from(request.queues)
        .map_err(|source| malformed(request, ("number of queues", request.queues), source.into()))?;
    Ok(NetPlan {
        interface: request.name.clone(),
        uplink: word(request, "name of a link", UPLINK)?,
        bridge: word(request, "name of a link", BRIDGE)?,
        tap: word(request, "name of a link", &request.tap)?,
        mac: word(request, "MAC address", &request.mac)?,
        mtu: None,
        queues,
        binding,
    })
}

fn port(request: &InterfaceRequest, (protocol, number): &(String, u16)) -> Result<Port, PlumbingError> {
    let protocol = match protocol.as_str() {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => return Err(PlumbingError::UnknownProtocol(other.to_owned())),
    };
    let port = (*number)
        .try_into()
        .map_err(|source: std::num::TryFromIntError| malformed(request, ("port", u32::from(*number)), source.into()))?;
    Ok(Port { protocol, port })
}

fn word<T>(request: &InterfaceRequest, what: &'static str, text: &str) -> Result<T, PlumbingError>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    text.parse().map_err(|source: T::Err| malformed(request, (what, text), source.into()))
}

fn malformed(
    request: &InterfaceRequest,
    (what, value): (&'static str, impl Display),
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
