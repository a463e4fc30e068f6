//! A sample of each message that programs of different age send to each other. To add one, add its line: without it this
//! does not compile.

use garboard_net::GuestAddresses;
use garboard_protocol::agent::{
    AgentReply, AgentRequest, BindingRequest, InterfaceReply, InterfaceRequest, SocketKind,
};
use garboard_protocol::control::{
    Asked, BackupStep, ConsoleAccess, ControlReply, ControlRequest, GuestQuestion, QmpAccess, Session, StopMode,
};
use garboard_protocol::guest::GuestSubject;
use garboard_protocol::handed;
use garboard_protocol::launch::{FromInit, Helper, InitState, Launch, ProcessIdentity, ToInit};
use garboard_protocol::namespaces::NamespaceReport;
use garboard_protocol::number::Number;
use garboard_protocol::part::{NoPart, PartHead, RecordPart};
use garboard_protocol::position::{Begun, Position, Resume};
use garboard_protocol::record::{RunRecord, RunStep};
use garboard_protocol::statistics::{
    BalloonStatistics, DiskStatistics, FileSystemStatistics, OperationStatistics, Statistics, TappedInterface,
};
use garboard_protocol::testing::AUDIT_ID;
use serde_json::{Value, json};

use super::{Kind, guest_report, report, status};

/// What the agent answers.
pub(crate) type Reply = AgentReply<GuestAddresses>;

/// A message, and the line that it travels in.
trait Message: Sized {
    /// As it is sent.
    fn sent(self) -> Value;
    /// As its receiver reads it.
    fn received(line: &[u8]) -> Result<Self, serde_json::Error>;
}

macro_rules! sent_as_they_are {
    ($($message:ty),*) => {
        $(impl Message for $message {
            fn sent(self) -> Value {
                serde_json::to_value(self).unwrap()
            }

            fn received(line: &[u8]) -> Result<Self, serde_json::Error> {
                serde_json::from_slice(line)
            }
        })*
    };
}

sent_as_they_are!(FromInit, ToInit, AgentRequest, Reply, ControlReply);

/// With the user who asks, and the ID of its request to the API server; a probe and the hook of a backup have neither.
impl Message for ControlRequest {
    fn sent(self) -> Value {
        let has_user = !matches!(self, Self::Probe { .. } | Self::BackupHook { .. });
        let [claimed_user, audit_id] = ["ada", AUDIT_ID].map(|claim| has_user.then(|| claim.to_owned()));
        let number = self.change().map(|_| Number { id: AUDIT_ID.to_owned(), run: "r".to_owned() });
        serde_json::to_value(Asked { request: self, claimed_user, audit_id, number }).unwrap()
    }

    fn received(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<Asked>(line).map(|asked| asked.request)
    }
}

/// The samples of one type of messages: of each its file, its pattern and its value. `none` are messages that are only read.
macro_rules! samples {
    ($list:ident, $message:ty, { $($file:literal: $pattern:pat => $value:expr,)* } $(none $none:pat)?) => {
        fn $list() -> Vec<Kind> {
            fn file_of(message: &$message) -> Option<&'static str> {
                match message {
                    $($pattern => Some($file),)*
                    $($none => None,)?
                }
            }
            vec![$({
                fn decodes(line: &[u8]) -> Result<(), serde_json::Error> {
                    <$message as Message>::received(line).map(drop)
                }
                fn is_understood(line: &[u8]) -> Result<(), String> {
                    match <$message as Message>::received(line).map(|read| file_of(&read)) {
                        Ok(Some($file)) => Ok(()),
                        other => Err(format!("it is read as {other:?}")),
                    }
                }
                let message: $message = $value;
                assert_eq!(file_of(&message), Some($file));
                Kind { name: $file, value: message.sent(), decodes, is_understood }
            },)*]
        }
    };
}

samples!(from_init, FromInit, {
    "to-supervisor-hello.json": FromInit::Hello { .. } => hello(InitState::Running { pid: 7 }, "5e"),
    "to-supervisor-spawned.json": FromInit::Spawned { .. } => FromInit::Spawned { pid: 7 },
    "to-supervisor-termination-requested.json": FromInit::TerminationRequested => FromInit::TerminationRequested,
    "to-supervisor-ended.json": FromInit::Ended { .. } => FromInit::Ended { report: report() },
    "to-supervisor-helper-ended.json": FromInit::HelperEnded { .. } =>
        FromInit::HelperEnded { program: "passt".to_owned() },
} none FromInit::Unknown);

