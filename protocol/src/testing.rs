//! Examples for tests.

use crate::control::Status;
use crate::exit::ExitCause;

/// UID of the instance that [`running`] is of.
pub const INSTANCE: &str = "11111111-2222-3333-4444-555555555555";

/// ID of a request to an API server. The tests of the controller follow it from there to the line for a supervisor, those of
/// the supervisor from that line to QEMU's answer.
pub const AUDIT_ID: &str = "6a1f0c52-7d3e-4b8a-9c11-2f4e5d6a7b80";

/// What a supervisor reports of a machine whose guest runs.
///
/// # Panics
/// Never: the example is complete.
#[must_use]
#[expect(clippy::expect_used, reason = "an example for tests")]
pub fn running(generation: u64) -> Status {
    serde_json::from_value(serde_json::json!({
        "generation": generation, "namespace": "default", "name": "vm", "uid": INSTANCE, "phase": "Running",
        "phaseSinceMs": 1_000, "paused": null, "stopping": false, "softwareEmulation": false,
        "machine": "pc-q35-7.2", "memoryBytes": 536_870_912, "overheadBytes": 57_671_680, "vcpus": 2,
        "disks": [{"volume": "root", "target": "vda"}, {"volume": "data", "target": "sda"}],
        "interfaces": [{"name": "default", "interfaceName": null, "mac": "02:00:00:00:00:01",
            "addresses": ["10.0.2.2"], "infoSource": "domain", "queues": 2}],
        "guest": null, "taints": [], "supervisorPid": 7, "resets": 0, "ended": null,
    }))
    .expect("a status")
}

/// One example of each cause, in the order of [`crate::exit::EndReason::ALL`].
#[must_use]
pub fn causes() -> Vec<ExitCause> {
    vec![
        ExitCause::GuestShutdown,
        ExitCause::GuestReboot,
        ExitCause::GuestPanic,
        ExitCause::Watchdog,
        ExitCause::StoppedGracefully,
        ExitCause::GracePeriodExceeded,
        ExitCause::ForceStopped,
        ExitCause::OutOfMemory { limit_bytes: Some(1 << 30) },
        ExitCause::QemuFailed { code: 1 },
        ExitCause::QemuKilled { signal: 9 },
        ExitCause::QemuCrashed { signal: 11 },
        ExitCause::MachineKilled,
        ExitCause::NotStarted { message: "no QEMU".to_owned() },
        ExitCause::Unknown,
    ]
}
