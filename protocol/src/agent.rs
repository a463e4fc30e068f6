//! The supervisor and the process with privileges on the host: the shim on a bare host, the node agent in a
//! cluster. The supervisor connects and asks; the connection identifies the caller, never the payload.
//!
//! A supervisor may be newer than its agent, or older. An agent closes the connection upon a request that it does not have.
//! In a pod a supervisor then connects and asks again, without end; on a bare host its start fails. So a new request may
//! only be sent where the supervisor can do without the answer. An older reader ignores a field that it does not have.

use serde::{Deserialize, Serialize};

use crate::control::Status;
use crate::record::RunRecord;

/// The link that leads out of a machine's namespace: what a shim makes, and what CNI plugins make in a pod.
pub const UPLINK: &str = "eth0";
/// The bridge between it and the tap, KubeVirt's name.
pub const BRIDGE: &str = "k6t-eth0";

/// What the supervisor asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
pub enum AgentRequest {
    /// Open a volume whose place in the [`VolumeTable`] is [`VolumePlace::Descriptor`]; the reply brings
    /// one descriptor.
    Volume {
        /// The volume's name.
        name: String,
    },
    /// Make the interfaces and hand over taps and sockets. In a pod one descriptor comes with the line: the network
    /// namespace to make them in.
    Plumb {
        /// In the order of the VMI.
        interfaces: Vec<InterfaceRequest>,
    },
    /// Only the DHCP sockets again: a restarted supervisor serves on, QEMU still holds the taps. In a pod one
    /// descriptor comes with the line: the network namespace they are in.
    Sockets {
        /// As they were requested: the process that answers may have been restarted too.
        interfaces: Vec<InterfaceRequest>,
    },
    /// How the machine is; answered by [`AgentReply::Noted`]. Only in a pod.
    Report {
        /// The status; one of a lower generation than the last is ignored.
        status: Box<Status>,
    },
    /// Keep what is left of a run that is over; answered by [`AgentReply::Noted`]. Only in a pod, once, and on a connection of its own: an
    /// agent of a version before closes it.
    Record {
        /// The record.
        record: Box<RunRecord>,
    },
    /// From now on this connection brings control connections: the agent answers [`AgentReply::Serving`], and sends
    /// [`AgentReply::Connection`] for each that a controller opens. Nothing else may be asked on it. The newest such
    /// connection of a pod counts, an earlier one is closed. Only in a pod; an agent of a version before closes the connection.
    Serve,
}

/// How one interface is to be joined to the network. Addresses and ranges are text as in the manifest,
/// already validated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRequest {
    /// The interface's name in the VMI.
    pub name: String,
    /// Name of the tap, at most 15 bytes.
    pub tap: String,
    /// MAC address of the guest's NIC.
    pub mac: String,
    /// Queues, at least 1.
    pub queues: u32,
    /// How it is joined.
    pub binding: BindingRequest,
}

/// The bindings that need privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "binding")]
pub enum BindingRequest {
    /// Network address translation behind the namespace's address.
    Masquerade {
        /// IPv4 range of the guest, for example `10.0.2.0/24`.
        ipv4: String,
        /// IPv6 range of the guest, for example `fd10:0:2::/120`.
        ipv6: String,
        /// If not empty, only these reach the guest: (`TCP`|`UDP`|`SCTP`, port).
        ports: Vec<(String, u16)>,
    },
    /// The guest gets the namespace's own address.
    Bridge,
}

/// The answer; descriptors follow in the order in which the fields name them. `A` is what is announced to the guest
/// of its addresses; the network crate's type, which this crate does not use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "answer")]
pub enum AgentReply<A> {
    /// One descriptor: the opened volume.
    Volume,
    /// For each interface its taps, then its vhost descriptors, then its sockets.
    Plumbed {
        /// In the order of the request.
        interfaces: Vec<InterfaceReply<A>>,
    },
    /// The report arrived.
    Noted,
    /// Control connections follow.
    Serving,
    /// One descriptor: a new connection to the control socket ([`crate::control`]), a unix stream socket.
    Connection,
    /// No, and why.
    Refused {
        /// The reason, for a person.
        reason: String,
    },
}

/// What was made for one interface, and how many descriptors of each kind follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceReply<A> {
    /// The interface's name in the VMI.
    pub name: String,
    /// Tap descriptors, one per queue; 0 in the answer to [`AgentRequest::Sockets`].
    pub taps: usize,
    /// vhost-net descriptors, one per queue or none.
    pub vhosts: usize,
    /// Which sockets follow, in this order.
    pub sockets: Vec<SocketKind>,
    /// Addresses and routes of the guest.
    pub addresses: A,
    /// Name servers to announce.
    pub nameservers: Vec<String>,
    /// Search domains to announce.
    pub searches: Vec<String>,
}

/// A bound socket that serves the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SocketKind {
    /// UDP port 67 on the guest's bridge.
    Dhcp4,
    /// UDP port 547 on the guest's bridge.
    Dhcp6,
    /// Raw ICMPv6 on the guest's bridge, for router advertisements.
    RouterAdvertisement,
    /// One that only a later build has; it is closed.
    #[serde(other)]
    Unknown,
}

/// Where each volume is, for the supervisor. In a pod these are mount points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeTable {
    /// By volume name.
    #[serde(deserialize_with = "garboard_machine::tolerant::entries")]
    pub places: std::collections::BTreeMap<String, VolumePlace>,
}

/// Where one volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "place")]
pub enum VolumePlace {
    /// A directory: an unpacked image, a filesystem PVC, projected files.
    Directory {
        /// Its absolute path.
        path: String,
    },
    /// One file or block device the supervisor may open itself.
    File {
        /// Its absolute path.
        path: String,
    },
    /// The agent opens it: ask [`AgentRequest::Volume`].
    Descriptor,
    /// A program in the container of the volume's own image opens it: [`crate::handed`].
    Handed {
        /// Where that program listens.
        socket: String,
    },
}
