//! How a command finds and starts machines on a bare host: the client's side of `garboard-shim`.
//!
//! - [`places`]: where everything is. [`directory`]: the right to start a machine there, or to remove it. [`lock`]: whether its shim lives.
//! - [`request`]: the launch request, which a command writes and the shim carries out; [`volume_source`]: a part of it.
//! - [`pending_restart`]: what shim and commands write while there is no supervisor.
//! - [`calls`]: starting a shim, and having one clear away what another has left.
//! - [`processes`]: the processes of a machine, found by their arguments and by what cannot be forged.
//! - [`stored`]: the machine that is kept for the next start. [`logs`]: names of the two logs.
//!
//! Nothing here links a network, a container image or an async runtime.

pub mod calls;
pub mod directory;
mod error;
pub mod lock;
pub mod logs;
pub mod pending_restart;
pub mod places;
pub mod processes;
pub mod program;
pub mod request;
pub mod stored;
pub mod volume_source;

pub use error::ShimError;

/// A wait between two looks at the file system, which reports no changes without another crate.
pub fn pause_briefly() {
    let _ = nix::poll::poll(&mut [], nix::poll::PollTimeout::from(20_u8));
}
