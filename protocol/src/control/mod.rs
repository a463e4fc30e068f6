//! What a person's command asks of a running supervisor, one request per connection.
//!
//! The client sends one [`ControlRequest`] line and gets one [`ControlReply`] line. After
//! [`ControlReply::Streaming`] the connection carries raw bytes (console, VNC, usbredir, QMP), after [`ControlReply::Part`] as many as that
//! says; after `Watch` it carries one [`Status`] line per change until the run is over.

mod status;

use serde::{Deserialize, Serialize};

use crate::guest::{GuestReport, GuestSubject};
use crate::number::Number;
use crate::part::{NoPart, PartHead, RecordPart};
use crate::position::{Begun, Resume};
use crate::statistics::Statistics;

pub use self::status::{
    CredentialsStatus, DiskStatus, Ended, GuestStatus, GuestSystem, InterfaceStatus, Link, PauseReason, ReportedPhase,
    Status, SupervisorInfo,
};

/// Viewers of a console that are no session, of one machine at once. Few: each may be one of its connections at the node's agent, which
/// sessions and requests need too.
pub const MOST_VIEWERS: usize = 8;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ask")]
pub enum ControlRequest {
    /// Answer with the current [`Status`].
    Status,
    /// Send every [`Status`] from now on.
    Watch,
    /// End the run.
    Stop {
        /// How.
        mode: StopMode,
    },
    /// Give the guest more time for each stop from now on that names none of its own. Its pod has to be given as much. A supervisor of a version
    /// before denies it.
    Prolong {
        /// Seconds that it has to power itself down. Less than it has already changes nothing.
        grace_seconds: u64,
    },
    /// Stop the vCPUs.
    Pause,
    /// Let the vCPUs run again.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Have the guest shut down and start again: by its agent, or by the power button and a reset once it is off.
    SoftReboot,
    /// Freeze the guest's file systems, by its agent; the answer comes when it has.
    Freeze {
        /// After how many seconds they are thawed unasked; never, if it is not set.
        thaw_after_seconds: Option<u64>,
    },
    /// Thaw the guest's file systems, by its agent; the answer comes when it has.
    Unfreeze,
    /// Answer with what the guest agent reports: `Guest`.
    Guest {
        /// What is asked.
        about: GuestSubject,
    },
    /// Answer with what is counted of the machine: `Statistics`. A supervisor of a version before denies it.
    Statistics,
    /// Log as much as this number says, from now on: `Done`, or `AlreadySo`. Denied where the environment of the supervisor decides
    /// that, and by a supervisor of a version before.
    LogVerbosity {
        /// KubeVirt's number: with 0 to 2 (2 is the default) our own code is logged from `INFO` on, with 3 to 5 from `DEBUG`, with 6 and
        /// more from `TRACE`.
        verbosity: u32,
    },
    /// Send a part of the machine's record; the reply is `Part`, then so many bytes, then the end of the connection, or `NoPart`. A supervisor of
    /// a version before denies it, and no other does.
    Show {
        /// Which.
        part: RecordPart,
    },
    /// Attach to the first serial port; the reply is `Streaming`, then what was printed before (of a session: what no
    /// session has read yet), then live bytes.
    Console {
        /// Whether this viewer may type.
        access: ConsoleAccess,
        /// Whether it is the session of the console.
        #[serde(default, skip_serializing_if = "Session::is_none")]
        session: Session,
        /// With what it begins, for a client that may come again; the reply is `Resumed` then. A supervisor of a version before
        /// does not read it, and answers as without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Resume>,
    },
    /// Use RFB (VNC) on this connection.
    Vnc {
        /// Whether it is the session of the screen.
        #[serde(default, skip_serializing_if = "Session::is_none")]
        session: Session,
    },
    /// Use usbredir's protocol on this connection, with the first slot that is free; the reply is `Streaming`, and then each side
    /// begins with its `hello`, QEMU when the guest runs. Refused while all slots are in use.
    UsbRedir,
    /// Draw the screen; the reply is `Streaming`, then a PNG, then the end of the connection.
    Screenshot {
        /// Whether the pointer is moved before, so that a guest switches on a screen that it switched off.
        #[serde(default)]
        move_cursor: bool,
    },
    /// Use QMP on this connection, through the debug broker.
    Qmp {
        /// Whether commands that change the machine are let through.
        access: QmpAccess,
    },
    /// Ask the guest agent whether the guest is well: a kubelet's probe.
    Probe {
        /// The question.
        question: GuestQuestion,
        /// How long the answer may take.
        within_seconds: u32,
    },
    /// A step of a backup tool that copies the guest's disks; answered when the guest has done it, and with `AlreadySo` where there
    /// is nothing to do: no guest agent is connected, or no guest runs.
    BackupHook {
        /// The step.
        step: BackupStep,
    },
}

