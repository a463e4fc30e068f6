//! The report of a launcher whose guest runs.

use garboard_protocol::control::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::nodes::MACHINE_TYPES;

/// The report of a machine as [`crate::start`] makes them, as large as a real one.
pub(crate) fn of(namespace: &str, name: &str, uid: &str) -> serde_json::Result<Status> {
    let mac = "02:e0:de:5d:21:6d";
    serde_json::from_value(json!({
        "generation": 1, "namespace": namespace, "name": name, "uid": uid, "phase": "Running",
        "phaseSinceMs": Timestamp::now().as_millisecond(), "paused": null, "stopping": false, "softwareEmulation": false,
        "machine": MACHINE_TYPES[1], "memoryBytes": 128 << 20, "overheadBytes": 57_671_680, "vcpus": 1, "stored": stored(mac),
        "disks": [{"volume": "root", "target": "vda"}, {"volume": "seed", "target": "vdb"}],
        "interfaces": [{"name": "default", "interfaceName": null, "mac": mac, "addresses": ["10.0.2.2"],
            "infoSource": "domain"}],
        "guest": null, "taints": [], "supervisorPid": 7, "resets": 0, "ended": null,
    }))
}

/// What the plan of such a machine keeps for its next start.
fn stored(mac: &str) -> Value {
    let ports: Vec<Value> = (1..=12_u8)
        .map(|number| {
            let at = format!("{:02}.{}", 2 + (number - 1) / 8, (number - 1) % 8);
            if number <= 4 {
                json!({"number": number, "at": at, "forInterfaces": true})
            } else {
                json!({"number": number, "at": at})
            }
        })
        .collect();
    let devices = json!({"balloon0": "port10", "disk-root": "port7", "disk-seed": "port8", "nic-default": "port1",
        "rng0": "port9", "scsi0": "port6", "video0": "pcie.0/01.0", "virtio-serial0": "port5"});
    json!({"version": 1, "machineType": MACHINE_TYPES[1], "cpu": "qemu64", "pci": {"ports": ports, "devices": devices},
        "macs": {"default": mac}, "diskSerials": {}, "cpuAsked": "1150adebe5ac622f"})
}

#[cfg(test)]
mod tests {
    use garboard_plan::StoredMachine;

    #[test]
    fn the_report_is_one_that_an_agent_takes() {
        let report = super::of("ns", "vm", "11111111-2222-3333-4444-555555555555").unwrap();
        assert!(garboard_cluster::report::unpaused(&report).unwrap());
        serde_json::from_value::<StoredMachine>(report.stored.unwrap()).unwrap();
    }
}
