//! Formats outlive programs: what earlier builds wrote (`tests/compat/<build>/`) is read by this one, and what later builds
//! will write is read as far as it is known. `GARBOARD_COMPAT=<build>` writes the directory of this build; a file that
//! is there is never written again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole file is a test")]

mod frozen;
mod messages;
#[path = "../../../tests/recorded.rs"]
mod recorded;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::VirtualMachineInstance;
use garboard_host::offer::NodeOffer;
use garboard_machine::facts::{HostFacts, KvmFacts};
use garboard_machine::features::QemuVersion;
use garboard_plan::live::{Card, Change, Drive, HeldByQemu, LIVE_VERSION, LivePlan};
use garboard_plan::{FirmwareIdentity, KeptMachine, LaunchPlan, LinkState, PlanOptions, StoredMachine};
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::control::{
    DiskStatus, Ended, GuestStatus, GuestSystem, InterfaceStatus, PauseReason, Status, SupervisorInfo,
};
use garboard_protocol::exit::{EndHints, ExitCause, ExitReport, ProcessEnd};
use garboard_protocol::guest::{
    GuestCommand, GuestFileSystem, GuestFileSystemDisk, GuestReport, GuestTimezone, GuestUser,
};
use garboard_protocol::journal::{
    Deadline, Journal, JournaledFreeze, JournaledSoftReboot, NumberedRequest, RequestOutcome, SoftRebootStep,
};
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_protocol::pod::{DiskImage, NodeFacts, PodOrder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Case;
use support::fields::fields_of;

/// A kind of file that outlives its writer, or of line that is sent to a program of another version.
pub(crate) struct Kind {
    /// The file of its sample.
    pub(crate) name: &'static str,
    /// What this build writes.
    pub(crate) value: Value,
    /// Whether its reader can read it at all.
    pub(crate) decodes: fn(&[u8]) -> Result<(), serde_json::Error>,
    /// Whether it is read as what it was written as.
    pub(crate) is_understood: fn(&[u8]) -> Result<(), String>,
}

impl Kind {
    fn of<T: Serialize + DeserializeOwned>(name: &'static str, value: &T) -> Self {
        let value = serde_json::to_value(value).unwrap();
        Self { name, value, decodes: reads::<T>, is_understood: |bytes| reads::<T>(bytes).map_err(|it| it.to_string()) }
    }

    fn understood_by(self, is_understood: fn(&[u8]) -> Result<(), String>) -> Self {
        Self { is_understood, ..self }
    }
}

fn reads<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<T>(bytes).map(|_| ())
}

/// Every kind.
fn kinds() -> Vec<Kind> {
    documents().into_iter().chain(messages::all()).collect()
}

/// Objects whose keys are names and not fields: the file, or `""` for any, and their own key, or `""` for the whole file.
const MAPS: &[(&str, &str)] = &[
    ("facts.json", "features"),
    ("live.json", "cards"),
    ("live.json", "drives"),
    ("plan.json", "devices"),
    ("stored.json", "devices"),
    ("kept-machine.json", "devices"),
    ("order.json", "volumes"),
    ("options.json", "volumes"),
    ("volumes.json", ""),
    ("", "macs"),
    ("", "diskSerials"),
    ("", "queues"),
    ("", "mtus"),
];

pub(crate) fn report() -> ExitReport {
    ExitReport {
        end: ProcessEnd::Signalled { signal: 9 },
        oom_kills: 1,
        memory_limit_bytes: Some(1 << 30),
        asked_by_init: false,
        killed_by_init: false,
        last_output: "qemu: one\nqemu: two".to_owned(),
        failure: None,
    }
}

fn ended() -> Ended {
    let cause = ExitCause::OutOfMemory { limit_bytes: Some(1 << 30) };
    Ended { message: cause.message(), cause, report: Some(report()), at_ms: 1_790_000_000_000 }
}

