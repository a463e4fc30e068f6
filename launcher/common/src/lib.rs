//! What the processes of one machine on one host do alike: supervisor, PID 1, the shim of a bare host, and the command.
//!
//! - [`journal`]: the file of what must outlive a supervisor.
//! - [`foreign`]: files and sockets in directories that another user writes to.
//! - [`private`]: files that no other user may read.
//! - [`memory`]: how often the OOM killer came, and the limit.
//! - [`Pidfd`]: a process that cannot be mistaken for another one with the same number.
//! - [`close_inherited_on_exec`], [`raise_descriptor_limit`]: what a process does before it starts others.

pub mod foreign;
pub mod journal;
pub mod memory;
pub mod private;
mod sys;

pub use sys::descriptors::{close_inherited_on_exec, raise_descriptor_limit};
pub use sys::pidfd::Pidfd;
