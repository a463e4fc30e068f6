//! QEMU's events to what they mean for the machine. Pure; everything not listed means nothing.

use serde::Deserialize;

use crate::vm::{Event, RunState, ShutdownReason};

/// Translates one QMP event (`qapi/run-state.json`, `qapi/block-core.json`).
#[must_use]
pub(crate) fn translate(name: &str, data: &str) -> Option<Event> {
    match name {
        "SHUTDOWN" => Some(Event::Shutdown { reason: shutdown_reason(data) }),
        "RESET" => Some(Event::WasReset),
        // Why is not in it; whoever can ask QEMU does.
        "STOP" => Some(Event::VcpusStopped { run_state: RunState::Paused }),
        "RESUME" => Some(Event::VcpusResumed),
        "GUEST_PANICKED" => Some(Event::Panicked),
        "WATCHDOG" => watchdog(data),
        "BLOCK_IO_ERROR" => io_error(data),
        _ => None,
    }
}

fn shutdown_reason(data: &str) -> ShutdownReason {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Data {
        guest: bool,
        reason: String,
    }
    let data: Data = serde_json::from_str(data).unwrap_or_default();
    match (data.reason.as_str(), data.guest) {
        ("guest-reset", _) => ShutdownReason::GuestReset,
        ("guest-panic", _) => ShutdownReason::GuestPanic,
        ("guest-shutdown", _) | (_, true) => ShutdownReason::Guest,
        (_, false) => ShutdownReason::Host,
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
    #[serde(default)]
    struct Data {
        action: String,
    }
    let data: Data = serde_json::from_str(data).unwrap_or_default();
    (data.action == "stop").then_some(Event::StoppedByIoError)
}

/// QEMU's `RunState` word. Unknown ones count as paused: then a person decides.
#[must_use]
pub(crate) fn run_state(word: &str) -> RunState {
    match word {
        "running" => RunState::Running,
        "io-error" => RunState::IoError,
        "guest-panicked" => RunState::GuestPanicked,
        "watchdog" => RunState::Watchdog,
        "shutdown" => RunState::Shutdown,
        "internal-error" => RunState::InternalError,
        _ => RunState::Paused,
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
                Some(Event::Shutdown { reason: ShutdownReason::Guest }),
            ),
            (
                "SHUTDOWN",
                r#"{"guest":true,"reason":"guest-reset"}"#,
                Some(Event::Shutdown { reason: ShutdownReason::GuestReset }),
            ),
            (
                "SHUTDOWN",
                r#"{"guest":false,"reason":"host-qmp-quit"}"#,
                Some(Event::Shutdown { reason: ShutdownReason::Host }),
            ),
            ("SHUTDOWN", "garbage", Some(Event::Shutdown { reason: ShutdownReason::Host })),
            ("WATCHDOG", r#"{"action":"reset"}"#, None),
            ("WATCHDOG", r#"{"action":"pause"}"#, Some(Event::WatchdogFired)),
            ("BLOCK_IO_ERROR", r#"{"action":"report"}"#, None),
            ("BLOCK_IO_ERROR", r#"{"action":"stop","nospace":true}"#, Some(Event::StoppedByIoError)),
            ("STOP", "", Some(Event::VcpusStopped { run_state: RunState::Paused })),
            ("RTC_CHANGE", "{}", None),
        ];
        for (name, data, expected) in table {
            assert_eq!(translate(name, data), expected, "{name} {data}");
        }
    }
}