samples!(to_init, ToInit, {
    "to-init-launch.json": ToInit::Launch(_) => ToInit::Launch(Box::new(launch())),
    "to-init-powering-down.json": ToInit::PoweringDown { .. } => ToInit::PoweringDown { within_seconds: 30 },
    "to-init-kill.json": ToInit::Kill => ToInit::Kill,
} none ToInit::Unknown);

samples!(agent_requests, AgentRequest, {
    "to-agent-volume.json": AgentRequest::Volume { .. } => AgentRequest::Volume { name: "root".to_owned() },
    "to-agent-plumb.json": AgentRequest::Plumb { .. } => AgentRequest::Plumb { interfaces: interfaces() },
    "to-agent-sockets.json": AgentRequest::Sockets { .. } => AgentRequest::Sockets { interfaces: interfaces() },
    "to-agent-report.json": AgentRequest::Report { .. } =>
        AgentRequest::Report { status: Box::new(serde_json::from_value(status()).unwrap()) },
    "to-agent-record.json": AgentRequest::Record { .. } => AgentRequest::Record { record: Box::new(run_record()) },
    "to-agent-serve.json": AgentRequest::Serve => AgentRequest::Serve,
});

samples!(agent_replies, Reply, {
    "from-agent-volume.json": AgentReply::Volume => AgentReply::Volume,
    "from-agent-plumbed.json": AgentReply::Plumbed { .. } => AgentReply::Plumbed { interfaces: vec![plumbed()] },
    "from-agent-noted.json": AgentReply::Noted => AgentReply::Noted,
    "from-agent-refused.json": AgentReply::Refused { .. } => AgentReply::Refused { reason: "no".to_owned() },
    "from-agent-serving.json": AgentReply::Serving => AgentReply::Serving,
    "from-agent-connection.json": AgentReply::Connection => AgentReply::Connection,
});

samples!(control_requests, ControlRequest, {
    "asked-status.json": ControlRequest::Status => ControlRequest::Status,
    "asked-watch.json": ControlRequest::Watch => ControlRequest::Watch,
    "asked-stop.json": ControlRequest::Stop { .. } =>
        ControlRequest::Stop { mode: StopMode::Graceful { within_seconds: Some(7) } },
    "asked-prolong.json": ControlRequest::Prolong { .. } => ControlRequest::Prolong { grace_seconds: 300 },
    "asked-pause.json": ControlRequest::Pause => ControlRequest::Pause,
    "asked-unpause.json": ControlRequest::Unpause => ControlRequest::Unpause,
    "asked-reset.json": ControlRequest::Reset => ControlRequest::Reset,
    "asked-soft-reboot.json": ControlRequest::SoftReboot => ControlRequest::SoftReboot,
    "asked-freeze.json": ControlRequest::Freeze { .. } => ControlRequest::Freeze { thaw_after_seconds: Some(300) },
    "asked-unfreeze.json": ControlRequest::Unfreeze => ControlRequest::Unfreeze,
    "asked-guest.json": ControlRequest::Guest { .. } => ControlRequest::Guest { about: GuestSubject::Info },
    "asked-statistics.json": ControlRequest::Statistics => ControlRequest::Statistics,
    "asked-log-verbosity.json": ControlRequest::LogVerbosity { .. } => ControlRequest::LogVerbosity { verbosity: 6 },
    "asked-show.json": ControlRequest::Show { .. } => ControlRequest::Show { part: RecordPart::Plan },
    "asked-console.json": ControlRequest::Console { .. } =>
        ControlRequest::Console {
            access: ConsoleAccess::TakeOver,
            session: Session::Replace,
            resume: Some(Resume::After(position())),
        },
    "asked-vnc.json": ControlRequest::Vnc { .. } => ControlRequest::Vnc { session: Session::Only },
    "asked-usb-redir.json": ControlRequest::UsbRedir => ControlRequest::UsbRedir,
    "asked-screenshot.json": ControlRequest::Screenshot { .. } => ControlRequest::Screenshot { move_cursor: true },
    "asked-qmp.json": ControlRequest::Qmp { .. } => ControlRequest::Qmp { access: QmpAccess::ReadOnly },
    "asked-probe.json": ControlRequest::Probe { .. } => ControlRequest::Probe {
        question: GuestQuestion::Exec { command: vec!["/bin/true".to_owned()] },
        within_seconds: 1,
    },
    "asked-backup-hook.json": ControlRequest::BackupHook { .. } => ControlRequest::BackupHook { step: BackupStep::Freeze },
});