/// The name of each kind of request: one without a line does not compile.
macro_rules! names {
    ($($pattern:pat => $name:literal,)*) => {
        impl ControlRequest {
            /// The names of all kinds.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// Its name on the wire.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $($pattern => $name,)*
                }
            }
        }
    };
}

names! {
    Self::Status => "status",
    Self::Watch => "watch",
    Self::Stop { .. } => "stop",
    Self::Prolong { .. } => "prolong",
    Self::Pause => "pause",
    Self::Unpause => "unpause",
    Self::Reset => "reset",
    Self::SoftReboot => "softReboot",
    Self::Freeze { .. } => "freeze",
    Self::Unfreeze => "unfreeze",
    Self::Guest { .. } => "guest",
    Self::Statistics => "statistics",
    Self::LogVerbosity { .. } => "logVerbosity",
    Self::Show { .. } => "show",
    Self::Console { .. } => "console",
    Self::Vnc { .. } => "vnc",
    Self::UsbRedir => "usbRedir",
    Self::Screenshot { .. } => "screenshot",
    Self::Qmp { .. } => "qmp",
    Self::Probe { .. } => "probe",
    Self::BackupHook { .. } => "backupHook",
}

/// What a backup tool has done around its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BackupStep {
    /// File systems are frozen before it.
    Freeze,
    /// They are thawed after it.
    Thaw,
}

/// What a probe asks the guest agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "question")]
pub enum GuestQuestion {
    /// Whether it answers.
    Ping,
    /// Whether a command ends with 0.
    Exec {
        /// The program in the guest and its arguments.
        command: Vec<String>,
    },
}

/// The line a client sends: the request, and its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The request.
    #[serde(flatten)]
    pub request: ControlRequest,
    /// The user that the client names. In a pod all users are the same to the kernel; this is for the log, and
    /// proves nothing.
    #[serde(default, rename = "claimedUser", skip_serializing_if = "Option::is_none")]
    pub claimed_user: Option<String>,
    /// The ID of the API server's request that it comes from, as its audit log has it; for the log alone, like the user.
    #[serde(default, rename = "auditId", skip_serializing_if = "Option::is_none")]
    pub audit_id: Option<String>,
    /// Its number, if it changes the machine and may be sent again. A supervisor of a version before does not read it, and
    /// has no [`Status::run`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Number>,
}

/// How a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "mode")]
pub enum StopMode {
    /// Agent, then ACPI, then by force after the grace period.
    Graceful {
        /// Seconds from when it is received that the guest has to power itself down, instead of the VMI's
        /// `terminationGracePeriodSeconds`. Of a stop that is under way they are taken if they are less than the guest has left; more
        /// change nothing. Every supervisor since the first recorded one does that (`tests/compat`).
        within_seconds: Option<u64>,
    },
    /// At once, as if the power failed.
    Force,
}

/// What a console viewer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ConsoleAccess {
    /// Look only.
    View,
    /// Type too; refused while another viewer types.
    Write,
    /// Type, and take the keyboard from the viewer that has it; that viewer keeps looking, unless it is a [`Session`].
    TakeOver,
}

