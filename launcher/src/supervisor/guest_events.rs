//! Which of QEMU's events the supervisor subscribes to, and what each means for the machine. Pure.

use serde::Deserialize;

use garboard_protocol::text::printable;
use garboard_qmp::{ShutdownCause, ShutdownReason};

use crate::vm::{Event, IoError, RunState, ShutdownKind};

/// The most characters of a name of QEMU's in a status.
const LONGEST: usize = 120;

/// What the data of an event means for the machine.
type Meaning = fn(data: &str) -> Option<Event>;

/// Every QMP event that the supervisor subscribes to, with its meaning (`qapi/run-state.json`, `qapi/block-core.json`).
const MEANINGS: [(&str, Meaning); 7] = [
    ("SHUTDOWN", |data| Some(Event::Shutdown { kind: shutdown_kind(&ShutdownReason::from_event_data(data)) })),
    ("RESET", |_| Some(Event::WasReset)),
    // The cause is not in it; the monitor is asked for it.
    ("STOP", |_| Some(Event::VcpusStopped { run_state: RunState::Paused })),
    ("RESUME", |_| Some(Event::VcpusResumed)),
    ("GUEST_PANICKED", |_| Some(Event::Panicked)),
    ("WATCHDOG", watchdog),
    ("BLOCK_IO_ERROR", io_error),
];

/// The names of the events that the supervisor subscribes to.
pub(crate) const EVENTS: [&str; MEANINGS.len()] = {
    let mut names = [""; MEANINGS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = MEANINGS[at].0;
        at += 1;
    }
    names
};

/// Translates one QMP event; `None` for events that mean nothing here.
#[must_use]
pub(crate) fn translate(name: &str, data: &str) -> Option<Event> {
    MEANINGS.iter().find(|(known, _)| *known == name).and_then(|(_, meaning)| meaning(data))
}

/// What caused QEMU's end.
pub(crate) fn shutdown_kind(reason: &ShutdownReason) -> ShutdownKind {
    match reason.cause {
        // QEMU leaves after the second only where a reset means the end, by request of the guest or of a user.
        ShutdownCause::GuestReset | ShutdownCause::HostQmpSystemReset => ShutdownKind::GuestReset,
        ShutdownCause::GuestPanic => ShutdownKind::GuestPanic,
        ShutdownCause::GuestShutdown => ShutdownKind::Guest,
        ShutdownCause::HostError
        | ShutdownCause::HostQmpQuit
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

/// QEMU's `RunState`, from its name (`qapi/run-state.json`).
#[must_use]
pub(crate) fn run_state(name: &str) -> RunState {
    match name {
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
    fn events_mean_what_qemu_documents() {
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
            (
                "SHUTDOWN",
                r#"{"guest":false,"reason":"host-qmp-system-reset"}"#,
                Some(Event::Shutdown { kind: ShutdownKind::GuestReset }),
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
            ("a name of QEMU 12", RunState::Other),
        ];
        for (name, expected) in table {
            assert_eq!(run_state(name), expected, "{name}");
        }
    }
}
