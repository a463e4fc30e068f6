//! The messages between the processes of one virtual machine. Pure: types and their encoding, no sockets.
//!
//! ```text
//!   garboard / node agent ──agent.sock──┐          ┌──control.sock── garboard (ps, stop, console, qmp …)
//!   (volumes, taps, DHCP sockets, …)    ▼          ▼
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

pub mod account;
pub mod agent;
pub mod backup_hook;
pub mod causes;
pub mod change;
pub mod control;
pub mod exit;
pub mod guest;
pub mod handed;
pub mod journal;
pub mod launch;
pub mod namespaces;
pub mod number;
pub mod part;
pub mod paths;
pub mod pod;
pub mod position;
pub mod probe;
pub mod record;
pub mod session;
pub mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod volumes;
pub mod wire;

/// The version of every message in this crate. It grows when a message changes its meaning, or gets a field that earlier
/// readers must not ignore; other new fields do not need it, because every reader ignores fields it does not have, nor do new
/// causes of an end and new messages between a supervisor and PID 1. What is written to PID 1 and by it only grows: each key that an earlier
/// build wrote stays (`launcher/tests/compat/frozen.rs`).
pub const PROTOCOL_VERSION: u32 = 1;

/// The oldest version that is still supported. A supervisor is replaced while its PID 1 runs on, so this one grows only when
/// no machine can be left whose PID 1 supports only less.
pub const OLDEST_PROTOCOL_VERSION: u32 = 1;

/// The newest version that both sides support, if the other one supports `oldest` to `newest`.
#[must_use]
pub fn common_version(oldest: u32, newest: u32) -> Option<u32> {
    let (oldest, newest) = (oldest.max(OLDEST_PROTOCOL_VERSION), newest.min(PROTOCOL_VERSION));
    (oldest <= newest).then_some(newest)
}

/// The version of the program that this is written in: what `scripts/version` printed when it was built, and otherwise that of
/// `Cargo.toml` with `-dev`. A macro, so that only programs are compiled anew for each commit: write it in them, not in libraries.
#[macro_export]
macro_rules! version {
    () => {
        match option_env!("GARBOARD_VERSION") {
            Some(version) => version,
            None => concat!(env!("CARGO_PKG_VERSION"), "-dev"),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_good_for_semver_and_for_a_tag_of_an_image() {
        let version = version!();
        assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
        assert!(version.len() <= 63, "a label's value has no more: {version}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
        assert!(version.bytes().all(is_plain) && version.split(['.', '-']).all(|part| !part.is_empty()), "{version}");
    }

    #[test]
    fn a_peer_of_another_age_is_understood_as_far_as_both_go() {
        assert_eq!(common_version(1, 1), Some(1));
        assert_eq!(common_version(1, 9), Some(1), "a newer one that still supports ours");
        assert_eq!(common_version(PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2), None);
        assert_eq!(common_version(0, 0), None);
    }
}
