//! What earlier builds left in a machine's directory (`tests/compat/<build>/`) is read by this one: a machine that they started
//! is seen, stopped, started again and cleared away.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole file is a test")]

#[path = "../../../../tests/recorded.rs"]
mod recorded;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use garboard_api::RunStrategy;
use garboard_machine::facts::HostFacts;
use garboard_plan::PlanOptions;
use garboard_protocol::paths;
use garboard_shim_client::pending_restart::{self, PendingRestart};
use garboard_shim_client::request::{self, FirmwareVars, LaunchRequest};
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_shim_client::{ShimError, calls, stored};
use serde_json::{Value, json};

/// Objects whose keys are names and not fields, and the manifest, which is the API's.
const MAPS: &[&str] =
    &["volumes", "files", "kernelFiles", "features", "devices", "macs", "mtus", "diskSerials", "interfaces", "vmi"];
/// The launch request, and what builds of before the shim have called it in a machine's directory and in `tests/compat`.
const REQUEST: &str = "launch-request.json";
const EARLIER_REQUEST: (&str, &str) = ("order.json", "host-order.json");
const PENDING: &str = "between.json";

fn earlier(name: &str) -> PathBuf {
    recorded::directory().join("8ee2679").join(name)
}

/// A machine's directory as a build before `garboard-shim` left it.
fn machine_of_an_earlier_build() -> tempfile::TempDir {
    let machine = tempfile::tempdir().unwrap();
    let (name, file) = EARLIER_REQUEST;
    std::fs::copy(earlier(file), machine.path().join(name)).unwrap();
    std::fs::copy(earlier(PENDING), machine.path().join(PENDING)).unwrap();
    machine
}

/// Every kind of volume, by its name in [`expect_whole`].
fn volumes() -> BTreeMap<String, HostVolumeSource> {
    let config = HostVolumeSource::Projected { files: [("key".to_owned(), "dmFsdWU=".to_owned())].into() };
    let volumes = [
        ("directory", HostVolumeSource::Directory { path: "/d".into() }),
        ("root", HostVolumeSource::File { path: "/f".into() }),
        ("claim", HostVolumeSource::Opened { path: "/o".into(), writable: true }),
        ("host", HostVolumeSource::HostDisk { path: "/h".into() }),
        ("config", config),
        ("empty", HostVolumeSource::Made),
    ];
    volumes.map(|(name, source)| (name.to_owned(), source)).into()
}

/// One with something in each field. Written out: a new field has to be thought of here.
fn request(machine: &Path) -> LaunchRequest {
    let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "default", "name": "earlier", "uid": "u"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}});
    let (facts, options) = (HostFacts::reference(), PlanOptions::default());
    let plan = serde_json::from_value(vmi.clone()).unwrap();
    let plan = garboard_plan::plan(&plan, &facts, &options, None).unwrap();
    LaunchRequest {
        namespace: "default".to_owned(),
        name: "earlier".to_owned(),
        uid: "u".to_owned(),
        machine: machine.to_owned(),
        machine_uid: Some(2_000_000_000),
        record: "/records/1".into(),
        scratch: "/scratch".into(),
        vmi,
        facts,
        options,
        resources: plan.resources,
        volumes: volumes(),
        kernel_files: [("/boot/vmlinuz".to_owned(), PathBuf::from("/images/vmlinuz"))].into(),
        firmware_vars: Some(FirmwareVars { path: "/vars".into(), template: "/template".into() }),
        grace_seconds: 30,
        strategy: RunStrategy::Always,
        stored: Some(plan.stored),
        kept: Some("/stored.json".into()),
    }
}

/// How the sample is written is its file; the directory is another one each time.
fn as_written(name: &str) -> Vec<u8> {
    let machine = tempfile::tempdir().unwrap();
    request(machine.path()).write().unwrap();
    let pending = PendingRestart { ended: "the guest powered itself off".to_owned(), failures: 2, again_at_ms: 5 };
    pending_restart::announce(machine.path(), &pending).unwrap();
    let text = String::from_utf8(std::fs::read(machine.path().join(name)).unwrap()).unwrap();
    text.replace(machine.path().to_str().unwrap(), "/run/garboard/default/earlier").into_bytes()
}

#[test]
fn this_build_writes_each_kind_of_file() {
    let files = [REQUEST, PENDING].map(|name| (name, as_written(name)));
    recorded::expect_listed([REQUEST, PENDING, EARLIER_REQUEST.1]);
    recorded::write(&files);
}

/// The launch requests of every build, and that of this one, in the directory of a machine.
#[test]
fn the_launch_request_of_every_build_is_read() {
    let (name, file) = EARLIER_REQUEST;
    let before = recorded::all(file).into_iter().map(|file| (name, file.bytes));
    let after = recorded::all(REQUEST).into_iter().map(|file| (REQUEST, file.bytes));
    for (name, bytes) in before.chain(after).chain([(REQUEST, as_written(REQUEST))]) {
        let machine = tempfile::tempdir().unwrap();
        std::fs::write(machine.path().join(name), bytes).unwrap();
        expect_whole(machine.path());
    }
}

fn expect_whole(machine: &Path) {
    let request = LaunchRequest::read(machine).unwrap();
    assert_eq!((request.id().to_string().as_str(), request.strategy), ("default/earlier", RunStrategy::Always));
    assert_eq!(calls::present_run(machine), Some(request.record.clone()));
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
fn the_stored_machine_of_every_build_is_read_from_its_file() {
    let files = recorded::all(paths::STORED);
    assert!(files.len() > 2, "{}", files.len());
    for file in files {
        let machine = stored::read(&file.path).unwrap().unwrap();
        assert_eq!(machine.check().map_err(|error| error.to_string()), Ok(()), "{}", file.path.display());
    }
}

#[test]
fn a_new_launch_request_precedes_the_earlier_one() {
    let machine = machine_of_an_earlier_build();
    let mut request = LaunchRequest::read(machine.path()).unwrap();
    request.machine = machine.path().to_owned();
    request.grace_seconds = 4711;
    request.write().unwrap();
    assert_eq!(request::path(machine.path()), Some(machine.path().join(REQUEST)));
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
fn the_pause_of_every_build_is_understood() {
    for file in recorded::all(PENDING) {
        let machine = tempfile::tempdir().unwrap();
        std::fs::write(machine.path().join(PENDING), &file.bytes).unwrap();
        let pending = pending_restart::read(machine.path()).unwrap();
        assert!(pending.failures == 2 && pending.again_at_ms > 0, "{}: {pending:?}", file.path.display());
    }
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
    let requests = [std::fs::read(earlier(EARLIER_REQUEST.1)).unwrap(), as_written(REQUEST)];
    let requests = requests.map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap());
    let places = requests.iter().flat_map(|request| {
        let mut places = Vec::new();
        objects(request, "", "", &mut places);
        assert!(places.len() > 20, "{places:?}");
        places.into_iter().map(move |place| (request, place))
    });
    for (request, place) in places {
        let mut more = request.clone();
        let object = more.pointer_mut(&place).and_then(Value::as_object_mut).unwrap();
        object.insert("aFieldOfALaterBuild".to_owned(), json!({"with": ["anything", 7]}));
        let read = serde_json::from_value::<LaunchRequest>(more);
        assert!(read.is_ok(), "{place}: {:?}", read.err());
    }
    let more = json!({"ended": "e", "failures": 0, "againAtMs": 1, "aFieldOfALaterBuild": {}});
    assert!(serde_json::from_value::<PendingRestart>(more).is_ok());
}
