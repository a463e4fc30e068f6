//! What the driver starts from, what reaches it, and why it returns.

use std::collections::BTreeMap;
use std::path::PathBuf;

use garboard_plan::Lifecycle;
use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{
    ControlReply, CredentialsStatus, DiskStatus, GuestStatus, InterfaceStatus, Link, Status,
};
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::FromInit;
use garboard_qmp::Monitor;
use garboard_qmp::agent::Agent;
use tokio::sync::{mpsc, oneshot};

use crate::supervisor::trace::Cause;
use crate::vm::{Event, Life, OnReady, RunState, Verdict};

/// What the driver needs of a plan: how the machine starts and stops, and facts for its status.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// How it starts and stops.
    pub(crate) lifecycle: Lifecycle,
    /// Whether vCPUs are interpreted.
    pub(crate) software_emulation: bool,
    /// Whether KVM interprets guest code here.
    pub(crate) interpreted_by_kvm: bool,
    /// Machine type.
    pub(crate) machine: String,
    /// Guest memory, bytes.
    pub(crate) memory_bytes: u64,
    /// Memory asked for beside it, bytes.
    pub(crate) overhead_bytes: u64,
    /// vCPUs.
    pub(crate) vcpus: u32,
    /// What the next start keeps.
    pub(crate) stored: Option<serde_json::Value>,
    /// Disks in the order of the manifest.
    pub(crate) disks: Vec<DiskStatus>,
    /// Interfaces with the addresses they will lease.
    pub(crate) interfaces: Vec<InterfaceStatus>,
}

/// What reaches the driver beside users' requests.
pub(crate) enum Input {
    /// The machine was planned, or the plan of an earlier supervisor was found.
    Planned(Box<Planned>),
    /// Cables of its cards were pulled or plugged: the links of all, by name of the interface.
    LinksChanged(BTreeMap<String, Link>),
    /// A launch is about to be sent to PID 1; answered with whether it is in the journal.
    Launching(oneshot::Sender<bool>),
    /// A message of PID 1.
    Init(FromInit),
    /// PID 1 runs a QEMU that an earlier supervisor launched.
    Found,
    /// QEMU stopped answering its monitor, or answers again.
    Heartbeat(Heartbeat),
    /// PID 1 and QEMU are gone, and neither has reported why.
    Lost,
    /// QEMU's monitor answered and the machine is as planned.
    MonitorUp {
        /// The connection.
        monitor: Monitor,
        /// What QEMU reported of itself.
        run_state: RunState,
    },
    /// QEMU closed its monitor; all its events have been delivered.
    MonitorGone,
    /// An event of QEMU that matters.
    Guest(Event),
    /// The guest agent came or went.
    AgentUp(Option<Agent>),
    /// The guest agent reported on the guest.
    GuestAgentReported {
        /// Names and versions; nothing if it does not report them now, which takes nothing back.
        guest: Option<Box<GuestStatus>>,
        /// Whether file systems are frozen; nothing if it does not report it.
        frozen: Option<bool>,
        /// Addresses by MAC; nothing if it does not report any (file systems are frozen, it is busy), which takes nothing back.
        interfaces: Option<Vec<InterfaceStatus>>,
    },
    /// How it went to have the guest agent set the access credentials.
    CredentialsTried(CredentialsStatus),
    /// Another client changed the machine by a QMP command.
    Tainted(String),
    /// Preparation failed, with the message for the user.
    PreparationFailed(String),
    /// QEMU cannot be driven, with the message for the user.
    MonitorFailed(String),
}

/// The result of asking QEMU periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// It answers.
    Answers,
    /// It did not answer in time.
    Silent,
}

/// The driver's inboxes.
pub(crate) struct Inputs {
    /// What happened.
    pub(crate) happened: mpsc::Receiver<Input>,
    /// Requests of users.
    pub(crate) requests: mpsc::Receiver<Offer>,
}

/// What became of a request.
pub(crate) type Outcome = oneshot::Sender<Result<(), String>>;

/// A request of a user.
pub(crate) struct Offer {
    /// What is asked for.
    pub(crate) request: ChangeRequest,
    /// Who waits for what.
    pub(crate) client: Client,
    /// What is done for it belongs here.
    pub(crate) cause: Cause,
}

/// What the client of a request waits for.
pub(crate) enum Client {
    /// The verdict, and what became of it.
    Once {
        /// Where the verdict goes.
        reply: oneshot::Sender<Verdict>,
        /// Where the outcome goes, of a request that is queued and is done by the guest agent. The error is a message.
        done: Option<Outcome>,
    },
    /// The answer to a request that may come again.
    Numbered {
        /// Its number's ID.
        id: String,
        /// Its name on the wire.
        ask: &'static str,
        /// Where the answer goes.
        reply: oneshot::Sender<ControlReply>,
    },
}

/// What a driver starts from.
pub(crate) struct DriverSeed {
    /// The machine.
    pub(crate) life: Life,
    /// The journal so far.
    pub(crate) journal: Journal,
    /// The first status.
    pub(crate) status: Status,
    /// What to do once the monitor answers; a plan says it for a guest that has not run yet.
    pub(crate) on_ready: OnReady,
    /// The directory the journal is in.
    pub(crate) shared: PathBuf,
}

/// Why a driver returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverExit {
    /// The run ended and its end was reported.
    MachineEnded,
    /// The supervisor goes; QEMU runs on.
    Detached,
}
