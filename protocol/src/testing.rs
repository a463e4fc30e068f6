//! Examples for tests.

use crate::control::Status;

/// UID of the instance that [`running`] is of.
pub const INSTANCE: &str = "11111111-2222-3333-4444-555555555555";

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
            "addresses": ["10.0.2.2"], "infoSource": "domain"}],
        "guest": null, "taints": [], "supervisorPid": 7, "resets": 0, "ended": null,
    }))
    .expect("a status")
}
