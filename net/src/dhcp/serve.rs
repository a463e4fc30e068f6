//! The loops around the pure servers `v4`, `v6` and `ra`: sockets, time, rates. One future for each socket; they end only
//! with an error that will not pass.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::Duration;

use futures::future::{Either, select, try_join3};
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::options::{DhcpOptions, OptionError};
use super::ra;
use super::rate::{RateLimit, Refusals};
use super::v4::{self, Config4};
use super::v6::{self, Config6};
use crate::names::EthernetAddress;
use crate::plan::guest::GuestAddresses;
use crate::plumb::Sockets;

/// Where DHCPv4 clients listen.
const DHCP4_CLIENT: u16 = 68;
/// Where DHCPv6 clients listen; answers go back to the port a request came from only if it is this one.
const DHCP6_CLIENT: u16 = 546;
/// All nodes of a link (RFC 4291).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Answers per second of one service in the long run. A guest that boots needs a handful in all.
const ANSWERS_PER_SECOND: u32 = 10;
/// Answers of one service at once.
const ANSWERS_AT_ONCE: u32 = 40;
/// How long to wait after an error that passes, such as a link that is down.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest message read, bytes; what is longer is cut and then not understood.
const MESSAGE_MAX: usize = 1500;

/// Serving ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The options cannot be sent.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// A socket is of no use any more.
    #[error("the {service} socket failed")]
    Socket {
        /// Which one.
        service: &'static str,
        /// How.
        #[source]
        source: io::Error,
    },
}

/// One guest and what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestService {
    /// The guest's Ethernet address.
    pub mac: EthernetAddress,
    /// Its addresses, as plumbing returned them.
    pub addresses: GuestAddresses,
    /// Everything else.
    pub options: DhcpOptions,
}

/// Serves one guest on the sockets of its interface until a socket fails; drop it to stop. Must run within a
/// tokio runtime with I/O and time enabled.
pub async fn serve(sockets: Sockets, service: &GuestService) -> Result<Infallible, ServeError> {
    let GuestService { mac, addresses, options } = service;
    let (options, left_out) = options.clone().sendable();
    for error in left_out {
        tracing::warn!(%error, "a DHCP option cannot be encoded and is left out");
    }
    let dhcp4 = match sockets.dhcp4.zip(addresses.ipv4.as_ref()) {
        Some((socket, lease)) => Some((socket, Config4::new(*mac, lease, addresses.mtu, &options)?)),
        None => None,
    };
    let config6 = match &addresses.ipv6 {
        Some(lease) => Some(Config6::new(lease, addresses.mtu, &options)?),
        None => None,
    };
    let dhcp6 = sockets.dhcp6.zip(config6.as_ref());
    let advertise = sockets.router_advertisement.zip(config6.as_ref());
    let (ended, _, _) = try_join3(
        run_or_wait(dhcp4.map(|(socket, config)| serve4(socket, config))),
        run_or_wait(dhcp6.map(|(socket, config)| serve6(socket, config))),
        run_or_wait(advertise.map(|(socket, config)| serve_advertisements(socket, config))),
    )
    .await?;
    Ok(ended)
}

/// A service that is not given is one that never ends.
async fn run_or_wait(
    service: Option<impl Future<Output = Result<Infallible, ServeError>>>,
) -> Result<Infallible, ServeError> {
    match service {
        Some(service) => service.await,
        None => std::future::pending().await,
    }
}

/// A socket with its name and its rate.
struct Served {
    name: &'static str,
    socket: UdpSocket,
    rate: RateLimit,
    refusals: Refusals,
    started: Instant,
    buffer: Vec<u8>,
}

