//! What is left of a run when its pod is gone: the supervisor makes it at the end, its node agent keeps it as an object of the
//! cluster (`MachineRun` of `garboard.dev/v1`). Pure.
//!
//! It is read by people who may not see Secrets or a guest's disks: what is known to be secret is taken out before it is sent, and
//! what is long is cut, by the sender, and by the agent once more.

mod redact;

use serde::{Deserialize, Serialize};

pub use redact::{Hidden, MARK};

/// The API group of the object.
pub const GROUP: &str = "garboard.dev";
/// Its version.
pub const VERSION: &str = "v1";
/// Its kind.
pub const KIND: &str = "MachineRun";
/// As in paths.
pub const PLURAL: &str = "machineruns";

/// The most that a record may have as JSON, bytes; metadata of the object comes beside it.
pub const LONGEST_BYTES: usize = 60 << 10;
/// The most of each text, bytes; of these the end is kept.
const LONGEST_TAIL: usize = 16 << 10;
/// The most of QEMU's arguments, bytes in all, and how many.
const LONGEST_ARGV: usize = 12 << 10;
const ARGUMENTS: usize = 1024;
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_NAME: usize = 128;
const STEPS: usize = 32;
const TAINTS: usize = 16;

/// One run of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRecord {
    /// UID of the instance.
    pub uid: String,
    /// Which run: [`crate::control::Status::run`].
    pub run: String,
    /// The version of the supervisor.
    pub version: String,
    /// The cause, by its name ([`crate::exit::EndReason`]).
    pub reason: String,
    /// The cause, for a person.
    pub message: String,
    /// When it ended, milliseconds since 1970.
    pub ended_at_ms: i64,
    /// What happened when, the earliest first; at most 32.
    pub steps: Vec<RunStep>,
    /// How often the guest was reset or rebooted.
    pub resets: u32,
    /// QMP commands of people that changed the machine; at most 16.
    pub taints: Vec<String>,
    /// The machine type.
    pub machine: String,
    /// What was executed.
    pub argv: Vec<String>,
    /// SHA-256 of the plan's file, as `sha256:` and hexadecimal digits; empty where there was no plan.
    pub plan_digest: String,
    /// The end of what QEMU printed.
    pub qemu_output: String,
    /// The end of the QMP transcript, a JSON a line.
    pub transcript: String,
    /// The end of the serial console.
    pub serial: String,
}

/// A step of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunStep {
    /// Its name: a phase, `Paused`, `Stopping`, …
    pub name: String,
    /// When it began, milliseconds since 1970.
    pub at_ms: i64,
}

impl RunRecord {
    /// The same without control characters, and with no more in it than a record may have. Of tails the end stays.
    #[must_use]
    pub fn bounded(self) -> Self {
        // Every field: a new one that may be long, and is cut nowhere, is an error here.
        let Self {
            uid,
            run,
            version,
            reason,
            message,
            ended_at_ms,
            mut steps,
            resets,
            mut taints,
            machine,
            mut argv,
            plan_digest,
            qemu_output,
            transcript,
            serial,
        } = self;
        let name = |text: String| beginning(&plain(&text), LONGEST_NAME);
        steps.truncate(STEPS);
        taints.truncate(TAINTS);
        bound_arguments(&mut argv);
        let tail = |text: String| end(&plain(&text), LONGEST_TAIL);
        let record = Self {
            uid: name(uid),
            run: name(run),
            version: name(version),
            reason: name(reason),
            message: beginning(&plain(&message), LONGEST_MESSAGE),
            ended_at_ms,
            steps: steps.into_iter().map(|step| RunStep { name: name(step.name), ..step }).collect(),
            resets,
            taints: taints.into_iter().map(name).collect(),
            machine: name(machine),
            argv,
            plan_digest: name(plan_digest),
            qemu_output: tail(qemu_output),
            transcript: tail(transcript),
            serial: tail(serial),
        };
        record.fitting()
    }

    /// JSON writes some characters longer than they are: the longest tail is halved until all of it has room.
    fn fitting(mut self) -> Self {
        while serde_json::to_string(&self).map_or(0, |json| json.len()) > LONGEST_BYTES {
            let tails = [&mut self.serial, &mut self.transcript, &mut self.qemu_output];
            let Some(longest) = tails.into_iter().max_by_key(|text| text.len()).filter(|text| !text.is_empty()) else {
                self.argv.clear();
                return self;
            };
            *longest = end(longest, longest.len() / 2);
        }
        self
    }
}

fn bound_arguments(argv: &mut Vec<String>) {
    argv.truncate(ARGUMENTS);
    let mut left = LONGEST_ARGV;
    for argument in argv.iter_mut() {
        *argument = beginning(&plain(argument), left);
        left = left.saturating_sub(argument.len());
    }
}

/// The beginning of a text, at most so many bytes.
fn beginning(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}

/// The end of a text, at most so many bytes.
fn end(text: &str, most: usize) -> String {
    let from = text.len().saturating_sub(most);
    let start = (from..=text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(text.len());
    text[start..].to_owned()
}

/// A text without control characters but for ends of lines: a terminal shows it, and does nothing else.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '\r' => {}
            '\n' | '\t' => safe.push(one),
            other if other.is_control() => safe.extend(other.escape_default()),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
