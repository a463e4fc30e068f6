//! One client of the broker: two loops over one stream, one that executes and one that writes.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::audit::{Audit, AuditOutcome, AuditSink, OpenAudit};
use super::message::{self, ClientCommand};
use super::policy::{ClientAccess, CommandVerdict, Policy};
use super::result_file::{ResultFile, ResultFileError};
use super::{Grant, PeerIdentity};
use crate::command::Request;
use crate::connection::{Monitor, READ_SIZE, read_some};
use crate::error::CallError;
use crate::event::{Interest, Notice, Subscription};
use crate::fd::write_with_descriptors;
use crate::redact::{Subject, redacted};
use crate::text::printable;
use crate::wire::{CLIENT_MESSAGE_LIMIT, ObjectSplitter};

/// A client that takes nothing for this long is cut off.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Events sent before an answer that is ready.
const EVENT_BURST: u32 = 64;

/// Why a client is no longer served.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// It closed its connection.
    Left,
    /// It took nothing for too long.
    Stalled,
    /// Its connection broke.
    Broken(io::ErrorKind),
    /// QEMU has ended.
    NoMachine,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => formatter.write_str("it left"),
            Self::Stalled => write!(formatter, "cut off: it took nothing for {STALL_LIMIT:?}"),
            Self::Broken(kind) => write!(formatter, "its stream broke: {kind}"),
            Self::NoMachine => formatter.write_str("QEMU ended"),
        }
    }
}

pub(super) struct Client {
    pub(super) number: u64,
    pub(super) grant: Grant,
    pub(super) peer: PeerIdentity,
    pub(super) policy: Policy,
    pub(super) monitor: Monitor,
    pub(super) results: Option<PathBuf>,
    pub(super) sink: Arc<dyn AuditSink>,
}

/// What is to be written. Only answers come this way; events are taken from the subscription as room allows.
enum Outgoing {
    Line(Vec<u8>),
    BeginEvents(Subscription),
}

/// What a client may do, once it has negotiated.
#[derive(Clone, Copy)]
enum Phase {
    Negotiating,
    Open(ClientAccess),
}

impl Client {
    pub(super) async fn serve(self, stream: &UnixStream) -> Ended {
        // Room for one answer: the next command is not read before the last answer is taken.
        let (sender, receiver) = mpsc::channel(1);
        let executing = self.execute_all(stream, sender);
        let writing = write_all(stream, receiver);
        tokio::pin!(writing);
        tokio::select! {
            ended = executing => match writing.await {
                // Everything that was answered is written, also to a client that only shut its sending side down.
                Ok(()) => ended,
                Err(broken) => broken,
            },
            Err(broken) = &mut writing => broken,
        }
    }

    async fn execute_all(&self, stream: &UnixStream, answers: mpsc::Sender<Outgoing>) -> Ended {
        let hello = message::greeting(self.monitor.greeting(), self.grant.start, self.grant.ceiling);
        if answers.send(Outgoing::Line(hello)).await.is_err() {
            return Ended::Left;
        }
        let mut closed = self.monitor.subscribe(Interest::Named(&[]));
        let mut phase = Phase::Negotiating;
        let mut splitter = ObjectSplitter::new(CLIENT_MESSAGE_LIMIT);
        let mut chunk = [0; READ_SIZE];
        loop {
            while let Some(object) = splitter.next_object() {
                let parsed = object.map(ClientCommand::parse);
                let answer = match parsed {
                    Err(error) => message::failure("GenericError", &format!("JSON parse error, {error}"), None),
                    Ok(Err(refused)) => message::failure("GenericError", &refused.desc, refused.id.as_deref()),
                    Ok(Ok(command)) => {
                        let (answer, events) = self.execute(command, &mut phase).await;
                        if let Some(events) = events {
                            let _ = answers.send(Outgoing::BeginEvents(events)).await;
                        }
                        answer
                    }
                };
                if answers.send(Outgoing::Line(answer)).await.is_err() {
                    return Ended::Left;
                }
            }
            tokio::select! {
                read = read_some(stream, &mut chunk) => match read {
                    Ok(0) => return Ended::Left,
                    Ok(count) => splitter.push(&chunk[..count]),
                    Err(error) => return Ended::Broken(error.kind()),
                },
                _ = closed.next() => return Ended::NoMachine,
            }
        }
    }

    /// The answer to one command, and the events that begin with it.
    async fn execute(&self, command: ClientCommand, phase: &mut Phase) -> (Vec<u8>, Option<Subscription>) {
        let ClientCommand { name, arguments, id } = command;
        let id = id.as_deref();
        let refuse = |desc: &str| message::failure("CommandNotFound", desc, id);
        match (*phase, name.as_str()) {
            (Phase::Negotiating, "qmp_capabilities") => match self.negotiate(&arguments) {
                Ok(access) => {
                    *phase = Phase::Open(access);
                    (message::success(json!({}), id), Some(self.monitor.subscribe(Interest::All)))
                }
                Err(desc) => (message::failure("GenericError", &desc, id), None),
            },
            (Phase::Negotiating, _) => (refuse("Expecting capabilities negotiation with 'qmp_capabilities'"), None),
            (Phase::Open(_), "qmp_capabilities") => {
                (refuse("Capabilities negotiation is already complete, command ignored"), None)
            }
            (Phase::Open(access), _) => (self.forward(access, &name, arguments, id).await, None),
        }
    }

