//! What a supervisor reports about its machine: one [`Status`] for each change.

use serde::{Deserialize, Serialize};

use crate::exit::{ExitCause, ExitReport};

/// KubeVirt's phases of a VMI that a supervisor can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedPhase {
    /// QEMU runs the guest, or holds it paused.
    Running,
    /// The run ended well.
    Succeeded,
    /// The run ended badly.
    Failed,
    /// The supervisor prepares; QEMU is not running. Also a phase that only a later build has.
    #[serde(other)]
    Scheduled,
}

/// Why vCPUs are stopped; KubeVirt's reasons of the condition `Paused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseReason {
    /// QEMU stopped the guest because storage failed (`errorPolicy: stop`).
    PausedIOError,
    /// Requested, or for a reason that only a later build has: only a request ends it.
    #[serde(other)]
    PausedByUser,
}

/// Everything a supervisor reports about its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Grows with every change; a lower one is stale.
    pub generation: u64,
    /// Namespace of the VMI.
    pub namespace: String,
    /// Name of the VMI.
    pub name: String,
    /// UID of the VMI.
    pub uid: String,
    /// The phase.
    pub phase: ReportedPhase,
    /// When the phase began, milliseconds since 1970.
    pub phase_since_ms: i64,
    /// Set while vCPUs are stopped.
    pub paused: Option<PauseReason>,
    /// What stopped them, where QEMU reported more than the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_message: Option<String>,
    /// Whether this supervisor has observed the machine itself; until then phase and pause are what an earlier one saw,
    /// or nothing. Never on the wire: it decides what is put there.
    #[serde(skip)]
    pub observed: bool,
    /// The guest's file systems are frozen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// A stop is under way.
    pub stopping: bool,
    /// A soft reboot is under way: the guest was asked, and has not started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft_rebooting: bool,
    /// QEMU does not answer its monitor: the state of the guest is the one that QEMU reported last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unresponsive: bool,
    /// A program beside QEMU that ended before it (passt): the guest's network is gone until its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_helper: Option<String>,
    /// Whether the vCPUs are interpreted (TCG).
    pub software_emulation: bool,
    /// Whether KVM of this host interprets guest code instead of having the processor run it, so that the guest is slow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted_by_kvm: bool,
    /// The machine type QEMU was started with.
    pub machine: String,
    /// Guest memory in bytes.
    pub memory_bytes: u64,
    /// Memory asked for beside the guest's, in bytes.
    #[serde(default)]
    pub overhead_bytes: u64,
    /// vCPUs at start.
    pub vcpus: u32,
    /// What is to be given to the next start of the same machine: `garboard_plan::StoredMachine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<serde_json::Value>,
    /// The disks, in the order of the manifest.
    #[serde(default)]
    pub disks: Vec<DiskStatus>,
    /// The interfaces with what is known of their addresses.
    pub interfaces: Vec<InterfaceStatus>,
    /// What the guest agent reported; `None` until it is connected.
    pub guest: Option<GuestStatus>,
    /// How the last attempt went to have the guest agent set what `spec.accessCredentials` has it set; nothing before the first
    /// one, and where there is nothing for it to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_credentials: Option<CredentialsStatus>,
    /// Mutating QMP commands that people sent, oldest first, at most 16.
    pub taints: Vec<String>,
    /// The run of the machine that it is of, from its start to its end: for [`Number::run`](crate::number::Number::run). Empty from a supervisor of a version
    /// before, which remembers no numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Process ID of the supervisor in its own PID namespace.
    pub supervisor_pid: u32,
    /// The supervisor itself; nothing from one of a version before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<SupervisorInfo>,
    /// How often the guest was reset or rebooted during this run.
    pub resets: u32,
    /// Set when the run is over.
    pub ended: Option<Ended>,
}

/// What a supervisor reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupervisorInfo {
    /// Its version.
    pub version: String,
    /// When it was started, milliseconds since 1970.
    pub started_at_ms: i64,
    /// When QEMU was executed for it, milliseconds since 1970; nothing until then, where an earlier supervisor had it executed, and from one of
    /// a version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_at_ms: Option<i64>,
}

/// Whether the guest has the keys and passwords of `spec.accessCredentials`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// It has all of them.
    pub synchronized: bool,
    /// What it lacks and why, for a person; empty where it has all. Never a key or a password.
    pub message: String,
}

/// One disk of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// The name of disk and volume in the VMI.
    pub volume: String,
    /// The name that Linux most likely gives it (`vda`).
    pub target: String,
}

/// One guest NIC as seen from outside and inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStatus {
    /// The interface's name in the VMI.
    pub name: String,
    /// The name inside the guest, from the agent.
    pub interface_name: Option<String>,
    /// The MAC address.
    pub mac: String,
    /// Addresses, the leased IPv4 one first.
    pub addresses: Vec<String>,
    /// Comma list of `domain` and `guest-agent`, as KubeVirt reports it.
    pub info_source: String,
    /// How many pairs of queues the card has; 0 where that is not known, as of one that only the guest reports.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queues: u32,
    /// Whether its cable is in; nothing where that is not known, as of one that only the guest reports, and from a supervisor of a
    /// version before this field.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "garboard_machine::tolerant::or_default"
    )]
    pub link: Option<Link>,
}

/// Whether the cable of a network card is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// In.
    Up,
    /// Out: no packet comes or goes.
    Down,
}

impl Link {
    /// KubeVirt's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What the guest agent reported. Guest-controlled: escaped and bounded before it gets here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestStatus {
    /// Host name inside the guest.
    pub hostname: Option<String>,
    /// Pretty name of the operating system.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Version of the agent.
    pub agent_version: Option<String>,
    /// The operating system in detail.
    #[serde(default)]
    pub system: GuestSystem,
    /// Those of [`crate::guest::expected_commands`] that the agent does not have, or that are switched off in the guest. Empty also where
    /// the agent lists no commands, and from a supervisor of a version before this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_commands: Vec<String>,
}

/// The operating system of a guest, as its agent has it from `/etc/os-release` and `uname`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestSystem {
    /// `debian`, `mswindows`, …
    pub id: Option<String>,
    /// `Debian GNU/Linux`.
    pub name: Option<String>,
    /// `12 (bookworm)`.
    pub version: Option<String>,
    /// `12`.
    pub version_id: Option<String>,
    /// `#1 SMP PREEMPT_DYNAMIC …`.
    pub kernel_version: Option<String>,
    /// `x86_64`.
    pub machine: Option<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// The one cause.
    pub cause: ExitCause,
    /// The cause as text for a person.
    #[serde(rename = "sentence")]
    pub message: String,
    /// PID 1's report, when there is one.
    pub report: Option<ExitReport>,
    /// When, milliseconds since 1970.
    pub at_ms: i64,
}
