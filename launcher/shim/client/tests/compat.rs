//! What earlier builds left in a machine's directory (`tests/compat/<build>/`) is read by this one: a machine that they started
//! is seen, stopped, started again and cleared away.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::path::{Path, PathBuf};

use garboard_api::RunStrategy;
use garboard_shim_client::pending_restart::{self, PendingRestart};
use garboard_shim_client::request::{self, LaunchRequest};
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_shim_client::{ShimError, calls};
use serde_json::{Value, json};

/// Objects whose keys are names and not fields, and the manifest, which is the API's.
const MAPS: &[&str] =
    &["volumes", "files", "kernelFiles", "features", "devices", "macs", "mtus", "diskSerials", "interfaces", "vmi"];

fn earlier(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/compat/8ee2679").join(name)
}

/// A machine's directory as a build before `garboard-shim` left it.
fn machine_of_an_earlier_build() -> tempfile::TempDir {
    let machine = tempfile::tempdir().unwrap();
    std::fs::copy(earlier("host-order.json"), machine.path().join("order.json")).unwrap();
    std::fs::copy(earlier("between.json"), machine.path().join("between.json")).unwrap();
    machine
}

#[test]
fn the_order_of_an_earlier_build_is_a_launch_request() {
    let machine = machine_of_an_earlier_build();
    let request = LaunchRequest::read(machine.path()).unwrap();
    assert_eq!((request.id().to_string().as_str(), request.strategy), ("default/earlier", RunStrategy::Always));
    assert_eq!(calls::present_run(machine.path()), Some(request.record.clone()));
    assert!(request.machine_uid.is_some() && request.stored.is_some() && request.kept.is_some());
    assert!(request.firmware_vars.is_some() && request.grace_seconds > 0);
    let source = |name: &str| request.volumes.get(name).unwrap();
    assert!(matches!(source("root"), HostVolumeSource::File { .. }), "{:?}", source("root"));
    assert!(matches!(source("host"), HostVolumeSource::HostDisk { .. }), "{:?}", source("host"));
    assert!(matches!(source("claim"), HostVolumeSource::Opened { writable: true, .. }), "{:?}", source("claim"));
    assert!(matches!(source("config"), HostVolumeSource::Projected { .. }), "{:?}", source("config"));
    assert_eq!(source("empty"), &HostVolumeSource::Made);
}

#[test]
fn a_new_launch_request_precedes_the_earlier_one() {
    let machine = machine_of_an_earlier_build();
    let mut request = LaunchRequest::read(machine.path()).unwrap();
    request.machine = machine.path().to_owned();
    request.grace_seconds = 4711;
    request.write().unwrap();
    assert_eq!(request::path(machine.path()), Some(machine.path().join("launch-request.json")));
    assert_eq!(LaunchRequest::read(machine.path()).unwrap().grace_seconds, 4711);
}

#[test]
fn a_directory_without_a_launch_request_has_none() {
    let machine = tempfile::tempdir().unwrap();
    assert_eq!(request::path(machine.path()), None);
    assert!(matches!(LaunchRequest::read(machine.path()), Err(ShimError::File { doing: "read", .. })));
    std::fs::write(machine.path().join("order.json"), "{}").unwrap();
    let error = LaunchRequest::read(machine.path()).unwrap_err().to_string();
    assert!(error.ends_with("order.json is of another version of garboard"), "{error}");
}

#[test]
fn the_pause_of_an_earlier_build_is_understood() {
    let machine = machine_of_an_earlier_build();
    let pending = pending_restart::read(machine.path()).unwrap();
    assert_eq!((pending.failures, pending.again_at_ms), (2, 1_790_000_000_000));
    assert!(pending.summary().starts_with("something outside killed QEMU with signal 9"), "{}", pending.summary());
}

/// The places of all objects below a value that have fields.
fn objects(value: &Value, key: &str, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if !MAPS.contains(&key) {
                found.push(place.to_owned());
            }
            for (name, inner) in fields.iter().filter(|_| key != "vmi") {
                objects(inner, name, &format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                objects(inner, key, &format!("{place}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn what_later_builds_add_is_ignored() {
    let request: Value = serde_json::from_slice(&std::fs::read(earlier("host-order.json")).unwrap()).unwrap();
    let mut places = Vec::new();
    objects(&request, "", "", &mut places);
    assert!(places.len() > 20, "{places:?}");
    for place in places {
        let mut more = request.clone();
        let object = more.pointer_mut(&place).and_then(Value::as_object_mut).unwrap();
        object.insert("aFieldOfALaterBuild".to_owned(), json!({"with": ["anything", 7]}));
        let read = serde_json::from_value::<LaunchRequest>(more);
        assert!(read.is_ok(), "{place}: {:?}", read.err());
    }
    let more = json!({"ended": "e", "failures": 0, "againAtMs": 1, "aFieldOfALaterBuild": {}});
    assert!(serde_json::from_value::<PendingRestart>(more).is_ok());
}
