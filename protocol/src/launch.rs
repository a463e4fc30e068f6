//! Supervisor and PID 1: what to execute, and what became of it.
//!
//! ```text
//!  PID 1                               supervisor
//!    │ connect launch.sock                 │
//!    ├─ Hello{state} ─────────────────────►│  (again after every supervisor restart)
//!    │◄──────── Launch{argv…} + descriptors┤  only if state is Waiting
//!    ├─ Spawned{pid} | Ended{report} ─────►│
//!    ├─ TerminationRequested ─────────────►│  SIGTERM came: power the guest down
//!    │◄─────────────────── PoweringDown ───┤
//!    │◄─────────────────────────── Kill ───┤  only PID 1 can signal QEMU: it is in its PID namespace
//!    ├─ Ended{report} ────────────────────►│  then PID 1 exits, and the container with it
//! ```

use serde::{Deserialize, Deserializer, Serialize};

use crate::exit::ExitReport;

/// Device files that every program expects; QEMU may use them everywhere.
pub const BASIC_DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// The device file that QEMU may use beside them, where it is there. All others arrive as descriptors.
pub const KVM_DEVICE: &str = "/dev/kvm";
/// Files beside `/usr` that a dynamically linked QEMU needs.
pub const LOADER_FILES: [&str; 2] = ["/etc/ld.so.cache", "/etc/localtime"];
/// What QEMU may read below, beside [`LOADER_FILES`]: itself, its libraries, and what the kernel reports to it.
pub const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr", "/lib", "/lib64", "/proc", "/sys"];
/// Those of [`SYSTEM_DIRECTORIES`] that are not bound into a root of the machine's own: `/proc` is mounted anew, `/sys` is left
/// out, `/lib` and `/lib64` are links to `/usr` there, as on the host.
pub const NOT_BOUND_IN_OWN_ROOT: [&str; 4] = ["/lib", "/lib64", "/proc", "/sys"];
/// Where passt and QEMU's own network, which only a user needs, find the name servers that they announce to the guest.
pub const RESOLVER: &str = "/etc/resolv.conf";

/// What PID 1 sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "init")]
pub enum FromInit {
    /// First line of every connection.
    Hello {
        /// [`crate::PROTOCOL_VERSION`] of PID 1: the newest it supports.
        version: u32,
        /// The oldest it supports; 0 from builds that support one version only.
        #[serde(default)]
        oldest: u32,
        /// What PID 1 is doing.
        state: InitState,
        /// A secret of this PID 1, the same in every connection: QEMU, which may be in the same container, cannot
        /// pass for it when the supervisor was started again.
        #[serde(default)]
        secret: String,
    },
    /// QEMU was executed.
    Spawned {
        /// QEMU's process ID in PID 1's own PID namespace.
        pid: i32,
    },
    /// PID 1 received SIGTERM: the pod is being deleted or the host is going down.
    TerminationRequested,
    /// QEMU is gone; PID 1 exits after this line.
    Ended {
        /// How it ended.
        report: ExitReport,
    },
    /// A program beside QEMU ended before it ([`Launch::helpers`]); sent again to each supervisor that connects.
    HelperEnded {
        /// The programs that may have been it.
        program: String,
    },
    /// A message of a newer PID 1 that this build does not have.
    #[serde(other)]
    Unknown,
}

/// Where PID 1 is in its short life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum InitState {
    /// Nothing was executed yet.
    Waiting,
    /// QEMU runs; a new supervisor has connected.
    Running {
        /// QEMU's process ID in PID 1's own PID namespace.
        pid: i32,
    },
    /// One that only a later build has; it has executed something, or it would wait.
    #[serde(other)]
    Unknown,
}

/// What the supervisor sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "supervisor")]
pub enum ToInit {
    /// Execute this. The descriptors follow in the order of [`Launch::descriptors`], after the log.
    Launch(Box<Launch>),
    /// The supervisor has asked the guest to power down; PID 1 waits this long before it acts itself.
    PoweringDown {
        /// Seconds until the supervisor will have ended QEMU by force.
        within_seconds: u64,
    },
    /// End QEMU now with SIGKILL.
    Kill,
    /// A message of a newer supervisor that this build does not have.
    #[serde(other)]
    Unknown,
}

/// One QEMU to execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The whole environment, nothing is inherited.
    pub environment: Vec<(String, String)>,
    /// The numbers that QEMU's descriptors must have, in the order in which they arrive. The first one to
    /// arrive is not in this list: it is the log, QEMU's standard output and error.
    pub descriptors: Vec<i32>,
    /// Those of [`Launch::descriptors`] that QEMU opens again by `/proc/self/fd/N`; Landlock must allow it.
    pub reopened: Vec<i32>,
    /// Those of [`Launch::descriptors`] that are logs which QEMU appends to: PID 1 keeps them short, like QEMU's own, while no
    /// supervisor does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<i32>,
    /// The user to become before executing; `None`: PID 1's own (a pod has already chosen).
    pub identity: Option<ProcessIdentity>,
    /// Paths that PID 1 and QEMU may read below, under Landlock where the kernel has it.
    pub readable_paths: Vec<String>,
    /// Devices that PID 1 and QEMU may read and write, under Landlock where the kernel has it. An older supervisor lists them
    /// among `writablePaths`, of which nothing else is still allowed.
    #[serde(default, alias = "writablePaths", deserialize_with = "devices_only")]
    pub devices: Vec<String>,
    /// Whether QEMU itself opens TCP connections and ports, for a user's network or a disk on iSCSI; otherwise Landlock forbids it.
    #[serde(default)]
    pub uses_tcp: bool,
    /// Whether a connection to QEMU's second monitor arrives after all other descriptors: PID 1 keeps it.
    #[serde(default)]
    pub has_monitor: bool,
    /// The most bytes QEMU may lock (`RLIMIT_MEMLOCK`); `None`: unchanged.
    pub memlock_bytes: Option<u64>,
    /// How long a guest may take to power down, in seconds, when PID 1 has to do it alone.
    pub grace_seconds: u64,
    /// Programs that QEMU connects to and that end with it, started before it in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<Helper>,
}

fn devices_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let paths = Vec::<String>::deserialize(deserializer)?;
    Ok(paths.into_iter().filter(|path| path.starts_with("/dev/") && !path.contains("/../")).collect())
}

/// A program beside QEMU, today passt. It is ready when the process that was started ends with code 0; what it leaves
/// in the background ends by itself when QEMU does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Helper {
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The number its only descriptor must have. They arrive after QEMU's, in the order of the helpers.
    pub descriptor: i32,
}

/// User and groups of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}
