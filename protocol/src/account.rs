//! Reason and message of an end in one text, for where Kubernetes has room for a text only.

use std::fmt;

use crate::exit::EndReason;

/// What follows the account in the event of an end that KubeVirt calls a success, and of any other one.
const SHUT_DOWN: &str = ". The VirtualMachineInstance was shut down.";
const CRASHED: &str = ". The VirtualMachineInstance crashed.";

/// How a run ended, as one text: `REASON: MESSAGE`. PID 1's termination message begins with it (further lines are what QEMU
/// printed last), and so does the event `Stopped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// The cause.
    pub reason: EndReason,
    /// What follows the reason.
    pub message: &'a str,
}

impl<'a> Account<'a> {
    /// The note of the event: behind the account stands KubeVirt's whole message, which its clients look for. A machine that was
    /// never started has not crashed.
    #[must_use]
    pub fn note(&self) -> String {
        let kubevirts = if self.reason == EndReason::NotStarted {
            ""
        } else if self.reason.is_success() {
            SHUT_DOWN
        } else {
            CRASHED
        };
        format!("{self}{kubevirts}")
    }

    /// Reads what [`Self::note`] and [`fmt::Display`] write. Earlier versions wrote the message alone, and later ones may have
    /// reasons that this version does not have: the cause is unknown then, and all of the text is to be shown.
    #[must_use]
    pub fn read(text: &'a str) -> Self {
        let text = text.strip_suffix(SHUT_DOWN).or_else(|| text.strip_suffix(CRASHED)).unwrap_or(text);
        let unknown = Self { reason: EndReason::Unknown, message: text };
        let Some((head, rest)) = text.split_once(": ") else { return unknown };
        if EndReason::ALL.iter().any(|reason| reason.as_str() == head) {
            Self { reason: EndReason::read(head), message: rest }
        } else {
            unknown
        }
    }
}

impl fmt::Display for Account<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.reason, self.message)
    }
}