/// Whether a viewer is the session of the subresource API, of which console and screen have one each. Other viewers are
/// beside it. A supervisor of a version before this takes every viewer for one of those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Session {
    /// It is not.
    #[default]
    None,
    /// It is, and the one before ends.
    Replace,
    /// It is, and is refused while there is another one.
    Only,
}

impl Session {
    /// Whether it is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// What a QMP client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QmpAccess {
    /// Queries only.
    ReadOnly,
    /// Commands that change the machine, but not the dangerous ones of the policy table.
    ReadWrite,
    /// Everything the policy table does not forbid.
    Dangerous,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "answer")]
pub enum ControlReply {
    /// The current status.
    Status(Box<Status>),
    /// The request was queued; watch the status to see it done.
    Queued,
    /// Nothing to do: the machine is so already.
    AlreadySo,
    /// It has been done.
    Done,
    /// Raw bytes follow.
    Streaming,
    /// A session begins: bytes follow in parts ([`crate::session`]).
    Session,
    /// The same of a console, or a viewer of one, that was asked for with `resume`: what it begins with.
    Resumed(Begun),
    /// The guest is well.
    Healthy,
    /// What the guest agent reports.
    Guest(Box<GuestReport>),
    /// What is counted of the machine.
    Statistics(Box<Statistics>),
    /// A part of the record follows.
    Part(PartHead),
    /// A part of the record is not sent.
    NoPart {
        /// Why.
        why: NoPart,
    },
    /// No, and why.
    Denied {
        /// The reason, for a person.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::ChangeRequest;
    use crate::testing::AUDIT_ID;
    use crate::wire;

    #[test]
    fn the_user_is_sent_beside_the_request_and_may_be_left_out() {
        let request = ControlRequest::Qmp { access: QmpAccess::ReadOnly };
        let asked = Asked {
            request: request.clone(),
            claimed_user: Some("ada".into()),
            audit_id: Some(AUDIT_ID.into()),
            number: None,
        };
        let line = wire::encode(&asked).unwrap();
        assert_eq!(wire::decode::<Asked>(&line).unwrap(), asked);
        // An older supervisor reads the request alone, and an older client sends nothing else.
        assert_eq!(wire::decode::<ControlRequest>(&line).unwrap(), request);
        let plain = wire::encode(&request).unwrap();
        assert_eq!(
            wire::decode::<Asked>(&plain).unwrap(),
            Asked { request, claimed_user: None, audit_id: None, number: None }
        );
    }

    #[test]
    fn a_number_is_sent_beside_the_request_and_an_older_supervisor_reads_the_request_alone() {
        let number = Number { id: "n-1".to_owned(), run: "r-1".to_owned() };
        let asked = Asked { request: ControlRequest::Reset, claimed_user: None, audit_id: None, number: Some(number) };
        let line = serde_json::to_string(&asked).unwrap();
        assert_eq!(line, r#"{"ask":"reset","number":{"id":"n-1","run":"r-1"}}"#);
        assert_eq!(wire::decode::<Asked>(line.as_bytes()).unwrap(), asked);
        assert_eq!(wire::decode::<ControlRequest>(line.as_bytes()).unwrap(), ControlRequest::Reset);
        assert_eq!(asked.request.change(), Some(ChangeRequest::Reset));
        assert_eq!(ControlRequest::Status.change(), None);
    }

    #[test]
    fn a_viewer_that_is_no_session_is_asked_for_as_before() {
        let plain = [
            (ControlRequest::Vnc { session: Session::None }, r#"{"ask":"vnc"}"#),
            (
                ControlRequest::Console { access: ConsoleAccess::TakeOver, session: Session::None, resume: None },
                r#"{"ask":"console","access":"takeOver"}"#,
            ),
        ];
        for (request, line) in plain {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(wire::decode::<ControlRequest>(line.as_bytes()).unwrap(), request);
        }
        let session = serde_json::to_string(&ControlRequest::Vnc { session: Session::Only }).unwrap();
        assert_eq!(session, r#"{"ask":"vnc","session":"only"}"#);
        /// As a supervisor of a version before this reads it.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", tag = "ask")]
        enum Before {
            Vnc,
        }
        assert!(matches!(wire::decode::<Before>(session.as_bytes()), Ok(Before::Vnc)));
    }

    #[test]
    fn a_console_that_goes_on_names_its_place_and_an_older_supervisor_does_not_read_it() {
        let resume = Some(Resume::After("5e1f.7".parse().unwrap()));
        let console = ControlRequest::Console { access: ConsoleAccess::Write, session: Session::Only, resume };
        let line = serde_json::to_string(&console).unwrap();
        let expected = r#"{"ask":"console","access":"write","session":"only","resume":"5e1f.7"}"#;
        assert_eq!(line, expected);
        assert_eq!(wire::decode::<ControlRequest>(line.as_bytes()).unwrap(), console);
        /// As a supervisor of a version before this reads it.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", tag = "ask")]
        enum Before {
            Console { access: ConsoleAccess, session: Session },
        }
        let Ok(Before::Console { access, session }) = wire::decode::<Before>(line.as_bytes()) else { panic!("{line}") };
        assert_eq!((access, session), (ConsoleAccess::Write, Session::Only));
        let begun = Begun { position: "5e1f.7".parse().unwrap(), resumed: true, missed: 0 };
        let reply = ControlReply::Resumed(begun);
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(line, r#"{"answer":"resumed","position":"5e1f.7","resumed":true,"missed":0}"#);
        assert_eq!(wire::decode::<ControlReply>(line.as_bytes()).unwrap(), reply);
    }

    #[test]
    fn a_supervisor_that_has_no_levels_to_set_takes_a_number_for_no_request() {
        let request = ControlRequest::LogVerbosity { verbosity: 6 };
        let line = wire::encode(&Asked { request, claimed_user: None, audit_id: None, number: None }).unwrap();
        assert_eq!(line, b"{\"ask\":\"logVerbosity\",\"verbosity\":6}\n");
        /// As a supervisor of a version before this reads it: what it cannot read it denies, and nothing else becomes of it.
        #[derive(Debug, Deserialize)]
        struct Before {
            #[serde(flatten)]
            _request: RequestBefore,
        }
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase", tag = "ask")]
        enum RequestBefore {
            Status,
            Statistics,
        }
        let error = wire::decode::<Before>(&line).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains("unknown variant `logVerbosity`"), "{cause}");
        assert!(wire::decode::<Before>(b"{\"ask\":\"status\"}").is_ok());
    }

    /// Kinds that the taken-over QEMU does not ask of the socket for probes, and why.
    const NOT_ASKED: &[(&str, &str)] = &[
        ("probe", "this is what the socket answers"),
        ("backupHook", "the socket answers it as well: QEMU has the guest agent's channel in its hands anyway"),
    ];

    #[test]
    fn each_request_is_tried_at_the_socket_for_probes() {
        let program = include_str!("../../../tests/e2e/garboard_e2e/hostile/qemu.py");
        let (_, after) = program.split_once("\nQUESTIONS: ").unwrap();
        let (questions, _) = after.split_once("\n)\n").unwrap();
        let lines = questions.lines().skip(1).map(|line| line.trim().trim_end_matches(','));
        let asked: Vec<&str> =
            lines.map(|line| serde_json::from_str::<ControlRequest>(line).expect(line).name()).collect();
        for kind in ControlRequest::NAMES {
            let reason = NOT_ASKED.iter().find(|(name, _)| name == kind);
            assert!(asked.contains(kind) != reason.is_some(), "`{kind}` in QUESTIONS of qemu.py: {reason:?}");
        }
    }
}
