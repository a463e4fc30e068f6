//! Ports of guests: a websocket of a client on one side, a connection to the guest on the other. The controller dials the address
//! of the launcher pod, and no other ([ADR 35](../../../docs/adr/0035-ports-of-a-guest.md)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::request::Parts;
use axum::response::Response;
use garboard_api::VirtualMachineInstance;
use garboard_protocol::causes::ErrorChain;
use garboard_subresources::forward::{self, Protocol};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::{Call, Resource};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use super::answer::{internal, machine};
use super::instance::instance;
use super::relay::{self, LARGEST_FRAME, Next, Reader, Sink, Source, Then, Writer};
use super::server::Serving;
use super::shares::StreamTurn;
use crate::metrics::StreamKind;
use crate::pod;
use crate::stores::ObjectKey;

/// How long an address of the guest is dialled. It has one of each family at most.
const DIAL_WITHIN: Duration = Duration::from_secs(5);
/// When a silent connection is asked whether its other end is there, how often, and how many times, seconds: the address of a
/// pod that is gone answers nothing.
const PROBE_AFTER: u32 = 30;
const PROBE_EVERY: u32 = 10;
const PROBES: u32 = 3;

/// Why an address was not reached.
#[derive(Debug, thiserror::Error)]
enum DialError {
    /// Nothing answered.
    #[error(
        "no answer from {address} within {} s; a NetworkPolicy of the pod has to let the controller's pods in",
        DIAL_WITHIN.as_secs()
    )]
    Silent {
        /// The address.
        address: IpAddr,
    },
    /// It was refused, or there is no way to it.
    #[error("{address} cannot be reached")]
    Refused {
        /// The address.
        address: IpAddr,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// There is none.
    #[error("there is no address")]
    NoAddress,
}

/// Connects to the guest, and only then answers with 101: before it, a refusal is a `Status`.
pub(super) async fn open(serving: &Serving, call: &Call<'_>, user: &str, mut head: Parts) -> Result<Response, Refusal> {
    let target = forward::target(&call.parameters)?;
    let vmi = instance_of_call(serving, call).await?;
    forward::may_forward(&vmi)?;
    let socket = relay::websocket(&mut head, &serving.replica).await?;
    let turn = serving.streams.take(user, call.namespace).ok_or(Refusal::TooManyStreams)?;
    let addresses = forward::addresses(&vmi, &launcher_pod(serving, call, &vmi).await?)?;
    let addresses: Vec<SocketAddr> =
        addresses.into_iter().map(|address| (serving.dialled)(SocketAddr::new(address, target.port))).collect();
    let unreached = |errors: Vec<DialError>| {
        let texts: Vec<String> = errors.iter().map(|error| ErrorChain(error).to_string()).collect();
        forward::unreached(&vmi, target, &texts.join("; "))
    };
    let name = vmi.metadata.name.as_deref().unwrap_or(call.name);
    let instance = ObjectKey::new(call.namespace, name);
    let open = |turn: StreamTurn| turn.counted(serving.context.metrics.streams.open(StreamKind::PortForward, instance));
    tracing::info!(port = target.port, protocol = target.protocol.name(), "a port of the guest is dialled");
    match target.protocol {
        Protocol::Tcp => {
            let (reader, writer) = dial(&addresses).await.map_err(unreached)?.into_split();
            Ok(relay::answer(socket, Reader::new(reader), Writer::new(writer, Then::Drain), open(turn)))
        }
        Protocol::Udp => {
            let guest = Arc::new(datagrams(&addresses).await.map_err(|error| unreached(vec![error]))?);
            let source = Datagrams { guest: Arc::clone(&guest), buffer: vec![0; LARGEST_FRAME] };
            Ok(relay::answer(socket, source, DatagramSink(guest), open(turn)))
        }
    }
}

/// The instance of a call, by its own name or by that of its VirtualMachine.
pub(super) async fn instance_of_call(serving: &Serving, call: &Call<'_>) -> Result<VirtualMachineInstance, Refusal> {
    if call.route.resource != Resource::VirtualMachine {
        return instance(serving, call).await;
    }
    let vm = machine(serving, call).await?;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(serving.context.client.clone(), call.namespace);
    let vmi = instances.get_opt(call.name).await.map_err(internal)?;
    forward::instance_of(&vm, vmi.as_ref()).cloned()
}

async fn launcher_pod(serving: &Serving, call: &Call<'_>, vmi: &VirtualMachineInstance) -> Result<Pod, Refusal> {
    let pods: Api<Pod> = Api::namespaced(serving.context.client.clone(), call.namespace);
    let missing = || Refusal::Internal("the instance has no launcher pod".to_owned());
    let name = pod::name(vmi).ok_or_else(missing)?;
    pods.get_opt(&name).await.map_err(internal)?.ok_or_else(missing)
}

/// A connection to the first address that takes one; what each one answered, if none does.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Vec<DialError>> {
    let mut errors = Vec::new();
    for &dialled in addresses {
        let address = dialled.ip();
        match tokio::time::timeout(DIAL_WITHIN, connect(dialled)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(source)) => errors.push(DialError::Refused { address, source }),
            Err(_) => errors.push(DialError::Silent { address }),
        }
    }
    Err(errors)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_keepalive(true)?;
    setsockopt(&socket, sockopt::TcpKeepIdle, &PROBE_AFTER)?;
    setsockopt(&socket, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(&socket, sockopt::TcpKeepCount, &PROBES)?;
    // What a person types in ssh does not wait for more.
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// A socket for datagrams to and from the first address alone: nothing shows whether one arrives.
async fn datagrams(addresses: &[SocketAddr]) -> Result<UdpSocket, DialError> {
    let guest = *addresses.first().ok_or(DialError::NoAddress)?;
    let any: IpAddr = if guest.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let unreached = |source: io::Error| DialError::Refused { address: guest.ip(), source };
    let socket = UdpSocket::bind((any, 0)).await.map_err(unreached)?;
    socket.connect(guest).await.map_err(unreached)?;
    Ok(socket)
}

/// A message is a datagram. What the client does not take in time is lost, as it is on a network.
struct Datagrams {
    guest: Arc<UdpSocket>,
    buffer: Vec<u8>,
}

impl Source for Datagrams {
    async fn next(&mut self) -> Next {
        match self.guest.recv(&mut self.buffer).await {
            Ok(count) => Next::Bytes(Bytes::copy_from_slice(&self.buffer[..count])),
            // Nothing listens at the port, or there is no way to the guest.
            Err(error) => Next::End(relay::broken(&error)),
        }
    }
}

struct DatagramSink(Arc<UdpSocket>);

impl Sink for DatagramSink {
    async fn put(&mut self, bytes: Bytes) -> io::Result<()> {
        self.0.send(&bytes).await.map(drop)
    }

    async fn finish(&mut self) -> Then {
        Then::Close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_address_is_dialled_where_the_first_one_refuses() {
        let refusing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listening = listener.local_addr().unwrap();
        let stream = dial(&[refusing, listening]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listening);
        assert!(stream.nodelay().unwrap());
        let errors = dial(&[refusing, refusing]).await.unwrap_err();
        let is_refusal = |error: &DialError| {
            matches!(error, DialError::Refused { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
        };
        assert!(errors.len() == 2 && errors.iter().all(is_refusal), "{errors:?}");
    }
}
