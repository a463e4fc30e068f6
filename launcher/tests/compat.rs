//! Formats outlive programs: what earlier builds wrote (`tests/compat/<build>/`) is read by this one, and what later builds
//! will write is read as far as it is known. `GARBOARD_COMPAT=<build>` writes the directory of this build; a directory that
//! is there is never written again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the whole file is a test")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use garboard_host::offer::NodeOffer;
use garboard_machine::facts::{HostFacts, KvmFacts};
use garboard_machine::features::QemuVersion;
use garboard_net::GuestAddresses;
use garboard_plan::live::LivePlan;
use garboard_plan::{LaunchPlan, PlanOptions, StoredMachine};
use garboard_protocol::agent::{AgentReply, AgentRequest, VolumeTable};
use garboard_protocol::control::{
    Asked, ControlReply, DiskStatus, Ended, GuestStatus, GuestSystem, InterfaceStatus, PauseReason, Status,
    SupervisorInfo,
};
use garboard_protocol::exit::{EndHints, ExitCause, ExitReport, ProcessEnd};
use garboard_protocol::guest::{
    GuestCommand, GuestFileSystem, GuestFileSystemDisk, GuestReport, GuestTimezone, GuestUser,
};
use garboard_protocol::journal::{Deadline, Freeze, Journal, SoftReboot, SoftRebootStep};
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_protocol::pod::{NodeFacts, PodOrder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Case;
use support::fields::fields_of;

type Check = fn(&[u8]) -> Result<(), serde_json::Error>;

fn reads<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<T>(bytes).map(|_| ())
}

/// Every file that outlives its writer, and every line that is sent to a program of another version.
const KINDS: &[(&str, Check)] = &[
    ("exit.json", reads::<ExitReport>),
    ("facts.json", reads::<HostFacts>),
    ("journal.json", reads::<Journal>),
    ("live.json", reads::<LivePlan>),
    ("node.json", reads::<NodeFacts>),
    ("offer.json", reads::<NodeOffer>),
    ("options.json", reads::<PlanOptions>),
    ("order.json", reads::<PodOrder>),
    ("plan.json", reads::<LaunchPlan>),
    ("to-agent-plumb.json", reads::<AgentRequest>),
    ("to-agent-report.json", reads::<AgentRequest>),
    ("to-agent-serve.json", reads::<AgentRequest>),
    ("to-agent-sockets.json", reads::<AgentRequest>),
    ("to-agent-volume.json", reads::<AgentRequest>),
    ("from-agent-connection.json", reads::<Reply>),
    ("from-agent-serving.json", reads::<Reply>),
    ("from-agent-noted.json", reads::<Reply>),
    ("from-agent-plumbed.json", reads::<Reply>),
    ("from-agent-refused.json", reads::<Reply>),
    ("from-agent-volume.json", reads::<Reply>),
    ("to-supervisor-ended.json", reads::<FromInit>),
    ("to-supervisor-hello.json", reads::<FromInit>),
    ("to-supervisor-spawned.json", reads::<FromInit>),
    ("to-init-kill.json", reads::<ToInit>),
    ("to-init-launch.json", reads::<ToInit>),
    ("to-init-powering-down.json", reads::<ToInit>),
    ("asked-freeze.json", reads::<Asked>),
    ("asked-guest.json", reads::<Asked>),
    ("asked-screenshot.json", reads::<Asked>),
    ("asked-soft-reboot.json", reads::<Asked>),
    ("asked-stop.json", reads::<Asked>),
    ("asked-unfreeze.json", reads::<Asked>),
    ("answered-done.json", reads::<ControlReply>),
    ("answered-guest.json", reads::<ControlReply>),
    ("answered-status.json", reads::<ControlReply>),
    ("status.json", reads::<Status>),
    ("stored.json", reads::<StoredMachine>),
    ("volumes.json", reads::<VolumeTable>),
];

/// What the agent answers.
type Reply = AgentReply<GuestAddresses>;

/// Names the sample of each message of a type: one that has no line here does not compile.
macro_rules! samples {
    ($name:ident, $list:ident, $message:ty, $($pattern:pat => $sample:literal,)*) => {
        const $list: &[&str] = &[$($sample,)*];

        fn $name(message: &$message) -> &'static str {
            match message {
                $($pattern => $sample,)*
            }
        }
    };
}