/// Written out, with each field: a test compares them with those of the type.
pub(crate) fn status() -> Value {
    let stored = Case::load("uefi").plan().unwrap().stored;
    json!({
        "generation": 1_790_000_000_123_u64, "namespace": "golden", "name": "uefi", "uid": "u", "phase": "Running",
        "phaseSinceMs": 1_790_000_000_000_i64, "paused": "PausedIOError", "pauseMessage": "writing to root failed: full",
        "frozen": true, "stopping": true, "softRebooting": true, "unresponsive": true, "endedHelper": "passt", "softwareEmulation": true,
        "interpretedByKvm": true,
        "machine": "pc-q35-7.2", "memoryBytes": 1, "overheadBytes": 1, "vcpus": 1, "stored": stored,
        "disks": [{"volume": "root", "target": "vda"}],
        "interfaces": [{"name": "default", "interfaceName": "eth0", "mac": "02:00:00:00:00:01",
            "addresses": ["10.0.2.2"], "infoSource": "domain, guest-agent", "queues": 2, "link": "down"}],
        "guest": {"hostname": "h", "os": "o", "kernel": "k", "agentVersion": "1", "system": {"id": "debian", "name": "n",
            "version": "12 (bookworm)", "versionId": "12", "kernelVersion": "#1", "machine": "x86_64"},
            "missingCommands": ["guest-get-time"]},
        "accessCredentials": {"synchronized": false, "message": "Guest agent is offline"},
        "taints": ["device_del"], "run": "r", "supervisorPid": 7,
        "supervisor": {"version": "1", "startedAtMs": 1_790_000_000_000_i64, "executedAtMs": 1_790_000_000_500_i64},
        "resets": 3, "ended": ended(),
    })
}

/// The same of what a guest agent reports.
pub(crate) fn guest_report() -> Value {
    json!({
        "guest": {"hostname": "h", "os": "o", "kernel": "k", "agentVersion": "1", "system": {"id": "debian", "name": "n",
            "version": "12 (bookworm)", "versionId": "12", "kernelVersion": "#1", "machine": "x86_64"},
            "missingCommands": ["guest-get-time"]},
        "commands": [{"name": "guest-ping", "enabled": true}], "timezone": {"zone": "UTC", "offsetSeconds": 3600},
        "users": [{"user": "root", "domain": "d", "loginTimeSeconds": 1.5}],
        "fileSystems": [{"name": "vda1", "mountpoint": "/", "type": "ext4", "usedBytes": 1, "totalBytes": 2,
            "disks": [{"bus": "virtio", "serial": "s"}]}],
        "frozen": true,
    })
}

fn offer() -> Value {
    let qemu = json!({"major": 10, "minor": 0, "micro": 3, "package": "Debian 1:10.0.3"});
    let kvm = json!({"state": "native", "qemu": qemu, "cpuFeatures": ["sse2"], "maxVcpus": 240, "nested": true});
    json!({"accelerator": "kvm", "kvm": kvm, "machines": ["pc-q35-10.0", "q35"], "cpuModels": ["max"], "cpuFeatures": ["sse2"],
        "cpuVendor": "GenuineIntel", "hyperv": ["base"], "tscHz": 2_000_000_000_u64, "tscScalable": true})
}

/// Written out: a new field has to be thought of here.
fn journal() -> Journal {
    Journal {
        version: 1,
        generation: 1_790_000_001_024,
        launched: true,
        started: true,
        started_at_ms: 1_790_000_000_000,
        stop_deadline_ms: Some(1_790_000_030_000),
        deadline: Some(Deadline { boot_id: "b".to_owned(), at_ms: 30_000 }),
        prolonged_ms: 300_000,
        taints: vec!["device_del".to_owned()],
        resets: 3,
        soft_reboot: Some(JournaledSoftReboot {
            step: SoftRebootStep::PowerButton,
            deadline: Deadline { boot_id: "b".to_owned(), at_ms: 30_000 },
        }),
        freeze: Some(JournaledFreeze { thaw_at: Some(Deadline { boot_id: "b".to_owned(), at_ms: 30_000 }) }),
        run: "r".to_owned(),
        requests: vec![NumberedRequest {
            id: "n".to_owned(),
            ask: "reset".to_owned(),
            at_ms: 30_000,
            outcome: RequestOutcome::Denied,
            reason: "no".to_owned(),
        }],
        ended: Some(ended()),
        hints: EndHints::default(),
        paused: Some(PauseReason::PausedByUser),
    }
}

