//! QEMU's commands, without a connection: their descriptions in a [`schema`], and how long they may take. Pure.
//!
//! For programs that talk to a QEMU from another operating system, through others (`kubectl-garboard`); `garboard-qmp`, which has
//! the connection, uses it too.

#![forbid(unsafe_code)]

mod limits;
pub mod schema;

pub use limits::CommandClass;