samples!(control_replies, ControlReply, {
    "answered-status.json": ControlReply::Status(_) =>
        ControlReply::Status(Box::new(serde_json::from_value(status()).unwrap())),
    "answered-queued.json": ControlReply::Queued => ControlReply::Queued,
    "answered-already-so.json": ControlReply::AlreadySo => ControlReply::AlreadySo,
    "answered-done.json": ControlReply::Done => ControlReply::Done,
    "answered-streaming.json": ControlReply::Streaming => ControlReply::Streaming,
    "answered-session.json": ControlReply::Session => ControlReply::Session,
    "answered-resumed.json": ControlReply::Resumed(_) =>
        ControlReply::Resumed(Begun { position: position(), resumed: true, missed: 7 }),
    "answered-healthy.json": ControlReply::Healthy => ControlReply::Healthy,
    "answered-guest.json": ControlReply::Guest(_) =>
        ControlReply::Guest(Box::new(serde_json::from_value(guest_report()).unwrap())),
    "answered-statistics.json": ControlReply::Statistics(_) => ControlReply::Statistics(Box::new(statistics())),
    "answered-part.json": ControlReply::Part(_) => ControlReply::Part(PartHead { bytes: 7, left_out: 1 }),
    "answered-no-part.json": ControlReply::NoPart { .. } => ControlReply::NoPart { why: NoPart::Missing },
    "answered-denied.json": ControlReply::Denied { .. } => ControlReply::Denied { reason: "no".to_owned() },
});

fn statistics() -> Statistics {
    let operation = OperationStatistics { operations: 1, bytes: 2, nanoseconds: 3 };
    let disk = DiskStatistics {
        volume: "root".to_owned(),
        read: operation.clone(),
        write: operation.clone(),
        flush: operation,
    };
    let interface = TappedInterface { name: "default".to_owned(), tap: "tap0".to_owned() };
    let file_system = FileSystemStatistics {
        name: "vda1".to_owned(),
        mountpoint: "/".to_owned(),
        kind: "ext4".to_owned(),
        total_bytes: 2,
        used_bytes: 1,
    };
    let balloon = BalloonStatistics {
        actual_bytes: Some(1),
        total_bytes: Some(2),
        free_bytes: Some(3),
        available_bytes: Some(4),
        cached_bytes: Some(5),
        swap_in_bytes: Some(6),
        swap_out_bytes: Some(7),
        major_faults: Some(8),
        minor_faults: Some(9),
    };
    Statistics {
        paused: true,
        memory_bytes: 1,
        balloon: Some(balloon),
        disks: vec![disk],
        interfaces: vec![interface],
        file_systems: vec![file_system],
        unread: 0,
    }
}

fn position() -> Position {
    Position { epoch: "5e1f".to_owned(), offset: 1007 }
}

/// All of them. What is written with the least in it comes last: a reader may require what is left out only when it is empty.
pub(crate) fn all() -> Vec<Kind> {
    let least_hello =
        Kind { name: "to-supervisor-hello-least.json", ..like(from_init(), hello(InitState::Waiting, "")) };
    let least_launch = ToInit::Launch(Box::new(least_launch()));
    let least_launch = Kind { name: "to-init-launch-least.json", ..like(to_init(), least_launch) };
    let lists = [from_init(), to_init(), agent_requests(), agent_replies(), control_requests(), control_replies()];
    lists.into_iter().flatten().chain([least_hello, least_launch]).collect()
}

/// The first sample of a list, with another value.
fn like(list: Vec<Kind>, message: impl Message) -> Kind {
    Kind { value: message.sent(), ..list.into_iter().next().unwrap() }
}

/// A file that is not JSON.
pub(crate) struct Text {
    /// Its name.
    pub name: &'static str,
    /// What this build writes.
    pub text: String,
    /// Whether one of an earlier build is understood.
    pub is_understood: fn(&str) -> bool,
}

/// What is sent in lines of plain text.
pub(crate) fn texts() -> Vec<Text> {
    let opened = format!("{}/disk/disk.img", char::from(handed::OPENED));
    let refused = format!("{}it is no file", char::from(handed::REFUSED));
    vec![
        Text {
            name: "to-shim.txt",
            text: namespace_reports(),
            is_understood: |text| text.lines().all(|line| line.parse::<NamespaceReport>().is_ok()),
        },
        Text {
            name: "from-container-disk-opened.txt",
            text: opened,
            is_understood: |text| text.as_bytes().first() == Some(&handed::OPENED),
        },
        Text {
            name: "from-container-disk-refused.txt",
            text: refused,
            is_understood: |text| text.as_bytes().first() == Some(&handed::REFUSED),
        },
    ]
}