fn live() -> LivePlan {
    let names = |name: &str| BTreeSet::from([name.to_owned()]);
    let held = HeldByQemu {
        block_nodes: names("root"),
        devices: names("root"),
        chardevs: names("monitor"),
        netdevs: names("net-default"),
        drives: BTreeMap::from([("cd".to_owned(), Drive { is_open: true, medium: Some("cd".to_owned()) })]),
        cards: BTreeMap::from([("nic".to_owned(), Card { netdev: "net-default".to_owned(), link: LinkState::Down })]),
    };
    let link = Some(LinkState::Up);
    let change = Change { command: "set_link".to_owned(), subject: Some("d".to_owned()), link };
    LivePlan { version: LIVE_VERSION, held, pending: vec![change] }
}

fn volumes() -> VolumeTable {
    let places = [
        ("root", VolumePlace::Directory { path: "/v/root".to_owned() }),
        ("data", VolumePlace::File { path: "/dev/d".to_owned() }),
        ("claim", VolumePlace::Descriptor),
        ("disk", VolumePlace::Handed { socket: "/run/garboard-disks/disk.sock".to_owned() }),
    ];
    VolumeTable { places: places.map(|(name, place)| (name.to_owned(), place)).into() }
}

fn order(case: &Case, plan: &LaunchPlan) -> PodOrder {
    PodOrder {
        version: 1,
        vmi: serde_json::to_value(&case.vmi).unwrap(),
        volumes: volumes(),
        images: vec![DiskImage { volume: "data".to_owned(), file: "disk.img".to_owned(), bytes: 1 }],
        emulation: true,
        overhead_permille: Some(1250),
        stored: Some(serde_json::to_value(&plan.stored).unwrap()),
    }
}

/// What is in an order is read by the planner; the protocol only carries it.
fn is_order(bytes: &[u8]) -> Result<(), String> {
    let read = || -> Result<(), serde_json::Error> {
        let order: PodOrder = serde_json::from_slice(bytes)?;
        serde_json::from_value::<VirtualMachineInstance>(order.vmi)?;
        order.stored.map(serde_json::from_value::<StoredMachine>).transpose().map(drop)
    };
    read().map_err(|error| error.to_string())
}

fn kept(plan: &LaunchPlan) -> KeptMachine {
    KeptMachine {
        namespace: "golden".to_owned(),
        name: "uefi".to_owned(),
        firmware: FirmwareIdentity { uuid: Some("u".to_owned()), serial: Some("s".to_owned()) },
        machine: serde_json::to_value(&plan.stored).unwrap(),
    }
}

/// As the webhook and the controller read the annotation.
fn is_kept(bytes: &[u8]) -> Result<(), String> {
    let kept = KeptMachine::read(std::str::from_utf8(bytes).unwrap()).map_err(|error| error.to_string())?;
    kept.judge().map(drop).map_err(|error| error.to_string())
}

/// Files.
fn documents() -> Vec<Kind> {
    let case = Case::load("uefi");
    let plan = case.plan().unwrap();
    let status: Status = serde_json::from_value(status()).unwrap();
    let offer: NodeOffer = serde_json::from_value(offer()).unwrap();
    vec![
        Kind::of("exit.json", &report()),
        Kind::of("facts.json", &case.facts),
        Kind::of("journal.json", &journal()),
        Kind::of("kept-machine.json", &kept(&plan)).understood_by(is_kept),
        Kind::of("live.json", &live()),
        Kind::of("node.json", &NodeFacts { version: 1, tap: true, vhost_net: true, kvm: offer.kvm.clone() }),
        Kind::of("offer.json", &offer),
        Kind::of("options.json", &case.options),
        Kind::of("order.json", &order(&case, &plan)).understood_by(is_order),
        Kind::of("plan.json", &plan),
        Kind::of("status.json", &status),
        Kind::of("stored.json", &plan.stored),
        Kind::of("volumes.json", &volumes()),
    ]
}

