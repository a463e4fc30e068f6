//! Names of the sockets and files that two parties share, in one place.
//!
//! All of them live in the *shared directory* of a VM: an emptyDir in a pod, `…/<namespace>/<name>/shared`
//! on a bare host. Socket paths must stay below [`MAX_SOCKET_PATH_BYTES`].

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
/// QEMU listens (on a descriptor the supervisor made): the supervisor's own monitor.
pub const MONITOR_SOCKET: &str = "monitor.sock";
/// QEMU listens: PID 1's monitor, used only to power down when no supervisor is there.
pub const LAST_RESORT_MONITOR_SOCKET: &str = "monitor-init.sock";
/// QEMU listens: the guest agent's channel.
pub const GUEST_AGENT_SOCKET: &str = "guest-agent.sock";
/// The keeper (bare host) or node agent listens, the supervisor connects: [`crate::agent`].
pub const AGENT_SOCKET: &str = "agent.sock";
/// What the supervisor must know after a restart: [`crate::journal`].
pub const JOURNAL: &str = "journal.json";
/// PID 1's account of how QEMU ended: [`crate::exit`].
pub const EXIT: &str = "exit.json";
/// QEMU's standard output and error.
pub const QEMU_LOG: &str = "qemu.log";
/// The VMI this directory was made for.
pub const VMI: &str = "vmi.json";
/// What the host offers, as the planner sees it.
pub const FACTS: &str = "facts.json";
/// The planner's other input: `launcher::plan::PlanOptions`.
pub const OPTIONS: &str = "options.json";
/// What an earlier start of the same machine decided, if there was one: `launcher::plan::StoredMachine`.
pub const STORED: &str = "stored.json";
/// The supervisor's QMP transcript, one JSON a line.
pub const TRANSCRIPT: &str = "qmp.jsonl";
/// How the supervisor is told where volumes are: [`crate::agent::VolumeTable`].
pub const VOLUMES: &str = "volumes.json";
/// The plan that was executed.
pub const PLAN: &str = "plan.json";

/// The socket of serial port `index`; QEMU listens, the supervisor connects.
#[must_use]
pub fn serial_socket(index: u32) -> String {
    format!("serial{index}.sock")
}

/// The file QEMU appends everything to that serial port `index` prints.
#[must_use]
pub fn serial_log(index: u32) -> String {
    format!("serial{index}.log")
}
