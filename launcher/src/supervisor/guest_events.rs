//! QEMU's events to what they mean for the machine. Pure; everything not listed means nothing.

use serde::Deserialize;

use garboard_protocol::text::printable;
use garboard_qmp::{ShutdownCause, ShutdownReason};

use crate::vm::{Event, IoError, RunState, ShutdownKind};

/// The most characters of a word of QEMU's in a status.
const LONGEST: usize = 120;

/// Translates one QMP event (`qapi/run-state.json`, `qapi/block-core.json`).
#[must_use]
pub(crate) fn translate(name: &str, data: &str) -> Option<Event> {
    match name {
        "SHUTDOWN" => Some(Event::Shutdown { kind: shutdown_kind(&ShutdownReason::from_event_data(data)) }),
        "RESET" => Some(Event::WasReset),
        // The cause is not in it; the monitor is asked for it.
        "STOP" => Some(Event::VcpusStopped { run_state: RunState::Paused }),
        "RESUME" => Some(Event::VcpusResumed),
        "GUEST_PANICKED" => Some(Event::Panicked),
        "WATCHDOG" => watchdog(data),
        "BLOCK_IO_ERROR" => io_error(data),
        _ => None,
    }
}

fn shutdown_kind(reason: &ShutdownReason) -> ShutdownKind {
    match reason.cause {
        ShutdownCause::GuestReset => ShutdownKind::GuestReset,
        ShutdownCause::GuestPanic => ShutdownKind::GuestPanic,
        ShutdownCause::GuestShutdown => ShutdownKind::Guest,
        ShutdownCause::HostError
        | ShutdownCause::HostQmpQuit
        | ShutdownCause::HostQmpSystemReset
        | ShutdownCause::HostSignal
        | ShutdownCause::HostUi
        | ShutdownCause::SubsystemReset
        | ShutdownCause::SnapshotLoad
        | ShutdownCause::Other(_) => match reason.by_guest {
            true => ShutdownKind::Guest,
            false => ShutdownKind::Host,
        },
    }
}

/// A watchdog that resets the guest shows as RESET; only actions that hold the machine end the run.
fn watchdog(data: &str) -> Option<Event> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Data {
        action: String,
    }
    let data: Data = serde_json::from_str(data).unwrap_or_default();
    (data.action == "pause" || data.action == "poweroff").then_some(Event::WatchdogFired)
}

fn io_error(data: &str) -> Option<Event> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "kebab-case")]
    struct Data {
        action: String,
        operation: String,
        device: String,
        node_name: Option<String>,
        reason: String,
        nospace: bool,
    }
    let data: Data = serde_json::from_str(data).unwrap_or_default();
    let operation = if data.operation == "read" { "reading from" } else { "writing to" };
    let node = data.node_name.filter(|name| !name.is_empty()).unwrap_or(data.device);
    let (node, reason) = (printable(&node, LONGEST), printable(&data.reason, LONGEST));
    let error = IoError { what: format!("{operation} {node} failed: {reason}"), is_full: data.nospace };
    (data.action == "stop").then_some(Event::StoppedByIoError(error))
}

/// QEMU's `RunState` word (`qapi/run-state.json`).
#[must_use]
pub(crate) fn run_state(word: &str) -> RunState {
    match word {
        "running" => RunState::Running,
        "prelaunch" | "preconfig" => RunState::Prelaunch,
        "paused" | "postmigrate" => RunState::Paused,
        "io-error" => RunState::IoError,
        "guest-panicked" => RunState::GuestPanicked,
        "watchdog" => RunState::Watchdog,
        "shutdown" => RunState::Shutdown,
        "internal-error" => RunState::InternalError,
        _ => RunState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_mean_what_qemu_says() {
        let table = [
            (
                "SHUTDOWN",
                r#"{"guest":true,"reason":"guest-shutdown"}"#,
                Some(Event::Shutdown { kind: ShutdownKind::Guest }),
            ),
            (
                "SHUTDOWN",
                r#"{"guest":true,"reason":"guest-reset"}"#,
                Some(Event::Shutdown { kind: ShutdownKind::GuestReset }),
            ),
            (
                "SHUTDOWN",
                r#"{"guest":false,"reason":"host-qmp-quit"}"#,
                Some(Event::Shutdown { kind: ShutdownKind::Host }),
            ),
            ("SHUTDOWN", "garbage", Some(Event::Shutdown { kind: ShutdownKind::Host })),
            ("WATCHDOG", r#"{"action":"reset"}"#, None),
            ("WATCHDOG", r#"{"action":"pause"}"#, Some(Event::WatchdogFired)),
            ("BLOCK_IO_ERROR", r#"{"action":"report"}"#, None),
            (
                "BLOCK_IO_ERROR",
                r#"{"action":"stop","nospace":true,"operation":"write","device":"","node-name":"root","reason":"a\tb"}"#,
                Some(Event::StoppedByIoError(IoError {
                    what: "writing to root failed: a\\tb".to_owned(),
                    is_full: true,
                })),
            ),
            ("STOP", "", Some(Event::VcpusStopped { run_state: RunState::Paused })),
            ("RTC_CHANGE", "{}", None),
        ];
        for (name, data, expected) in table {
            assert_eq!(translate(name, data), expected, "{name} {data}");
        }
    }

    #[test]
    fn run_states_are_qemus() {
        let table = [
            ("running", RunState::Running),
            ("prelaunch", RunState::Prelaunch),
            ("paused", RunState::Paused),
            ("io-error", RunState::IoError),
            ("suspended", RunState::Other),
            ("inmigrate", RunState::Other),
            ("finish-migrate", RunState::Other),
            ("save-vm", RunState::Other),
            ("a word of QEMU 12", RunState::Other),
        ];
        for (word, expected) in table {
            assert_eq!(run_state(word), expected, "{word}");
        }
    }
}