#[test]
fn this_build_reads_what_it_writes_and_has_its_directory() {
    let kinds = kinds();
    for Kind { name, value, is_understood, .. } in &kinds {
        is_understood(value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let texts = messages::texts();
    for messages::Text { name, text, is_understood } in &texts {
        assert!(is_understood(text), "{name}");
    }
    let names = kinds.iter().map(|kind| kind.name).chain(texts.iter().map(|text| text.name));
    assert_eq!(names.clone().collect::<BTreeSet<_>>().len(), names.clone().count(), "each has a name of its own");
    recorded::expect_listed(names);
    let pretty = |value: &Value| (serde_json::to_string_pretty(value).unwrap() + "\n").into_bytes();
    let files = kinds.iter().map(|kind| (kind.name, pretty(&kind.value)));
    let files: Vec<_> = files.chain(texts.into_iter().map(|text| (text.name, text.text.into_bytes()))).collect();
    recorded::write(&files);
}

/// Each object of a sample, and the fields of its type.
fn has_each_field(sample: &Value, objects: &[(&str, &[&str])]) {
    for (place, fields) in objects {
        let object =
            sample.pointer(place).and_then(Value::as_object).unwrap_or_else(|| panic!("no object at `{place}`"));
        let has: BTreeSet<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(has, fields.iter().copied().collect(), "the sample, and the fields that are read, at `{place}`");
    }
}

/// A field without a sample would change unnoticed.
#[test]
fn the_sample_of_a_status_has_each_field() {
    let sample = status();
    let objects = [
        ("", fields_of::<Status>()),
        ("/supervisor", fields_of::<SupervisorInfo>()),
        ("/disks/0", fields_of::<DiskStatus>()),
        ("/interfaces/0", fields_of::<InterfaceStatus>()),
        ("/guest", fields_of::<GuestStatus>()),
        ("/guest/system", fields_of::<GuestSystem>()),
        ("/ended", fields_of::<Ended>()),
        ("/ended/report", fields_of::<ExitReport>()),
    ];
    has_each_field(&sample, &objects);
    let read: Status = serde_json::from_value(sample.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), sample, "nothing of it is lost");
}

#[test]
fn the_sample_of_a_guest_has_each_field() {
    let objects = [
        ("", fields_of::<GuestReport>()),
        ("/guest", fields_of::<GuestStatus>()),
        ("/commands/0", fields_of::<GuestCommand>()),
        ("/timezone", fields_of::<GuestTimezone>()),
        ("/users/0", fields_of::<GuestUser>()),
        ("/fileSystems/0", fields_of::<GuestFileSystem>()),
        ("/fileSystems/0/disks/0", fields_of::<GuestFileSystemDisk>()),
    ];
    has_each_field(&guest_report(), &objects);
    let read: GuestReport = serde_json::from_value(guest_report()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), guest_report(), "nothing of it is lost");
}

/// What the first build wrote of an offer. Any other field has a default for an image that is older.
const OFFERED_AT_FIRST: &[&str] = &[
    "/accelerator",
    "/machines",
    "/cpuModels",
    "/cpuFeatures",
    "/cpuVendor",
    "/hyperv",
    "/tscHz",
    "/tscScalable",
    // Where there is something about KVM.
    "/kvm/state",
];

#[test]
fn the_sample_of_an_offer_has_each_field_and_a_later_field_may_be_absent() {
    let objects =
        [("", fields_of::<NodeOffer>()), ("/kvm", fields_of::<KvmFacts>()), ("/kvm/qemu", fields_of::<QemuVersion>())];
    has_each_field(&offer(), &objects);
    for (place, fields) in &objects[..2] {
        for field in *fields {
            let mut earlier = offer();
            earlier.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(*field);
            let read = serde_json::from_value::<NodeOffer>(earlier);
            let path = format!("{place}/{field}");
            assert!(read.is_ok() || OFFERED_AT_FIRST.contains(&path.as_str()), "without `{path}`: {read:?}");
        }
    }
    let read: NodeOffer = serde_json::from_value(offer()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), offer(), "nothing of it is lost");
}

#[test]
fn what_earlier_builds_wrote_is_read() {
    let mut read = 0;
    for Kind { name, is_understood, .. } in kinds() {
        for file in recorded::all(name) {
            is_understood(&file.bytes).unwrap_or_else(|error| panic!("{}: {error}", file.path.display()));
            read += 1;
        }
    }
    for messages::Text { name, is_understood, .. } in messages::texts() {
        for file in recorded::all(name) {
            let text = String::from_utf8(file.bytes).unwrap();
            assert!(is_understood(&text), "{}", file.path.display());
            read += 1;
        }
    }
    assert!(read > 50, "{read}");
}