impl Served {
    fn new(name: &'static str, socket: OwnedFd) -> Result<Self, ServeError> {
        // The raw ICMPv6 socket is driven by this type too: it only ever receives and sends messages with
        // addresses, which raw sockets do in the same way (raw(7)).
        let socket = std::net::UdpSocket::from(socket);
        let opened = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket));
        Ok(Self {
            name,
            socket: opened.map_err(|source| ServeError::Socket { service: name, source })?,
            rate: RateLimit::new(ANSWERS_PER_SECOND, ANSWERS_AT_ONCE),
            refusals: Refusals::default(),
            started: Instant::now(),
            buffer: vec![0; MESSAGE_MAX],
        })
    }

    /// The next message that may be answered at this rate.
    async fn receive(&mut self) -> Result<(&[u8], SocketAddr), ServeError> {
        loop {
            let (length, from) = match self.socket.recv_from(&mut self.buffer).await {
                Ok(received) => received,
                Err(error) => {
                    self.pause_or_fail(error).await?;
                    continue;
                }
            };
            let is_admitted = self.rate.admit(self.started.elapsed());
            if self.refusals.is_first(is_admitted) {
                tracing::trace!(service = self.name, "too many messages; this one is not answered, nor are others now");
            }
            if is_admitted {
                return Ok((self.buffer.get(..length).unwrap_or_default(), from));
            }
        }
    }

    async fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<(), ServeError> {
        match self.socket.send_to(bytes, to).await {
            Ok(_) => Ok(()),
            Err(error) => self.pause_or_fail(error).await,
        }
    }

    async fn pause_or_fail(&self, source: io::Error) -> Result<(), ServeError> {
        if !passes(&source) {
            return Err(ServeError::Socket { service: self.name, source });
        }
        tracing::debug!(service = self.name, error = %source, "waiting for the link");
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// Errors of a link that is not ready, or of a guest that is not there.
fn passes(error: &io::Error) -> bool {
    use nix::libc;
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ECONNREFUSED
                | libc::ENOBUFS
                | libc::EADDRNOTAVAIL
                | libc::EINTR
                | libc::EMSGSIZE
                | libc::EPERM
        )
    )
}

async fn serve4(socket: OwnedFd, config: Config4) -> Result<Infallible, ServeError> {
    let mut served = Served::new("DHCPv4", socket)?;
    loop {
        let (packet, _) = served.receive().await?;
        let Some(answer) = v4::respond(&config, packet) else { continue };
        if !answer.left_out.is_empty() {
            tracing::warn!(options = ?answer.left_out, "the guest accepts only short packets; options are left out");
        }
        tracing::debug!(kind = ?answer.kind, to = %answer.to, "DHCPv4 answer sent");
        served.send(&answer.bytes, SocketAddrV4::new(answer.to, DHCP4_CLIENT).into()).await?;
    }
}

async fn serve6(socket: OwnedFd, config: &Config6) -> Result<Infallible, ServeError> {
    let mut served = Served::new("DHCPv6", socket)?;
    loop {
        let (packet, from) = served.receive().await?;
        let SocketAddr::V6(from) = from else { continue };
        // A client sends from its link-local address; anything else would make us send elsewhere.
        if !from.ip().is_unicast_link_local() {
            continue;
        }
        let Some(answer) = v6::respond(config, packet) else { continue };
        tracing::debug!(to = %from.ip(), "DHCPv6 answer sent");
        let to = SocketAddrV6::new(*from.ip(), DHCP6_CLIENT, 0, from.scope_id());
        served.send(&answer, to.into()).await?;
    }
}

/// Answers solicitations, and advertises unasked now and then. The first advertisement is repeated until it could be
/// sent: the link may still be coming up.
async fn serve_advertisements(socket: OwnedFd, config: &Config6) -> Result<Infallible, ServeError> {
    let mut served = Served::new("router advertisement", socket)?;
    let message = ra::advertisement(config);
    let all_nodes = SocketAddr::from(SocketAddrV6::new(ALL_NODES, 0, 0, 0));
    let mut next = Instant::now();
    loop {
        let asked = {
            let receive = std::pin::pin!(served.receive());
            let wait = std::pin::pin!(tokio::time::sleep_until(next));
            match select(receive, wait).await {
                Either::Left((received, _)) => ra::is_solicitation(received?.0),
                Either::Right(_) => true,
            }
        };
        if !asked {
            continue;
        }
        match served.socket.send_to(&message, all_nodes).await {
            Ok(_) => next = Instant::now() + Duration::from_secs(ra::INTERVAL_S),
            Err(error) if passes(&error) => next = Instant::now() + PAUSE,
            Err(source) => return Err(ServeError::Socket { service: served.name, source }),
        }
    }
}
