//! What the programs of a machine send to each other, in its order: one that is started, asked, given another supervisor and
//! stopped. Conversations of earlier builds (`tests/compat/<build>/conversation-*.jsonl`) are understood by today's programs, and
//! `GARBOARD_COMPAT=<build>` writes those of this build.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the whole file is a test"
)]

mod machine;
mod record;
#[path = "../../../tests/recorded.rs"]
mod recorded;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use garboard_agent::line_socket::{LineError, LineSocket};
use garboard_launcher::probe::ProbeError;
use garboard_launcher::supervisor::Environment;
use garboard_net::GuestAddresses;
use garboard_protocol::agent::{AgentReply, AgentRequest};
use garboard_protocol::control::{
    Asked, BackupStep, ConsoleAccess, ControlReply, ControlRequest, QmpAccess, Session, StopMode,
};
use garboard_protocol::guest::GuestSubject;
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_protocol::part::RecordPart;
use garboard_protocol::position::Resume;
use machine::Machine;
use record::{End, Line, Record, Socket};
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// The files: a launcher pod, and a machine on a bare host.
const CONVERSATIONS: [(&str, Environment); 2] =
    [("conversation-pod.jsonl", Environment::Pod), ("conversation-host.jsonl", Environment::Host)];

/// The other half of the next test; by itself it does nothing.
#[test]
fn become_the_supervisor() {
    machine::become_supervisor();
}

#[tokio::test]
async fn what_the_programs_of_a_machine_send_today_is_understood() {
    recorded::expect_listed(CONVERSATIONS.map(|(name, _)| name));
    if let Some(obstacle) = machine::obstacle() {
        eprintln!("skipped: {obstacle}");
        return;
    }
    let mut files = Vec::new();
    for (name, environment) in CONVERSATIONS {
        let lines = tokio::task::spawn_blocking(move || play(environment)).await.unwrap();
        expect_understood(name, &lines).await;
        expect_messages(environment, &lines);
        let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        files.push((name, text.into_bytes()));
    }
    recorded::write(&files);
}

#[tokio::test]
async fn conversations_of_earlier_builds_are_understood() {
    for (name, _) in CONVERSATIONS {
        for file in recorded::all(name) {
            let text = String::from_utf8(file.bytes).unwrap();
            let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(lines.len() > 10, "{}", file.path.display());
            expect_understood(&file.path.display().to_string(), &lines).await;
        }
    }
}

/// The life of a machine, with everything in it that can be asked.
fn play(environment: Environment) -> Vec<Line> {
    let record = Record::default();
    let mut machine = Machine::start(environment, &record);
    let answered = |machine: &Machine, request: ControlRequest, expected: &str| {
        let answer = machine.ask(request.clone());
        assert_eq!(answer["answer"], expected, "to {request:?}: {answer}; {}", machine.logs());
    };
    answered(&machine, ControlRequest::Status, "status");
    answered(&machine, ControlRequest::Pause, "queued");
    machine.wait("pause", |it| !it.status()["paused"].is_null());
    answered(&machine, ControlRequest::Pause, "alreadySo");
    answered(&machine, ControlRequest::Unpause, "queued");
    machine.wait("end of the pause", |it| it.status()["paused"].is_null());
    answered(&machine, ControlRequest::Prolong { grace_seconds: 300 }, "queued");
    // Until QEMU has done what was asked of it before, what it reports of the pause is of before too.
    machine.wait("soft reboot that is accepted", |it| it.ask(ControlRequest::SoftReboot)["answer"] == "queued");
    machine.wait("soft reboot", |it| it.status()["softRebooting"] == true);
    // It ends the soft reboot, of which this guest knows nothing.
    answered(&machine, ControlRequest::Reset, "queued");
    answered(&machine, ControlRequest::Watch, "status");
    let (access, session) = (ConsoleAccess::View, Session::None);
    answered(&machine, ControlRequest::Console { access, session, resume: None }, "streaming");
    let (access, session) = (ConsoleAccess::TakeOver, Session::Replace);
    answered(&machine, ControlRequest::Console { access, session, resume: None }, "session");
    answered(&machine, ControlRequest::Console { access, session, resume: Some(Resume::New) }, "resumed");
    answered(&machine, ControlRequest::Qmp { access: QmpAccess::ReadOnly }, "streaming");
    answered(&machine, ControlRequest::Vnc { session: Session::None }, "streaming");
    answered(&machine, ControlRequest::Vnc { session: Session::Only }, "session");
    answered(&machine, ControlRequest::UsbRedir, "streaming");
    answered(&machine, ControlRequest::Screenshot { move_cursor: true }, "streaming");
    // No agent is in this guest.
    answered(&machine, ControlRequest::Freeze { thaw_after_seconds: Some(300) }, "denied");
    answered(&machine, ControlRequest::Unfreeze, "denied");
    answered(&machine, ControlRequest::BackupHook { step: BackupStep::Freeze }, "alreadySo");
    answered(&machine, ControlRequest::Statistics, "statistics");
    answered(&machine, ControlRequest::LogVerbosity { verbosity: 6 }, "done");
    answered(&machine, ControlRequest::LogVerbosity { verbosity: 7 }, "alreadySo");
    answered(&machine, ControlRequest::Guest { about: GuestSubject::Info }, "denied");
    answered(&machine, ControlRequest::Show { part: RecordPart::Plan }, "part");
    // It has not ended.
    answered(&machine, ControlRequest::Show { part: RecordPart::Exit }, "noPart");
    if environment == Environment::Pod {
        assert_eq!(machine.ask_through_agent(ControlRequest::Status)["answer"], "status");
        // Nothing in this guest answers.
        assert!(matches!(machine.probe(&["1", "ping"]), Err(ProbeError::Unwell { .. })));
        machine.wait_for_message("answer", "noted");
    }
    machine.replace_supervisor();
    machine.wait_for_message("ask", "sockets");
    machine.terminate();
    machine.wait_for_message("supervisor", "poweringDown");
    answered(&machine, ControlRequest::Stop { mode: StopMode::Force }, "queued");
    machine.ends();
    if environment == Environment::Pod {
        machine.wait_for_message("ask", "record");
    }
    drop(machine);
    record.lines()
}