samples!(
    sample_of_request,
    REQUESTS,
    AgentRequest,
    AgentRequest::Volume { .. } => "to-agent-volume.json",
    AgentRequest::Plumb { .. } => "to-agent-plumb.json",
    AgentRequest::Sockets { .. } => "to-agent-sockets.json",
    AgentRequest::Report { .. } => "to-agent-report.json",
    AgentRequest::Serve => "to-agent-serve.json",
);

samples!(
    sample_of_reply,
    REPLIES,
    Reply,
    AgentReply::Volume => "from-agent-volume.json",
    AgentReply::Plumbed { .. } => "from-agent-plumbed.json",
    AgentReply::Noted => "from-agent-noted.json",
    AgentReply::Refused { .. } => "from-agent-refused.json",
    AgentReply::Serving => "from-agent-serving.json",
    AgentReply::Connection => "from-agent-connection.json",
);

/// Builds, and kinds of files that they did not write yet.
const NOT_YET: &[(&[&str], &[&str])] = &[(
    &["72c849a", "8ee2679"],
    &[
        "answered-done.json",
        "answered-guest.json",
        "asked-freeze.json",
        "asked-guest.json",
        "asked-screenshot.json",
        "asked-soft-reboot.json",
        "asked-unfreeze.json",
        "live.json",
        "offer.json",
        "to-agent-serve.json",
        "to-agent-sockets.json",
        "to-agent-volume.json",
        "from-agent-connection.json",
        "from-agent-serving.json",
        "from-agent-noted.json",
        "from-agent-plumbed.json",
        "from-agent-refused.json",
        "from-agent-volume.json",
    ],
)];

/// Objects whose keys are names and not fields: the file, or `""` for any, and their own key, or `""` for the whole file.
const MAPS: &[(&str, &str)] = &[
    ("facts.json", "features"),
    ("live.json", "drives"),
    ("plan.json", "devices"),
    ("stored.json", "devices"),
    ("order.json", "volumes"),
    ("options.json", "volumes"),
    ("volumes.json", ""),
    ("", "macs"),
    ("", "diskSerials"),
    ("", "queues"),
    ("", "mtus"),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/compat")
}

fn builds() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).expect("tests/compat exists");
    let mut builds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    builds.sort();
    builds
}

