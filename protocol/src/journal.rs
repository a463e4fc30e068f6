//! What a supervisor records so that the next one can go on. Everything else is asked of QEMU.

use serde::{Deserialize, Serialize};

use crate::control::{Ended, PauseReason};
use crate::exit::EndHints;

/// The journal; replaced atomically at every change that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// [`crate::PROTOCOL_VERSION`] of the writer.
    pub version: u32,
    /// Generations up to this one may have been published; the next supervisor begins above.
    pub generation: u64,
    /// QEMU was executed: from here on the next supervisor attaches instead of starting.
    pub launched: bool,
    /// The guest was let run once.
    pub started: bool,
    /// When the guest was let run, milliseconds since 1970.
    pub started_at_ms: i64,
    /// What is known about an end that is coming.
    pub hints: EndHints,
    /// When a stop will be enforced, milliseconds since 1970, by the clock as it was when that was decided: for builds
    /// that do not have [`Journal::deadline`].
    pub stop_deadline_ms: Option<i64>,
    /// When a stop will be enforced.
    pub deadline: Option<Deadline>,
    /// How long the guest has for a stop, if a request prolonged it: milliseconds, 0 where none did.
    pub prolonged_ms: i64,
    /// Why vCPUs are stopped: QEMU does not report whether a user requested it.
    pub paused: Option<PauseReason>,
    /// Mutating commands of people.
    pub taints: Vec<String>,
    /// Resets and reboots so far.
    pub resets: u32,
    /// A soft reboot that is under way.
    pub soft_reboot: Option<JournaledSoftReboot>,
    /// The guest's file systems were to be frozen, and were not thawed since.
    pub freeze: Option<JournaledFreeze>,
    /// Which run of the machine this is: what numbers of requests name. Empty in one of a version before.
    pub run: String,
    /// Requests that have a number, oldest first, at most [`crate::number::REMEMBERED`].
    pub requests: Vec<NumberedRequest>,
    /// How it ended.
    pub ended: Option<Ended>,
}

/// A request that has a number, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NumberedRequest {
    /// The ID of its number.
    pub id: String,
    /// Its name on the wire.
    pub ask: String,
    /// When it came first, milliseconds since boot.
    pub at_ms: i64,
    /// What became of it.
    pub outcome: RequestOutcome,
    /// Why it was denied.
    pub reason: String,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestOutcome {
    /// It is being done. To the next supervisor it is not known whether it was.
    Accepted,
    /// It was accepted, and QEMU or the guest was asked.
    Queued,
    /// There was nothing to do.
    AlreadySo,
    /// It was done.
    Done,
    /// It was not done, or failed.
    Denied,
    /// Not known. Also an outcome that only a later build has.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A soft reboot that is under way: what QEMU reports of a guest that shut down means something else then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JournaledSoftReboot {
    /// How far it is.
    pub step: SoftRebootStep,
    /// When it is given up.
    pub deadline: Deadline,
}

/// File systems of a guest that are frozen on request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JournaledFreeze {
    /// When they are thawed unasked; never, if it is not set.
    pub thaw_at: Option<Deadline>,
}

/// How far a soft reboot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SoftRebootStep {
    /// The power button was pressed, and QEMU stays when the guest is off.
    PowerButton,
    /// The guest is off, and is reset.
    Reset,
    /// The guest agent was asked. Also a step of a later build: a guest that shuts down ends the run then.
    #[default]
    #[serde(other)]
    Agent,
}

/// An instant that a clock which is set does not move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deadline {
    /// The boot whose clock it is on (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// `CLOCK_BOOTTIME`, milliseconds.
    pub at_ms: i64,
}
