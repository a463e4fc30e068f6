//! What the parties of one virtual machine say to each other. Pure: types and their encoding, no sockets.
//!
//! ```text
//!   garboard / node agent ──agent.sock──┐          ┌──control.sock── garboard (ps, stop, console, qmp …)
//!   (volumes, taps, DHCP sockets)       ▼          ▼
//!                                    supervisor (garboard-launcher)
//!                                       ▲          │
//!              launch.sock: argv + descriptors     │ qmp.sock (QEMU's monitor)
//!                                       │          ▼
//!                                PID 1 (garboard-init) ──exec──► QEMU
//! ```
//!
//! Every message is one line of JSON ([`wire`]); descriptors travel with the line that names them
//! (`SCM_RIGHTS`, `unix(7)`), in the order in which the line lists them.

#![forbid(unsafe_code)]

pub mod agent;
pub mod control;
pub mod exit;
pub mod handed;
pub mod journal;
pub mod launch;
pub mod paths;
pub mod pod;
pub mod wire;

/// The version of every message in this crate. A party refuses a peer of another major version by name
/// instead of guessing.
pub const PROTOCOL_VERSION: u32 = 1;
