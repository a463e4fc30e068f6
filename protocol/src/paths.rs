//! Names of the sockets and files that two parties share, in one place.
//!
//! They are in three directories of a machine, one for each writer, because a name in a directory that another process
//! may write to can be exchanged by it at any time. QEMU sees none of them: it has descriptors.
//!
//! | directory | written by | read by | bare host | pod |
//! | --- | --- | --- | --- | --- |
//! | `order` | shim (a pod: the supervisor, once) | supervisor | root's, of the machine's group | sidecar |
//! | `supervisor` | supervisor | commands, shim | the machine's user's | sidecar |
//! | `init` | PID 1; the supervisor makes its socket and QEMU's log there | supervisor, shim | the machine's user's | both containers |
//!
//! Socket paths must stay below [`MAX_SOCKET_PATH_BYTES`].

use std::path::{Path, PathBuf};

/// What a machine was started with.
pub const ORDER_DIRECTORY: &str = "order";
/// The supervisor's own files.
pub const SUPERVISOR_DIRECTORY: &str = "supervisor";
/// What PID 1 and the supervisor share.
pub const INIT_DIRECTORY: &str = "init";

/// Where the three directories of a machine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    machine: PathBuf,
}

impl Layout {
    /// Of the machine whose directory this is: `…/<namespace>/<name>` on a bare host.
    pub fn new(machine: impl Into<PathBuf>) -> Self {
        Self { machine: machine.into() }
    }

    /// The directory that the others are in.
    #[must_use]
    pub fn machine(&self) -> &Path {
        &self.machine
    }

    /// What the machine was started with.
    #[must_use]
    pub fn order(&self) -> PathBuf {
        self.machine.join(ORDER_DIRECTORY)
    }

    /// The supervisor's own files.
    #[must_use]
    pub fn supervisor(&self) -> PathBuf {
        self.machine.join(SUPERVISOR_DIRECTORY)
    }

    /// What PID 1 and the supervisor share.
    #[must_use]
    pub fn init(&self) -> PathBuf {
        self.machine.join(INIT_DIRECTORY)
    }

    /// The directory of a file by its name, one of the constants here.
    #[must_use]
    pub fn directory_of(&self, name: &str) -> PathBuf {
        match name {
            VMI | FACTS | STORED | VOLUMES | AGENT_SOCKET => self.order(),
            LAUNCH_SOCKET | PROBE_SOCKET | EXIT | QEMU_LOG => self.init(),
            _ => self.supervisor(),
        }
    }
}

/// `sizeof(sun_path) - 1` of Linux (`unix(7)`): the longest path a unix socket may have.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Supervisor listens, PID 1 connects: [`crate::launch`].
pub const LAUNCH_SOCKET: &str = "launch.sock";
/// Supervisor listens, commands and the node agent connect: [`crate::control`].
pub const CONTROL_SOCKET: &str = "control.sock";
/// Supervisor listens: standard QMP for `qmp-shell` and `socat`, read-only, through the debug broker.
pub const QMP_USER_SOCKET: &str = "qmp.sock";
/// Supervisor listens: VNC clients are handed to QEMU.
pub const VNC_SOCKET: &str = "vnc.sock";
/// Supervisor listens, on a bare host, where a machine has slots for USB redirection: each client gets the first free one.
pub const USB_REDIRECTION_SOCKET: &str = "usbredir.sock";
/// Supervisor listens, probes in the container of PID 1 connect: [`crate::control`], questions for the guest alone.
pub const PROBE_SOCKET: &str = "probe.sock";
/// QEMU listens (on a descriptor the supervisor made): the supervisor's own monitor.
pub const MONITOR_SOCKET: &str = "monitor.sock";
/// QEMU listens: PID 1's monitor, used only to power down when no supervisor is there. PID 1 is given a connection, and the
/// name is gone again before QEMU runs.
pub const LAST_RESORT_MONITOR_SOCKET: &str = "monitor-init.sock";
/// QEMU listens: the guest agent's channel.
pub const GUEST_AGENT_SOCKET: &str = "guest-agent.sock";
/// The shim (bare host) or node agent listens, the supervisor connects: [`crate::agent`].
pub const AGENT_SOCKET: &str = "agent.sock";
/// What the supervisor needs after a restart: [`crate::journal`].
pub const JOURNAL: &str = "journal.json";
/// How the supervisor identifies PID 1 after a restart: [`crate::launch::FromInit::Hello`].
pub const LAUNCH_SECRET: &str = "launch.secret";
/// PID 1's report of how QEMU ended: [`crate::exit`].
pub const EXIT: &str = "exit.json";
/// QEMU's standard output and error.
pub const QEMU_LOG: &str = "qemu.log";
/// The VMI of the machine.
pub const VMI: &str = "vmi.json";
/// What the host offers, as the planner sees it.
pub const FACTS: &str = "facts.json";
/// The planner's other input: `garboard_plan::PlanOptions`. The order has what was asked for, the supervisor's directory
/// what was planned with: what was found out about the volumes is in it.
pub const OPTIONS: &str = "options.json";
/// What an earlier start of the same machine decided, if there was one: `garboard_plan::StoredMachine`.
pub const STORED: &str = "stored.json";
/// The supervisor's QMP transcript, one JSON a line.
pub const TRANSCRIPT: &str = "qmp.jsonl";
/// Where the supervisor reads the places of volumes: [`crate::agent::VolumeTable`].
pub const VOLUMES: &str = "volumes.json";
/// The plan that was executed.
pub const PLAN: &str = "plan.json";
/// What QEMU holds now: `garboard_plan::live::LivePlan`.
pub const LIVE: &str = "live.json";

/// The socket of serial port `index`; QEMU listens, the supervisor connects.
#[must_use]
pub fn serial_socket(index: u32) -> String {
    format!("serial{index}.sock")
}

/// The socket of slot `slot` of USB redirection; QEMU listens, the supervisor connects.
#[must_use]
pub fn usb_redirection_slot_socket(slot: u32) -> String {
    format!("usbredir{slot}.sock")
}

/// The file QEMU appends everything to that serial port `index` prints.
#[must_use]
pub fn serial_log(index: u32) -> String {
    format!("serial{index}.log")
}
