//! What can go wrong between us and QEMU, and why QEMU ended if it reported that.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::text::printable;

/// Characters kept of a message of QEMU. Its longest (a device that lists its missing properties) has about 400.
const MESSAGE_LIMIT: usize = 1_000;

/// Why a command did not give its reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// QEMU read the command and refused it. Nothing happened, apart from what the message reports.
    #[error("QEMU refused `{command}`: {desc}")]
    Refused {
        /// The command.
        command: Cow<'static, str>,
        /// `GenericError`, `CommandNotFound`, `DeviceNotFound`, …
        class: String,
        /// QEMU's message, escaped and bounded.
        desc: String,
    },
    /// No reply in time. The connection lives on, and the command may still take effect.
    #[error("QEMU did not answer `{command}` within {after:?}")]
    TimedOut {
        /// The command.
        command: Cow<'static, str>,
        /// The time limit.
        after: Duration,
    },
    /// The connection ended before the reply, or had ended before the command.
    #[error("the connection to QEMU ended before `{command}` was answered{}", shutdown_suffix(.reason))]
    Disconnected {
        /// The command.
        command: Cow<'static, str>,
        /// Why QEMU ended, if it reported that.
        reason: Option<ShutdownReason>,
    },
    /// The reply is not of the type the caller expects.
    #[error("the reply of QEMU to `{command}` has an unexpected form")]
    Undecodable {
        /// The command.
        command: Cow<'static, str>,
        /// What is unexpected, and where.
        #[source]
        source: serde_json::Error,
    },
    /// The arguments cannot be written as JSON. Nothing was sent.
    #[error("the arguments of `{command}` cannot be written as JSON")]
    Unencodable {
        /// The command.
        command: Cow<'static, str>,
        /// What cannot be written.
        #[source]
        source: serde_json::Error,
    },
    /// The reply was longer than a message may be.
    #[error("the reply of QEMU to `{command}` has {length} bytes, more than the limit of {limit}")]
    ReplyTooLong {
        /// The command.
        command: Cow<'static, str>,
        /// Bytes of the reply.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// More descriptors than QEMU takes with one message. Nothing was sent.
    #[error("`{command}` carries {given} descriptors; QEMU takes at most {limit} with one message")]
    TooManyDescriptors {
        /// The command.
        command: Cow<'static, str>,
        /// How many were given.
        given: usize,
        /// How many QEMU takes.
        limit: usize,
    },
}

impl CallError {
    /// Whether QEMU refused with this error class.
    pub fn is_refusal_of_class(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { class, .. } if class == wanted)
    }

    /// Whether the command may have taken effect although there is no reply.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Disconnected { .. } => true,
            Self::Undecodable { .. } | Self::ReplyTooLong { .. } => true,
            Self::Refused { .. } | Self::Unencodable { .. } | Self::TooManyDescriptors { .. } => false,
        }
    }

    pub(crate) fn refused(command: Cow<'static, str>, class: &str, desc: &str) -> Self {
        Self::Refused { command, class: printable(class, 64), desc: printable(desc, MESSAGE_LIMIT) }
    }
}

fn shutdown_suffix(reason: &Option<ShutdownReason>) -> String {
    reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
}

