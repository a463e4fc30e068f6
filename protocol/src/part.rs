//! Parts of a machine's record that people read while it runs ([`crate::control::ControlRequest::Show`]). When the run is over,
//! [`crate::record`] has the end of some of them.
//!
//! ```text
//!   client ─ show, part: plan ──────────────────────────► supervisor
//!          ◄ part, so many bytes; then they; then the end ─   or `noPart`, and why
//! ```

use serde::{Deserialize, Serialize};

use crate::paths;

/// The most bytes of a part. Of what grows the end is sent. A plan of 256 disks has a third of it.
pub const LONGEST_PART_BYTES: u64 = 1 << 20;

/// A part: a file of the machine's directory. What may have a secret is none: the VMI with its cloud-init, the places of volumes, the
/// journal, the variables of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordPart {
    /// The plan that was executed: `garboard_plan::LaunchPlan`.
    Plan,
    /// What the host offers, as the planner saw it: `garboard_machine::facts::HostFacts`.
    Facts,
    /// The planner's other input, with what was found out about the volumes: `garboard_plan::PlanOptions`.
    Options,
    /// What was sent on the monitor, a JSON a line, without secrets.
    Qmp,
    /// What QEMU printed.
    Qemu,
    /// What the guest printed on its first serial port.
    Serial,
    /// How QEMU ended: [`crate::exit::ExitReport`].
    Exit,
}

impl RecordPart {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Plan, Self::Facts, Self::Options, Self::Qmp, Self::Qemu, Self::Serial, Self::Exit];

    /// The name of its file ([`paths`]).
    #[must_use]
    pub fn file(self) -> String {
        match self {
            Self::Plan => paths::PLAN.to_owned(),
            Self::Facts => paths::FACTS.to_owned(),
            Self::Options => paths::OPTIONS.to_owned(),
            Self::Qmp => paths::TRANSCRIPT.to_owned(),
            Self::Qemu => paths::QEMU_LOG.to_owned(),
            Self::Serial => paths::serial_log(0),
            Self::Exit => paths::EXIT.to_owned(),
        }
    }

    /// Whether it grows while the machine runs. Others are JSON documents, of which a part would be of no use.
    #[must_use]
    pub const fn grows(self) -> bool {
        match self {
            Self::Qmp | Self::Qemu | Self::Serial => true,
            Self::Plan | Self::Facts | Self::Options | Self::Exit => false,
        }
    }
}

/// What follows the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartHead {
    /// So many bytes of the part follow, at most [`LONGEST_PART_BYTES`].
    pub bytes: u64,
    /// So many bytes before them are there, and are not sent.
    #[serde(default)]
    pub left_out: u64,
}

/// Why a part is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NoPart {
    /// The run has not come that far, or the machine has no such device.
    Missing,
    /// It is a document of more than [`LONGEST_PART_BYTES`].
    TooLong,
    /// Others are sent at this moment.
    Busy,
    /// It cannot be read; the supervisor's log has why. Also a reason of a later version.
    #[serde(other)]
    Unreadable,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::control::{Asked, ControlReply, ControlRequest};
    use crate::wire;

    #[test]
    fn parts_are_files_of_their_own_and_none_is_secret() {
        let files: BTreeSet<String> = RecordPart::ALL.into_iter().map(RecordPart::file).collect();
        assert_eq!(files.len(), RecordPart::ALL.len());
        for secret in [paths::VMI, paths::VOLUMES, paths::JOURNAL, paths::LAUNCH_SECRET, paths::STORED] {
            assert!(!files.contains(secret), "{secret}");
        }
    }

    #[test]
    fn a_part_is_asked_for_by_its_name_and_its_length_comes_first() {
        let request = ControlRequest::Show { part: RecordPart::Qmp };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"ask":"show","part":"qmp"}"#);
        assert_eq!(wire::decode::<Asked>(line.as_bytes()).unwrap().request, request);
        let reply = ControlReply::Part(PartHead { bytes: 12, left_out: 7 });
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(line, r#"{"answer":"part","bytes":12,"leftOut":7}"#);
        assert_eq!(wire::decode::<ControlReply>(line.as_bytes()).unwrap(), reply);
    }

    #[test]
    fn a_reason_of_a_later_version_is_read_as_one_that_is_not_known() {
        for (line, why) in [
            (r#"{"answer":"noPart","why":"missing"}"#, NoPart::Missing),
            (r#"{"answer":"noPart","why":"aWordOfALaterBuild"}"#, NoPart::Unreadable),
        ] {
            assert_eq!(wire::decode::<ControlReply>(line.as_bytes()).unwrap(), ControlReply::NoPart { why }, "{line}");
        }
        /// As a supervisor of a version before reads it: what it cannot read it denies.
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase", tag = "ask")]
        enum Before {
            Status,
        }
        assert!(wire::decode::<Before>(br#"{"ask":"show","part":"plan"}"#).is_err());
        assert!(wire::decode::<Before>(br#"{"ask":"status"}"#).is_ok());
    }
}