/// The table is the list of what every later build reads: no file leaves a directory, or comes into one, without it.
#[test]
fn the_table_has_each_kind_of_file_and_each_build() {
    let names = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let builds = recorded::builds();
    assert_eq!(recorded::columns(), builds.iter().map(|build| names(build)).collect::<BTreeSet<_>>());
    let mut present: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for build in &builds {
        for file in std::fs::read_dir(build).unwrap() {
            present.entry(names(&file.unwrap().path())).or_default().insert(names(build));
        }
    }
    for (name, builds) in recorded::table() {
        let recorded = present.remove(&name).unwrap_or_default();
        assert_eq!(recorded, builds, "{name}: the directories, and the table of tests/compat/README.md");
    }
    assert!(present.is_empty(), "files without a row in the table of tests/compat/README.md: {:?}", present.keys());
}

/// Without /dev/kvm among its devices, QEMU is refused its accelerator by Landlock.
#[test]
fn a_launch_of_an_earlier_build_keeps_its_devices_and_no_other_path() {
    let path = recorded::directory().join("8ee2679/to-init-launch.json");
    let mut stored: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    stored["writablePaths"].as_array_mut().unwrap().push(json!("/run/garboard/shared"));
    let launch = |sent: Value| match serde_json::from_value(sent).unwrap() {
        ToInit::Launch(launch) => *launch,
        other @ (ToInit::PoweringDown { .. } | ToInit::Kill | ToInit::Unknown) => panic!("{other:?}"),
    };
    let read = launch(stored);
    assert_eq!(read.devices, ["/dev/kvm"]);
    assert_eq!(launch(serde_json::to_value(ToInit::Launch(Box::new(read.clone()))).unwrap()), read);
}