fn report() -> ExitReport {
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

fn status(plan: &LaunchPlan) -> Value {
    json!({
        "generation": 1_790_000_000_123_u64, "namespace": "golden", "name": "uefi", "uid": "u", "phase": "Running",
        "phaseSinceMs": 1_790_000_000_000_i64, "paused": "PausedIOError", "pauseMessage": "writing to root failed: full",
        "frozen": true, "stopping": true, "softRebooting": true, "unresponsive": true, "endedHelper": "passt", "softwareEmulation": true,
        "interpretedByKvm": true,
        "machine": "pc-q35-7.2", "memoryBytes": 1, "overheadBytes": 1, "vcpus": 1, "stored": plan.stored,
        "disks": [{"volume": "root", "target": "vda"}],
        "interfaces": [{"name": "default", "interfaceName": "eth0", "mac": "02:00:00:00:00:01",
            "addresses": ["10.0.2.2"], "infoSource": "domain, guest-agent"}],
        "guest": {"hostname": "h", "os": "o", "kernel": "k", "agentVersion": "1", "system": {"id": "debian", "name": "n",
            "version": "12 (bookworm)", "versionId": "12", "kernelVersion": "#1", "machine": "x86_64"}},
        "taints": ["device_del"], "supervisorPid": 7, "supervisor": {"version": "1", "startedAtMs": 1_790_000_000_000_i64},
        "resets": 3, "ended": ended(),
    })
}

fn guest_report() -> Value {
    json!({
        "guest": {"hostname": "h", "os": "o", "kernel": "k", "agentVersion": "1", "system": {"id": "debian", "name": "n",
            "version": "12 (bookworm)", "versionId": "12", "kernelVersion": "#1", "machine": "x86_64"}},
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

fn launch() -> Value {
    json!({"supervisor": "launch", "argv": ["/usr/bin/qemu"], "environment": [["TZ", "UTC"]], "descriptors": [10, 11],
        "reopened": [10], "logs": [11], "identity": {"uid": 107, "gid": 107, "groups": [36]},
        "readablePaths": ["/usr"], "devices": ["/dev/kvm"], "usesTcp": true, "hasMonitor": true, "memlockBytes": 1, "graceSeconds": 30,
        "helpers": [{"argv": ["/usr/bin/passt"], "descriptor": 12}]})
}

/// What this build writes.
fn written() -> Vec<(&'static str, Value)> {
    let case = Case::load("uefi");
    let plan = case.plan().unwrap();
    let volumes = json!({"root": {"place": "directory", "path": "/v/root"}, "data": {"place": "file", "path": "/dev/d"},
        "claim": {"place": "descriptor"}, "disk": {"place": "handed", "socket": "/run/garboard-disks/disk.sock"}});
    // Written out: a new field has to be thought of here.
    let journal = Journal {
        version: 1,
        generation: 1_790_000_001_024,
        launched: true,
        started: true,
        started_at_ms: 1_790_000_000_000,
        stop_deadline_ms: Some(1_790_000_030_000),
        deadline: Some(Deadline { boot_id: "b".to_owned(), at_ms: 30_000 }),
        taints: vec!["device_del".to_owned()],
        resets: 3,
        soft_reboot: Some(SoftReboot {
            step: SoftRebootStep::PowerButton,
            deadline: Deadline { boot_id: "b".to_owned(), at_ms: 30_000 },
        }),
        freeze: Some(Freeze { thaw_at: Some(Deadline { boot_id: "b".to_owned(), at_ms: 30_000 }) }),
        ended: Some(ended()),
        hints: EndHints::default(),
        paused: Some(PauseReason::PausedByUser),
    };
    let value = |it: Result<Value, serde_json::Error>| it.unwrap();
    let status = status(&plan);
    let interfaces = json!([{"name": "default", "tap": "tap0", "mac": "02:00:00:00:00:01", "queues": 1,
        "binding": {"binding": "masquerade", "ipv4": "10.0.2.0/24", "ipv6": "fd10:0:2::/120", "ports": [["TCP", 22]]}}]);
    let addresses = json!({"mtu": 1500,
        "ipv4": {"address": "10.0.2.2/24", "server": "10.0.2.1", "gateway": "10.0.2.1",
            "routes": [{"to": "10.1.0.0/16", "via": "10.0.2.1"}]},
        "ipv6": {"address": "fd10:0:2::2", "network": "fd10:0:2::/120", "gateway": "fd10:0:2::1"}});
    vec![
        ("exit.json", value(serde_json::to_value(report()))),
        ("facts.json", value(serde_json::to_value(&case.facts))),
        ("journal.json", value(serde_json::to_value(journal))),
        (
            "live.json",
            json!({"version": 1, "held": {"blockNodes": ["root"], "devices": ["root"], "chardevs": ["monitor"],
            "netdevs": ["net-default"], "drives": {"cd": {"isOpen": true, "medium": "cd"}}},
            "pending": [{"command": "device_add", "subject": "d"}]}),
        ),
        ("node.json", value(serde_json::to_value(NodeFacts { version: 1, tap: true, vhost_net: true, kvm: None }))),
        ("offer.json", offer()),
        ("options.json", value(serde_json::to_value(&case.options))),
        (
            "order.json",
            json!({"version": 1, "vmi": case.vmi, "volumes": volumes, "emulation": true, "overheadPermille": 1250,
            "images": [{"volume": "data", "file": "disk.img", "bytes": 1}], "stored": plan.stored}),
        ),
        ("plan.json", value(serde_json::to_value(&plan))),
        ("to-agent-plumb.json", json!({"ask": "plumb", "interfaces": interfaces.clone()})),
        ("to-agent-sockets.json", json!({"ask": "sockets", "interfaces": interfaces})),
        ("to-agent-volume.json", json!({"ask": "volume", "name": "root"})),
        ("to-agent-serve.json", json!({"ask": "serve"})),
        ("from-agent-connection.json", json!({"answer": "connection"})),
        ("from-agent-serving.json", json!({"answer": "serving"})),
        ("from-agent-noted.json", json!({"answer": "noted"})),
        (
            "from-agent-plumbed.json",
            json!({"answer": "plumbed", "interfaces": [{"name": "default", "taps": 1, "vhosts": 1,
            "sockets": ["dhcp4", "dhcp6", "routerAdvertisement"], "addresses": addresses,
            "nameservers": ["10.96.0.10"], "searches": ["svc.cluster.local"]}]}),
        ),
        ("from-agent-refused.json", json!({"answer": "refused", "reason": "no"})),
        ("from-agent-volume.json", json!({"answer": "volume"})),
        ("to-agent-report.json", json!({"ask": "report", "status": status})),
        ("to-supervisor-ended.json", value(serde_json::to_value(FromInit::Ended { report: report() }))),
        (
            "to-supervisor-hello.json",
            json!({"init": "hello", "version": 1, "oldest": 1,
            "state": {"state": "running", "pid": 7}}),
        ),
        ("to-supervisor-spawned.json", value(serde_json::to_value(FromInit::Spawned { pid: 7 }))),
        ("to-init-kill.json", value(serde_json::to_value(ToInit::Kill))),
        ("to-init-launch.json", launch()),
        ("to-init-powering-down.json", value(serde_json::to_value(ToInit::PoweringDown { within_seconds: 30 }))),
        ("asked-freeze.json", json!({"ask": "freeze", "thaw_after_seconds": 300, "claimedUser": "ada"})),
        ("asked-unfreeze.json", json!({"ask": "unfreeze", "claimedUser": "ada"})),
        ("asked-guest.json", json!({"ask": "guest", "about": "info", "claimedUser": "ada"})),
        ("asked-screenshot.json", json!({"ask": "screenshot", "move_cursor": true, "claimedUser": "ada"})),
        ("asked-soft-reboot.json", json!({"ask": "softReboot", "claimedUser": "ada"})),
        (
            "asked-stop.json",
            json!({"ask": "stop", "mode": {"mode": "graceful", "within_seconds": 7}, "claimedUser": "ada",
                "auditId": "6a1f0c52-7d3e-4b8a-9c11-2f4e5d6a7b80"}),
        ),
        ("answered-done.json", json!({"answer": "done"})),
        ("answered-guest.json", {
            let mut answer = guest_report();
            answer["answer"] = json!("guest");
            answer
        }),
        ("answered-status.json", {
            let mut answer = status.clone();
            answer["answer"] = json!("status");
            answer
        }),
        ("status.json", status),
        ("stored.json", value(serde_json::to_value(&plan.stored))),
        ("volumes.json", volumes),
    ]
}

#[test]
fn this_build_reads_what_it_writes_and_has_its_directory() {
    let written = written();
    for (name, check) in KINDS {
        let (_, value) = written.iter().find(|(written, _)| written == name).unwrap_or_else(|| panic!("{name}"));
        check(value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    if let Ok(build) = std::env::var("GARBOARD_COMPAT") {
        let place = directory().join(build);
        std::fs::create_dir(&place).expect("a directory of its own");
        for (name, value) in &written {
            std::fs::write(place.join(name), serde_json::to_string_pretty(value).unwrap() + "\n").unwrap();
        }
    }
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
    let sample = status(&Case::load("uefi").plan().unwrap());
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

/// A message of the agent without a sample would change unnoticed.
#[test]
fn each_message_of_the_agent_has_its_sample() {
    let written = written();
    let sample = |name: &str| {
        assert!(KINDS.iter().any(|(kind, _)| *kind == name), "{name} is not among KINDS");
        written.iter().find(|(written, _)| *written == name).unwrap_or_else(|| panic!("no {name}")).1.clone()
    };
    for name in REQUESTS {
        assert_eq!(sample_of_request(&serde_json::from_value(sample(name)).unwrap()), *name);
    }
    for name in REPLIES {
        assert_eq!(sample_of_reply(&serde_json::from_value(sample(name)).unwrap()), *name);
    }
}

#[test]
fn what_earlier_builds_wrote_is_read() {
    let builds = builds();
    assert!(!builds.is_empty(), "no build has left its files");
    for build in builds {
        for (name, check) in KINDS {
            let path = build.join(name);
            let is_older =
                |(old, kinds): &(&[&str], &[&str])| old.iter().any(|old| build.ends_with(old)) && kinds.contains(name);
            if NOT_YET.iter().any(is_older) {
                continue;
            }
            let Ok(bytes) = std::fs::read(&path) else { panic!("{} is missing", path.display()) };
            check(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// Without /dev/kvm among its devices, QEMU is refused its accelerator by Landlock.
#[test]
fn a_launch_of_an_earlier_build_keeps_its_devices_and_no_other_path() {
    let path = directory().join("8ee2679/to-init-launch.json");
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
    for (name, value) in written() {
        let (_, check) = KINDS.iter().find(|(kind, _)| *kind == name).unwrap_or_else(|| panic!("{name}"));
        let mut found = Vec::new();
        with_one_more_field(&value, "", &|whole| whole, &mut found);
        for (key, more) in found {
            let is_map = MAPS.contains(&(name, key.as_str())) || MAPS.contains(&("", key.as_str()));
            if !is_map {
                tried += 1;
                if let Err(error) = check(more.to_string().as_bytes()) {
                    wrong.push(format!("{name}, in `{key}`: {error}"));
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 200, "{tried}");
}

/// Values in place of which a later one is an error, by file and key: what is asked of a program that must do it or refuse.
const DEMANDS: &[(&str, &str)] = &[
    ("asked-freeze.json", "ask"),
    ("asked-unfreeze.json", "ask"),
    ("answered-done.json", "answer"),
    ("asked-guest.json", "ask"),
    ("asked-guest.json", "about"),
    ("asked-screenshot.json", "ask"),
    ("asked-soft-reboot.json", "ask"),
    ("answered-guest.json", "answer"),
    ("asked-stop.json", "ask"),
    ("asked-stop.json", "mode"),
    ("to-agent-plumb.json", "ask"),
    ("to-agent-plumb.json", "binding"),
    ("to-agent-report.json", "ask"),
    ("to-agent-sockets.json", "ask"),
    ("to-agent-sockets.json", "binding"),
    ("to-agent-volume.json", "ask"),
    ("to-agent-serve.json", "ask"),
    ("from-agent-connection.json", "answer"),
    ("from-agent-serving.json", "answer"),
    ("from-agent-noted.json", "answer"),
    ("from-agent-plumbed.json", "answer"),
    ("from-agent-refused.json", "answer"),
    ("from-agent-volume.json", "answer"),
    // Addresses that are announced to the guest.
    ("from-agent-plumbed.json", "address"),
    ("from-agent-plumbed.json", "server"),
    ("from-agent-plumbed.json", "gateway"),
    ("from-agent-plumbed.json", "to"),
    ("from-agent-plumbed.json", "via"),
    ("from-agent-plumbed.json", "network"),
    ("answered-status.json", "answer"),
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
    let more = ("plan.json", serde_json::to_value(&golden).unwrap());
    for (name, value) in written().into_iter().chain([more]) {
        let (_, check) = KINDS.iter().find(|(kind, _)| *kind == name).unwrap_or_else(|| panic!("{name}"));
        let mut found = Vec::new();
        with_another_name(&value, "", &|whole| whole, &mut found);
        for (key, other) in found.into_iter().filter(|(key, _)| !DEMANDS.contains(&(name, key.as_str()))) {
            tried += 1;
            if let Err(error) = check(other.to_string().as_bytes()) {
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
    let path = directory().join("8ee2679/journal.json");
    let journal: Journal = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((journal.deadline, journal.stop_deadline_ms), (None, Some(1_790_000_030_000)));
}

/// What its guest notices is the same: the same devices with the same properties, the same CPU, the same board.
#[test]
fn a_machine_of_an_earlier_build_is_the_same_to_its_guest() {
    // Between 8ee2679 and 72c849a every guest lost its sleep states and the balloon's polling: there were no rules to keep.
    for build in builds().into_iter().filter(|build| !build.ends_with("8ee2679")) {
        let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(build.join(name)).unwrap()).unwrap() };
        let stored: StoredMachine = serde_json::from_value(read("stored.json")).unwrap();
        let before: LaunchPlan = serde_json::from_value(read("plan.json")).unwrap();
        let facts: HostFacts = serde_json::from_value(read("facts.json")).unwrap();
        let options: PlanOptions = serde_json::from_value(read("options.json")).unwrap();
        let vmi = serde_json::from_value(read("order.json")["vmi"].clone()).unwrap();
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