/// Why a monitor could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket cannot be opened: QEMU is not there, or not any more.
    #[error("could not connect to the monitor socket {path}")]
    Open {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The given stream cannot be used with the runtime.
    #[error("could not prepare the monitor stream of {monitor}")]
    Prepare {
        /// The monitor's name.
        monitor: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Connected, but nothing was sent: QEMU is still starting, hangs, or serves another client of this monitor.
    #[error("no QMP greeting from {monitor} within {after:?}; another client may hold the connection")]
    NoGreeting {
        /// The monitor's name.
        monitor: String,
        /// The time limit.
        after: Duration,
    },
    /// The connection ended before the greeting.
    #[error("{monitor} closed the connection before its greeting")]
    Closed {
        /// The monitor's name.
        monitor: String,
    },
    /// Reading failed before the greeting.
    #[error("could not read the greeting of {monitor}")]
    Read {
        /// The monitor's name.
        monitor: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The listener there does not use QMP.
    #[error("{monitor} is not a QMP monitor: its first line is `{first_line}`")]
    NotQmp {
        /// The monitor's name.
        monitor: String,
        /// The line, escaped and bounded.
        first_line: String,
    },
    /// `qmp_capabilities` failed.
    #[error("{monitor} did not accept the capability negotiation")]
    Negotiation {
        /// The monitor's name.
        monitor: String,
        /// How it failed.
        #[source]
        source: CallError,
    },
}

/// Why QEMU stopped the guest for good: the `SHUTDOWN` event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReason {
    /// Whether the guest began it.
    pub by_guest: bool,
    /// What it was.
    pub cause: ShutdownCause,
}

/// The causes QEMU names, as of 10.0 (`ShutdownCause` of `run-state.json`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShutdownCause {
    /// `host-error`: QEMU met an error, for example of a vCPU.
    HostError,
    /// `host-qmp-quit`: a client sent `quit`.
    HostQmpQuit,
    /// `host-qmp-system-reset`: a client sent `system_reset` where a reset means the end.
    HostQmpSystemReset,
    /// `host-signal`: SIGTERM, SIGINT or SIGHUP.
    HostSignal,
    /// `host-ui`: a window was closed.
    HostUi,
    /// `guest-shutdown`: the guest powered off.
    GuestShutdown,
    /// `guest-reset`: the guest rebooted where a reboot means the end.
    GuestReset,
    /// `guest-panic`: the guest reported a panic.
    GuestPanic,
    /// `subsystem-reset`.
    SubsystemReset,
    /// `snapshot-load`.
    SnapshotLoad,
    /// QEMU gave none (older than 4.0), or an unknown one: its name, escaped and bounded.
    Other(String),
}

/// QEMU's names of the causes.
const CAUSES: &[(&str, ShutdownCause)] = &[
    ("host-error", ShutdownCause::HostError),
    ("host-qmp-quit", ShutdownCause::HostQmpQuit),
    ("host-qmp-system-reset", ShutdownCause::HostQmpSystemReset),
    ("host-signal", ShutdownCause::HostSignal),
    ("host-ui", ShutdownCause::HostUi),
    ("guest-shutdown", ShutdownCause::GuestShutdown),
    ("guest-reset", ShutdownCause::GuestReset),
    ("guest-panic", ShutdownCause::GuestPanic),
    ("subsystem-reset", ShutdownCause::SubsystemReset),
    ("snapshot-load", ShutdownCause::SnapshotLoad),
];

impl ShutdownReason {
    /// Reads the data of a `SHUTDOWN` event. Whatever is missing or new there, some reason comes out.
    pub fn from_event_data(data: &str) -> Self {
        #[derive(Deserialize, Default)]
        struct Data {
            #[serde(default)]
            guest: bool,
            #[serde(default)]
            reason: String,
        }
        let data: Data = serde_json::from_str(data).unwrap_or_default();
        let known = CAUSES.iter().find(|(name, _)| *name == data.reason);
        let cause = known.map_or_else(|| ShutdownCause::Other(printable(&data.reason, 64)), |(_, cause)| cause.clone());
        Self { by_guest: data.guest, cause }
    }

    /// QEMU's name of the cause.
    pub fn name(&self) -> &str {
        if let ShutdownCause::Other(name) = &self.cause {
            return name;
        }
        CAUSES.iter().find(|(_, cause)| *cause == self.cause).map_or("unknown", |(name, _)| name)
    }
}

impl std::fmt::Display for ShutdownReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = if self.by_guest { "guest" } else { "host" };
        write!(formatter, "shutdown by the {who}: {}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shutdown_reasons_of_qemu_are_understood_and_new_ones_survive() {
        let reason = ShutdownReason::from_event_data(r#"{"guest": true, "reason": "guest-panic"}"#);
        assert_eq!(reason, ShutdownReason { by_guest: true, cause: ShutdownCause::GuestPanic });
        assert_eq!(reason.to_string(), "shutdown by the guest: guest-panic");
        let new = ShutdownReason::from_event_data(r#"{"guest": false, "reason": "cosmic-ray\n"}"#);
        assert_eq!(new.name(), "cosmic-ray\\n");
        assert!(matches!(ShutdownReason::from_event_data("[]").cause, ShutdownCause::Other(_)));
    }

    #[test]
    fn an_error_text_is_one_bounded_line() {
        let error = CallError::refused("quit".into(), "GenericError", &"x\n".repeat(9_000));
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 5_000, "{}", text.len());
        let gone = CallError::Disconnected {
            command: "cont".into(),
            reason: Some(ShutdownReason { by_guest: false, cause: ShutdownCause::HostSignal }),
        };
        assert!(gone.to_string().ends_with("(shutdown by the host: host-signal)"), "{gone}");
    }
}
