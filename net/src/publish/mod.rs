//! Ports of the host that lead to the guest: `-p 2222:22`.
//!
//! A relay in user space and not DNAT rules of the host, because it is what works everywhere:
//! - the port is held by a socket, so "already in use" is the kernel's answer, given before the VM starts,
//!   and no other program's connections are silently taken away;
//! - it works from the host's own localhost, for IPv4 and IPv6; DNAT needs `route_localnet` for that, which
//!   opens the host's loopback services to the guest, and cannot do it for `::1` at all;
//! - it needs no forwarding, so the drop policies of Docker and firewalld do not matter.
//!
//! The price: the guest sees the host's end of its link as the client's address, and the ports are served
//! only as long as this process lives. A listener is a descriptor, so a successor may take it over.

mod tcp;
mod udp;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::{Masquerade, Port, Protocol};

/// A port of the host that leads to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Publish {
    /// Where to listen; absent: all addresses of the host, both families.
    pub address: Option<IpAddr>,
    /// The host's port.
    pub host: NonZeroU16,
    /// The guest's port.
    pub guest: NonZeroU16,
    /// TCP or UDP.
    pub protocol: Published,
}

/// Protocols that can be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Published {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Publishing failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The text is not a port to publish.
    #[error(
        "`{text}` is not a port to publish: write [ADDRESS:]HOST:GUEST[/tcp|/udp], for example 2222:22 or [::1]:5353:53/udp"
    )]
    Syntax {
        /// What was written.
        text: String,
    },
    /// Another process listens there already.
    #[error("port {publish} is in use on this host; choose another host port")]
    InUse {
        /// What was to be published.
        publish: Publish,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The port may not be used by this user, or the address is not this host's.
    #[error("could not listen for {publish}")]
    Listen {
        /// What was to be published.
        publish: Publish,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The binding lets only listed ports through, and this is none of them.
    #[error("port {publish} has no target: the interface lists its ports and {}/{} is not among them; add it there", publish.guest, publish.protocol)]
    NotListed {
        /// What was to be published.
        publish: Publish,
    },
    /// The same port is published twice.
    #[error("port {publish} is published twice")]
    Twice {
        /// The second one.
        publish: Publish,
    },
}

impl FromStr for Publish {
    type Err = PublishError;

    fn from_str(text: &str) -> Result<Self, PublishError> {
        let wrong = || PublishError::Syntax { text: text.to_owned() };
        let (ports, protocol) = match text.rsplit_once('/') {
            None | Some((_, "tcp")) => (text.strip_suffix("/tcp").unwrap_or(text), Published::Tcp),
            Some((ports, "udp")) => (ports, Published::Udp),
            Some(_) => return Err(wrong()),
        };
        let (rest, guest) = ports.rsplit_once(':').ok_or_else(wrong)?;
        let (address, host) = match rest.rsplit_once(':') {
            None => (None, rest),
            Some((address, host)) => (Some(parse_address(address).ok_or_else(wrong)?), host),
        };
        let port = |text: &str| text.parse::<NonZeroU16>().map_err(|_| wrong());
        Ok(Self { address, host: port(host)?, guest: port(guest)?, protocol })
    }
}

/// An IPv4 address, or an IPv6 address in brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(inside) => inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            Some(IpAddr::V4(address)) => write!(f, "{address}:")?,
            None => {}
        }
        write!(f, "{}:{}/{}", self.host, self.guest, self.protocol)
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl TryFrom<String> for Publish {
    type Error = PublishError;

    fn try_from(text: String) -> Result<Self, PublishError> {
        text.parse()
    }
}

impl From<Publish> for String {
    fn from(publish: Publish) -> Self {
        publish.to_string()
    }
}

/// Whether what is published can get through the masquerade binding of the interface.
pub fn check(published: &[Publish], masquerade: &Masquerade) -> Result<(), PublishError> {
    let lets_through = |publish: &Publish| {
        let protocol = match publish.protocol {
            Published::Tcp => Protocol::Tcp,
            Published::Udp => Protocol::Udp,
        };
        masquerade.ports.is_empty() || masquerade.ports.contains(&Port { protocol, port: publish.guest })
    };
    match published.iter().find(|publish| !lets_through(publish)) {
        Some(publish) => Err(PublishError::NotListed { publish: *publish }),
        None => Ok(()),
    }
}

/// Held ports of the host, not yet served.
#[derive(Debug)]
pub struct Listeners {
    tcp: Vec<(std::net::TcpListener, NonZeroU16)>,
    udp: Vec<(std::net::UdpSocket, NonZeroU16)>,
}

/// Takes all these ports, or none.
pub fn listen(published: &[Publish]) -> Result<Listeners, PublishError> {
    let mut listeners = Listeners { tcp: Vec::new(), udp: Vec::new() };
    for (at, publish) in published.iter().enumerate() {
        let same = |earlier: &&Publish| {
            (earlier.address, earlier.host, earlier.protocol) == (publish.address, publish.host, publish.protocol)
        };
        if published.iter().take(at).find(same).is_some() {
            return Err(PublishError::Twice { publish: *publish });
        }
        let taken = |source: io::Error| {
            let publish = *publish;
            let in_use = source.kind() == io::ErrorKind::AddrInUse;
            if in_use { PublishError::InUse { publish, source } } else { PublishError::Listen { publish, source } }
        };
        match publish.protocol {
            Published::Tcp => {
                listeners.tcp.push((bind(publish, std::net::TcpListener::bind).map_err(taken)?, publish.guest))
            }
            Published::Udp => {
                listeners.udp.push((bind(publish, std::net::UdpSocket::bind).map_err(taken)?, publish.guest))
            }
        }
    }
    Ok(listeners)
}

/// Binds to the address given, else to all of both families; to IPv4 alone where the host has no IPv6.
fn bind<T>(publish: &Publish, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let port = publish.host.get();
    if let Some(address) = publish.address {
        return bind(SocketAddr::new(address, port));
    }
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => bind((Ipv4Addr::UNSPECIFIED, port).into()),
        bound => bound,
    }
}

/// Serves held ports until it is dropped. `guest` is the address of the VM's namespace
/// ([`crate::HostUplink::guest4`]): what arrives there reaches the guest, by DNAT or because it is the
/// guest's own. Must run within a tokio runtime with I/O and time enabled.
pub async fn relay(listeners: Listeners, guest: IpAddr) -> io::Result<Infallible> {
    let mut served: Vec<futures::future::BoxFuture<'static, io::Result<Infallible>>> = Vec::new();
    for (listener, port) in listeners.tcp {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        served.push(Box::pin(tcp::serve(listener, SocketAddr::new(guest, port.get()))));
    }
    for (socket, port) in listeners.udp {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        served.push(Box::pin(udp::serve(socket, SocketAddr::new(guest, port.get()))));
    }
    if served.is_empty() {
        return std::future::pending().await;
    }
    futures::future::select_all(served).await.0
}

#[cfg(test)]
mod tests;
