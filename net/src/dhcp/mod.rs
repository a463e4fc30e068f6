//! The half that serves the guest: DHCPv4, router advertisements, DHCPv6, from sockets that a privileged process
//! has bound. Needs no privilege, little memory, and a tokio runtime of one thread.
//!
//! ```text
//!   options ──┐
//!   addresses ┴► Config4 / Config6 ──► v4::respond, v6::respond, ra::advertisement   pure
//!                                            ▲ bytes in, bytes out
//!                                       serve (sockets, time, rate)
//! ```
//!
//! Every packet comes from a guest that may be hostile: parsing looks only at the fields that are needed,
//! never panics, and answers only what the one expected client may ask. How many answers a second leave is
//! bounded ([`rate`]).

pub mod options;
pub mod ra;
pub mod rate;
pub mod serve;
pub mod v4;
pub mod v6;

pub use options::{DhcpOptions, OptionError, PrivateOption};
pub use serve::{GuestService, ServeError, serve};