/// Every way to have one more field in one object of a value, with the object's own key.
fn with_one_more_field(value: &Value, key: &str, put_back: &dyn Fn(Value) -> Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("aFieldOfALaterBuild".to_owned(), json!({"with": ["anything", 7]}));
            found.push((key.to_owned(), put_back(Value::Object(more))));
            for (name, inner) in fields {
                let put = |changed: Value| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), changed);
                    put_back(Value::Object(fields))
                };
                with_one_more_field(inner, name, &put, found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let put = |changed: Value| {
                    let mut items = items.clone();
                    items[index] = changed;
                    put_back(Value::Array(items))
                };
                with_one_more_field(inner, key, &put, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn what_later_builds_add_is_ignored() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for Kind { name, value, decodes, .. } in kinds() {
        let mut found = Vec::new();
        with_one_more_field(&value, "", &|whole| whole, &mut found);
        for (key, more) in found {
            let is_map = MAPS.contains(&(name, key.as_str())) || MAPS.contains(&("", key.as_str()));
            if !is_map {
                tried += 1;
                if let Err(error) = decodes(more.to_string().as_bytes()) {
                    wrong.push(format!("{name}, in `{key}`: {error}"));
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 200, "{tried}");
}

/// Values in place of which a later one is an error, by file, or `""` for any, and key: what is asked of a program that must do it
/// or refuse.
const DEMANDS: &[(&str, &str)] = &[
    ("", "ask"),
    ("", "answer"),
    ("asked-stop.json", "mode"),
    ("asked-guest.json", "about"),
    ("asked-console.json", "access"),
    ("asked-backup-hook.json", "step"),
    ("asked-show.json", "part"),
    ("asked-console.json", "session"),
    ("asked-vnc.json", "session"),
    // A place that a client would go on from.
    ("answered-resumed.json", "position"),
    ("asked-qmp.json", "access"),
    ("asked-probe.json", "question"),
    ("to-agent-plumb.json", "binding"),
    ("to-agent-sockets.json", "binding"),
    // Addresses that are announced to the guest.
    ("from-agent-plumbed.json", "address"),
    ("from-agent-plumbed.json", "server"),
    ("from-agent-plumbed.json", "gateway"),
    ("from-agent-plumbed.json", "to"),
    ("from-agent-plumbed.json", "via"),
    ("from-agent-plumbed.json", "network"),
    // Facts of a volume that is to be opened: another format would be read as what it is not.
    ("options.json", "format"),
    ("options.json", "medium"),
    ("options.json", "accelerator"),
    ("options.json", "emulation"),
    // Without labels of CPU models and machine types nothing is placed there that would not run.
    ("offer.json", "accelerator"),
];

/// Every way to have another name in one place of a value, with the key of that place.
fn with_another_name(value: &Value, key: &str, put_back: &dyn Fn(Value) -> Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::String(_) => found.push((key.to_owned(), put_back(json!("aWordOfALaterBuild")))),
        Value::Object(fields) => {
            for (name, inner) in fields {
                let put = |changed: Value| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), changed);
                    put_back(Value::Object(fields))
                };
                with_another_name(inner, name, &put, found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let put = |changed: Value| {
                    let mut items = items.clone();
                    items[index] = changed;
                    put_back(Value::Array(items))
                };
                with_another_name(inner, key, &put, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn a_name_of_a_later_build_does_not_end_a_document() {
    let (mut tried, mut wrong) = (0, Vec::new());
    let golden = Case::load("many-disks").plan().unwrap();
    for Kind { name, value, decodes, .. } in kinds().into_iter().chain([Kind::of("plan.json", &golden)]) {
        let demands = |key: &str| DEMANDS.contains(&(name, key)) || DEMANDS.contains(&("", key));
        let mut found = Vec::new();
        with_another_name(&value, "", &|whole| whole, &mut found);
        for (key, other) in found.into_iter().filter(|(key, _)| !demands(key)) {
            tried += 1;
            if let Err(error) = decodes(other.to_string().as_bytes()) {
                wrong.push(format!("{name}, `{key}`: {error}"));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 500, "{tried}");
}

#[test]
fn a_message_of_a_later_build_does_not_end_a_connection() {
    let message = br#"{"init":"somethingNew","supervisor":"somethingNew","with":7}"#;
    assert_eq!(serde_json::from_slice::<FromInit>(message).unwrap(), FromInit::Unknown);
    assert_eq!(serde_json::from_slice::<ToInit>(message).unwrap(), ToInit::Unknown);
}

#[test]
fn a_stop_of_an_earlier_build_keeps_its_deadline() {
    let path = recorded::directory().join("8ee2679/journal.json");
    let journal: Journal = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((journal.deadline, journal.stop_deadline_ms), (None, Some(1_790_000_030_000)));
}

/// What its guest notices is the same: the same devices with the same properties, the same CPU, the same board.
#[test]
fn a_machine_of_an_earlier_build_is_the_same_to_its_guest() {
    let case = Case::load("uefi");
    // Between 8ee2679 and 72c849a every guest lost its sleep states and the balloon's polling: there were no rules to keep.
    for file in recorded::all("plan.json").into_iter().filter(|file| !file.is_of("8ee2679")) {
        let build = file.path.parent().unwrap();
        let read =
            |name: &str| std::fs::read(build.join(name)).ok().map(|it| serde_json::from_slice::<Value>(&it).unwrap());
        let before: LaunchPlan = serde_json::from_slice(&file.bytes).unwrap();
        let stored: StoredMachine = serde_json::from_value(read("stored.json").unwrap()).unwrap();
        // A build of which only the golden machine is there had the facts, options and manifest of today.
        let facts: HostFacts = read("facts.json").map_or(case.facts.clone(), |it| serde_json::from_value(it).unwrap());
        let options: PlanOptions =
            read("options.json").map_or(case.options.clone(), |it| serde_json::from_value(it).unwrap());
        let vmi = read("order.json")
            .map_or(case.vmi.clone(), |mut order: Value| serde_json::from_value(order["vmi"].take()).unwrap());
        let now = garboard_plan::plan(&vmi, &facts, &options, Some(&stored)).unwrap();
        assert_eq!(seen(&now), seen(&before), "{}", build.display());
        assert_eq!((now.stored.version, now.stored.rules), (garboard_plan::STORED_VERSION, stored.rules));
    }
}

/// The options of a command line that make what a guest sees.
fn seen(plan: &LaunchPlan) -> Vec<(String, String)> {
    let guests = ["-machine", "-cpu", "-smp", "-m", "-uuid", "-smbios", "-rtc", "-global", "-boot", "-device"];
    let pairs = plan.argv.windows(2).filter(|pair| guests.contains(&pair[0].as_str()));
    pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