    /// The access a client has after asking for these capabilities.
    fn negotiate(&self, arguments: &Value) -> Result<ClientAccess, String> {
        let mut access = self.grant.start;
        for wanted in arguments["enable"].as_array().into_iter().flatten() {
            let level = ClientAccess::ALL.into_iter().find(|level| wanted.as_str() == level.capability());
            match level {
                Some(level) if level <= self.grant.ceiling => access = access.max(level),
                _ => return Err(format!("Capability {} not available", printable(&wanted.to_string(), 64))),
            }
        }
        Ok(access)
    }

    async fn forward(&self, access: ClientAccess, name: &str, arguments: Value, id: Option<&RawValue>) -> Vec<u8> {
        let verdict = self.policy.judge(access, name, &arguments);
        let (outcome, tainted) = match &verdict {
            CommandVerdict::Denied { why, .. } => (AuditOutcome::Denied { why: why.clone() }, false),
            CommandVerdict::Allowed { taints } => {
                (AuditOutcome::Unknown { why: "the client was cut off before the answer".to_owned() }, *taints)
            }
        };
        let written = if arguments.is_null() { "{}".to_owned() } else { arguments.to_string() };
        let audit = Audit {
            at: SystemTime::now(),
            uid: self.peer.uid,
            pid: self.peer.pid,
            client: self.number,
            command: printable(name, 64),
            arguments: redacted(Subject::Arguments(name), &written),
            outcome,
            tainted,
        };
        let audit = OpenAudit::new(audit, Arc::clone(&self.sink));
        if let CommandVerdict::Denied { why, how } = &verdict {
            let desc = format!("Garboard rejected `{}`: {why}; {how}", printable(name, 64));
            return message::failure("GenericError", &desc, id);
        }
        if verdict == (CommandVerdict::Allowed { taints: true }) {
            self.sink.intent(name, &arguments);
        }
        let (result, answer) = self.run(name, arguments).await;
        audit.close(&result);
        match (result, answer) {
            (Ok(_), Some(answer)) => message::success(answer, id),
            (Ok(reply), None) => message::success(reply, id),
            (Err(CallError::Refused { class, desc, .. }), _) => message::failure(&class, &desc, id),
            (Err(error), _) => message::failure("GenericError", &error.to_string(), id),
        }
    }

    /// QEMU's reply, and what the client is answered in its place where the broker adds something.
    async fn run(&self, name: &str, arguments: Value) -> (Result<Box<RawValue>, CallError>, Option<Value>) {
        let file = match ResultFile::offer(&self.monitor, self.results.as_deref(), name, &arguments).await {
            Ok(file) => file,
            Err(error) => return (Err(no_file(name, &error)), None),
        };
        let arguments = match &file {
            Some(file) => file.in_arguments(&arguments),
            None => arguments,
        };
        let requester = format!("broker client {} (uid {})", self.number, self.peer.uid);
        let mut request = Request::new(name.to_owned()).on_behalf_of(requester);
        if !arguments.is_null() {
            request = request.arguments(&arguments);
        }
        let result = self.monitor.send(request).await;
        let Some(file) = file else { return (result, None) };
        let answer = file.answer();
        file.take_back(&self.monitor, result.is_ok()).await;
        (result, Some(answer))
    }
}

/// A command that was not sent because its result has no file, as QEMU would refuse it.
fn no_file(command: &str, error: &ResultFileError) -> CallError {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let desc = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    CallError::refused(command.to_owned().into(), "GenericError", &desc)
}

/// Writes answers and events until there are no more answers to come.
async fn write_all(stream: &UnixStream, mut answers: mpsc::Receiver<Outgoing>) -> Result<(), Ended> {
    let mut events: Option<Subscription> = None;
    let mut burst = 0;
    loop {
        let next_event = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            // What happened before an answer is sent before it, but a stream of events must not hold an answer back.
            biased;
            notice = next_event, if burst < EVENT_BURST || answers.is_empty() => match notice {
                Some(Notice::Event(event)) => {
                    burst += 1;
                    message::event(&event)
                }
                Some(Notice::Lagged(count)) => message::events_lost(count),
                Some(Notice::Closed { .. }) | None => {
                    events = None;
                    continue;
                }
            },
            answer = answers.recv() => match answer {
                Some(Outgoing::Line(line)) => {
                    burst = 0;
                    line
                }
                Some(Outgoing::BeginEvents(subscription)) => {
                    events = Some(subscription);
                    continue;
                }
                None => return Ok(()),
            },
        };
        match tokio::time::timeout(STALL_LIMIT, write_with_descriptors(stream, &line, &[])).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Ended::Broken(error.kind())),
            Err(_) => return Err(Ended::Stalled),
        }
    }
}
