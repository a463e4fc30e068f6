//! The agent's protocol, both ends: what a supervisor asks of the process with power over the host, which is the node agent
//! on a cluster and the shim on a bare host. The messages themselves are in [`garboard_protocol::agent`].
//!
//! - [`line_socket`]: lines of JSON with descriptors over a unix socket, for every conversation of a machine's parties.
//! - [`client`]: the supervisor's end.
//! - [`tap_binding`]: what a planned interface needs of the other end.
//! - `plumbing` (the feature of that name): the other end: interfaces are made and their descriptors sent.

pub mod client;
pub mod line_socket;
#[cfg(feature = "plumbing")]
pub mod plumbing;
mod sys;
pub mod tap_binding;

pub use sys::scm;
