//! The connection that a node agent opens to a controller, both ends. Nothing listens on a node: requests and streams for
//! a running supervisor come down this connection.
//!
//! ```text
//!   supervisor ──── agent.sock ────► node agent ──── TLS, one connection to each replica ────► controller
//!              ◄─ a socket for each ─            ◄──── HTTP/2, a CONNECT for each ────────────
//! ```
//!
//! The agent dials, shows its service account's token in a request for an upgrade (HTTP/1.1, RFC 9110 §7.8), and is answered 101.
//! From then on the controller is the client of HTTP/2 and the agent the server. Each CONNECT (RFC 9113 §8.5) names a
//! launcher pod by its UID and becomes a connection to the control socket of that pod's supervisor
//! (`garboard_protocol::control`); the agent copies bytes and reads none. HTTP/2 has what is needed beside: flow control for
//! each stream, so that a slow reader holds back its own stream alone, and pings, by which a half-open connection is noticed.

#![forbid(unsafe_code)]

pub mod agent;
pub mod controller;
pub mod redial;

use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

/// The path of the request for an upgrade.
pub const PATH: &str = "/v1/node";
/// The protocol after the upgrade. A later one gets another number; a controller that does not serve it answers 426.
pub const UPGRADE: &str = "garboard-tunnel/1";
/// What a controller asks an agent for while they are connected (`GET`): the token that it would show now, which the kubelet renews.
/// An agent of a version before answers 405.
pub const TOKEN_PATH: &str = "/v1/token";
/// What a controller asks an agent for when it is scraped (`GET`): the metrics of its node, in Prometheus' text format. An agent of a
/// version before answers 405.
pub const METRICS_PATH: &str = "/v1/metrics";
/// The longest metrics of a node that are sent and read, bytes. Of a hundred machines they are about a megabyte.
pub const LONGEST_METRICS: usize = 8 << 20;
/// How long a controller waits for the metrics of a node; who scrapes waits ten seconds.
pub const METRICS_WITHIN: Duration = Duration::from_secs(8);
/// A header of the controller's answer to a connection: over how many milliseconds agents are to spread their next attempts
/// ([`redial`]). Where it is missing, over the least.
pub const SPREAD_HEADER: &str = "garboard-spread-ms";
/// A header of a CONNECT: to which trace of the controller's it belongs (W3C Trace Context). Where it is missing, and by an agent of a version
/// before, it belongs to none.
pub const TRACE_HEADER: &str = "traceparent";
/// The audience of the agent's token, which is good for nothing else.
pub const AUDIENCE: &str = "garboard-controller";

/// How often a connection is tried, and how long the answer may take: a node that was cut off is noticed after both.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// How long it takes at most until either end has noticed that nothing arrives from the other one.
pub const NOTICED_WITHIN: Duration = Duration::from_secs(PING_EVERY.as_secs() + PING_WITHIN.as_secs());
/// The longest token that is shown or read, bytes.
const LONGEST_TOKEN: usize = 16 * 1024;
/// Streams of one connection at once. Each is a socket in the agent and one in the supervisor.
const STREAMS: u32 = 256;
/// Bytes of one stream that may be under way unread: what one slow reader costs.
const STREAM_WINDOW: u32 = 32 * 1024;
/// The same of a connection: as many as all its streams together, so that those that are not read hold back no other.
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;

/// A connection of either kind, after its upgrade.
pub type Stream = TokioIo<Upgraded>;