/// Each report of a starting PID 1, on a line of its own. A new one does not compile until it is among them.
fn namespace_reports() -> String {
    let all = [NamespaceReport::Pid(7), NamespaceReport::Ready, NamespaceReport::Refused("no".to_owned())];
    let places = all.iter().map(|report| match report {
        NamespaceReport::Pid(_) => 0,
        NamespaceReport::Ready => 1,
        NamespaceReport::Refused(_) => 2,
    });
    assert!(places.eq(0..all.len()));
    all.iter().map(|report| format!("{report}\n")).collect()
}

fn hello(state: InitState, secret: &str) -> FromInit {
    FromInit::Hello { version: 1, oldest: 1, state, secret: secret.to_owned() }
}

fn launch() -> Launch {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Launch {
        argv: texts(&["/usr/bin/qemu"]),
        environment: vec![("TZ".to_owned(), "UTC".to_owned())],
        descriptors: vec![10, 11],
        reopened: vec![10],
        logs: vec![11],
        identity: Some(ProcessIdentity { uid: 107, gid: 107, groups: vec![36] }),
        readable_paths: texts(&["/usr"]),
        devices: texts(&["/dev/kvm"]),
        uses_tcp: true,
        has_monitor: true,
        memlock_bytes: Some(1),
        grace_seconds: 30,
        helpers: vec![Helper { argv: texts(&["/usr/bin/passt"]), descriptor: 12 }],
    }
}

fn least_launch() -> Launch {
    Launch {
        argv: Vec::new(),
        environment: Vec::new(),
        descriptors: Vec::new(),
        reopened: Vec::new(),
        logs: Vec::new(),
        identity: None,
        readable_paths: Vec::new(),
        devices: Vec::new(),
        uses_tcp: false,
        has_monitor: false,
        memlock_bytes: None,
        grace_seconds: 0,
        helpers: Vec::new(),
    }
}

fn interfaces() -> Vec<InterfaceRequest> {
    let binding = BindingRequest::Masquerade {
        ipv4: "10.0.2.0/24".to_owned(),
        ipv6: "fd10:0:2::/120".to_owned(),
        ports: vec![("TCP".to_owned(), 22)],
    };
    let mac = "02:00:00:00:00:01".to_owned();
    vec![InterfaceRequest { name: "default".to_owned(), tap: "tap0".to_owned(), mac, queues: 1, binding }]
}

fn run_record() -> RunRecord {
    RunRecord {
        uid: "12345678-9".to_owned(),
        run: "r".to_owned(),
        version: "0.1.0".to_owned(),
        reason: "GuestShutdown".to_owned(),
        message: "the guest powered itself off".to_owned(),
        ended_at_ms: 1_700_000_001_000,
        steps: vec![RunStep { name: "Running".to_owned(), at_ms: 1_700_000_000_000 }],
        resets: 1,
        taints: vec!["stop".to_owned()],
        machine: "pc-q35-10.0".to_owned(),
        argv: vec!["/usr/bin/qemu-system-x86_64".to_owned()],
        plan_digest: "sha256:00".to_owned(),
        qemu_output: "qemu: terminating\n".to_owned(),
        transcript: "{}\n".to_owned(),
        serial: "login: \n".to_owned(),
    }
}

fn plumbed() -> InterfaceReply<GuestAddresses> {
    let addresses = json!({"mtu": 1500,
        "ipv4": {"address": "10.0.2.2/24", "server": "10.0.2.1", "gateway": "10.0.2.1",
            "routes": [{"to": "10.1.0.0/16", "via": "10.0.2.1"}]},
        "ipv6": {"address": "fd10:0:2::2", "network": "fd10:0:2::/120", "gateway": "fd10:0:2::1"}});
    InterfaceReply {
        name: "default".to_owned(),
        taps: 1,
        vhosts: 1,
        sockets: vec![SocketKind::Dhcp4, SocketKind::Dhcp6, SocketKind::RouterAdvertisement],
        addresses: serde_json::from_value(addresses).unwrap(),
        nameservers: vec!["10.96.0.10".to_owned()],
        searches: vec!["svc.cluster.local".to_owned()],
    }
}