/// The messages that a machine in a pod needs, or one on a bare host.
fn expect_messages(environment: Environment, lines: &[Line]) {
    let of_both = [
        (Socket::Launch, End::Init, "hello spawned terminationRequested ended"),
        (Socket::Launch, End::Supervisor, "launch poweringDown"),
        (
            Socket::Control,
            End::Client,
            "backupHook console freeze guest logVerbosity pause prolong qmp reset screenshot show softReboot statistics status stop unfreeze unpause usbRedir vnc watch",
        ),
        (
            Socket::Control,
            End::Supervisor,
            "alreadySo denied done noPart part queued resumed session statistics status streaming",
        ),
    ];
    let own: &[_] = match environment {
        Environment::Pod => &[
            (Socket::Agent, End::Supervisor, "plumb record report serve sockets"),
            (Socket::Agent, End::Agent, "connection noted plumbed serving"),
            (Socket::Probe, End::Client, "probe"),
            (Socket::Probe, End::Supervisor, "denied"),
        ],
        Environment::Host => {
            &[(Socket::Agent, End::Supervisor, "plumb sockets volume"), (Socket::Agent, End::Agent, "plumbed volume")]
        }
    };
    for (socket, from, expected) in of_both.iter().chain(own) {
        let of_it = lines.iter().filter(|line| (line.socket, line.from) == (*socket, *from));
        let sent: BTreeSet<&str> = of_it.filter_map(word).collect();
        let missing: Vec<_> = expected.split(' ').filter(|word| !sent.contains(word)).collect();
        assert!(missing.is_empty(), "{socket:?} of {from:?}: {missing:?} is not among {sent:?}");
    }
}

/// What kind of message it is.
fn word(line: &Line) -> Option<&str> {
    ["init", "supervisor", "ask", "answer"].iter().find_map(|tag| line.message[tag].as_str())
}

/// Each end of today's programs understands what the other one has sent, from the first line to the last, and has the answers
/// in their order.
async fn expect_understood(name: &str, lines: &[Line]) {
    let mut connections: BTreeMap<u32, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        connections.entry(line.connection).or_default().push(line);
    }
    for (number, lines) in connections {
        let at = format!("{name}, connection {number}");
        let sent = |from: End| lines.iter().copied().filter(|line| line.from == from).collect::<Vec<_>>();
        match lines[0].socket {
            Socket::Launch => {
                assert_eq!(word(lines[0]), Some("hello"), "{at}");
                read::<FromInit>(&at, sent(End::Init), |message| *message != FromInit::Unknown).await;
                read::<ToInit>(&at, sent(End::Supervisor), |message| *message != ToInit::Unknown).await;
            }
            Socket::Agent => {
                read::<AgentRequest>(&at, sent(End::Supervisor), |_| true).await;
                read::<AgentReply<GuestAddresses>>(&at, sent(End::Agent), |_| true).await;
                // A connection is an answer to `serve`, as often as one comes.
                let answers = lines.iter().filter(|line| line.from == End::Agent && word(line) != Some("connection"));
                let (answers, asked) = (answers.count(), sent(End::Supervisor).len());
                assert!(asked == answers || asked == answers + 1, "{at}: {answers} answers to {asked} requests");
            }
            Socket::Control | Socket::Probe => {
                read::<Asked>(&at, sent(End::Client), |_| true).await;
                read::<ControlReply>(&at, sent(End::Supervisor), |_| true).await;
                assert!(lines[0].from == End::Client && lines.len() == 2, "{at}: {lines:?}");
            }
        }
    }
}

/// Today's reader of a socket gets all of these lines, as one stream of bytes.
async fn read<T: DeserializeOwned + std::fmt::Debug>(at: &str, lines: Vec<&Line>, is_known: fn(&T) -> bool) {
    let (mut here, there) = UnixStream::pair().unwrap();
    let text: String = lines.iter().map(|line| format!("{}\n", line.message)).collect();
    let feed = async move {
        here.write_all(text.as_bytes()).await.unwrap();
    };
    let take = async move {
        let mut socket = LineSocket::new(there);
        for line in lines {
            let message: T = socket.receive().await.unwrap_or_else(|error| panic!("{at}: {}: {error:?}", line.message));
            assert!(is_known(&message), "{at}: {} is read as {message:?}", line.message);
        }
        assert!(matches!(socket.receive::<T>().await, Err(LineError::Closed)), "{at}");
    };
    tokio::join!(feed, take);
}
