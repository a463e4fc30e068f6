//! The client's side of a machine's control socket, blocking: commands are short-lived.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_common::foreign;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest, Status};
use garboard_protocol::{paths, wire};
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::{lock, pause_briefly, pending_restart};

use crate::exit::{NOT_FOUND, REFUSED, complaint};

/// A supervisor that is alive answers at once; one that hangs must not hang the command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to the supervisor of a machine.
pub(crate) fn connect(places: &Places, id: &MachineId) -> anyhow::Result<UnixStream> {
    if !places.machine(id).exists() {
        return Err(complaint(NOT_FOUND, format!("there is no running machine {id}; `garboard ps` lists them")));
    }
    if let Some(pending) = pending_restart::read(&places.machine(id)) {
        return Err(complaint(REFUSED, format!("{id} is between two runs: {}", pending.sentence())));
    }
    let directory = places.layout(id).supervisor();
    let stream = reach(&directory, &places.machine(id))
        .with_context(|| format!("the supervisor of {id} does not answer in {}", directory.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// An open way to a supervisor, on this host or in a pod.
pub(crate) struct Line {
    /// The connection.
    pub(crate) stream: UnixStream,
    /// The machine, for sentences.
    pub(crate) machine: String,
    /// Who is at our end, for the supervisor's log; on a bare host the kernel tells it.
    pub(crate) claimed_user: Option<String>,
    /// Whether the other end goes on talking when we have said that we say nothing more.
    pub(crate) may_half_close: bool,
}

impl Line {
    /// The supervisor of a machine on this host.
    pub(crate) fn to(places: &Places, id: &MachineId) -> anyhow::Result<Self> {
        Ok(Self { stream: connect(places, id)?, machine: id.to_string(), claimed_user: None, may_half_close: true })
    }

    /// Asks for something that is queued, is so already, or is denied.
    pub(crate) fn request(&self, request: ControlRequest) -> anyhow::Result<Outcome> {
        outcome(self.ask(request)?, &self.machine)
    }

    fn ask(&self, request: ControlRequest) -> anyhow::Result<ControlReply> {
        converse(&self.stream, &Asked { request, claimed_user: self.claimed_user.clone() })
    }

    /// Asks for every status from now on; the present one comes first.
    pub(crate) fn statuses(&self) -> anyhow::Result<Statuses> {
        let asked = Asked { request: ControlRequest::Watch, claimed_user: self.claimed_user.clone() };
        (&mut &self.stream).write_all(&wire::encode(&asked)?)?;
        Ok(Statuses { reader: BufReader::new(self.stream.try_clone()?) })
    }

    /// Asks for a stream; from then on the connection carries its bytes.
    pub(crate) fn open(&self, request: ControlRequest) -> anyhow::Result<()> {
        match self.ask(request)? {
            ControlReply::Streaming => Ok(()),
            ControlReply::Denied { reason } => Err(complaint(REFUSED, format!("{}: {reason}", self.machine))),
            other @ (ControlReply::Status(_)
            | ControlReply::Queued
            | ControlReply::AlreadySo
            | ControlReply::Healthy) => {
                anyhow::bail!("unexpected answer {other:?}")
            }
        }
    }
}

/// What a supervisor tells of its machine from now on.
pub(crate) struct Statuses {
    reader: BufReader<UnixStream>,
}

impl Statuses {
    /// The next one; nothing if the supervisor hung up. It is an error if none comes until then.
    pub(crate) fn next(&mut self, deadline: Instant) -> anyhow::Result<Option<Status>> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.reader.get_ref().set_read_timeout(Some(left))?;
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).context("the supervisor said nothing more")?;
        if line.is_empty() {
            return Ok(None);
        }
        match wire::decode(&line)? {
            ControlReply::Status(status) => Ok(Some(*status)),
            other @ (ControlReply::Queued
            | ControlReply::AlreadySo
            | ControlReply::Streaming
            | ControlReply::Healthy
            | ControlReply::Denied { .. }) => anyhow::bail!("unexpected answer {other:?}"),
        }
    }
}

/// A supervisor that was just started, or started again, needs a moment until it listens; as long as the machine has
/// a shim it is waited for.
fn reach(directory: &Path, machine: &Path) -> std::io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match foreign::connect(directory, paths::CONTROL_SOCKET) {
            Err(_) if Instant::now() < deadline && lock::is_held(machine) => {
                pause_briefly();
            }
            other => return other,
        }
    }
}

/// Sends one request and reads one reply; the stream is then whatever the reply made of it.
pub(crate) fn ask(stream: &UnixStream, request: &ControlRequest) -> anyhow::Result<ControlReply> {
    converse(stream, &Asked { request: request.clone(), claimed_user: None })
}

fn converse(stream: &UnixStream, asked: &Asked) -> anyhow::Result<ControlReply> {
    (&mut &*stream).write_all(&wire::encode(asked)?)?;
    let mut line = Vec::new();
    // Byte by byte: after `Streaming` the rest belongs to the stream.
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        let read = (&mut &*stream).read(&mut byte).context("the supervisor did not answer")?;
        if read == 0 {
            anyhow::bail!("the supervisor hung up without an answer; `garboard logs` may say why");
        }
        line.extend_from_slice(&byte);
        anyhow::ensure!(line.len() <= wire::MAX_LINE_BYTES, "the supervisor's answer has no end");
    }
    Ok(wire::decode(&line)?)
}

/// Asks for something that is queued, is so already, or is denied.
pub(crate) fn request(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<Outcome> {
    outcome(ask(&connect(places, id)?, request)?, &id.to_string())
}

fn outcome(reply: ControlReply, machine: &str) -> anyhow::Result<Outcome> {
    match reply {
        ControlReply::Queued | ControlReply::Streaming | ControlReply::Status(_) | ControlReply::Healthy => {
            Ok(Outcome::Queued)
        }
        ControlReply::AlreadySo => Ok(Outcome::AlreadySo),
        ControlReply::Denied { reason } => Err(complaint(REFUSED, format!("{machine}: {reason}"))),
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It will be done.
    Queued,
    /// There was nothing to do.
    AlreadySo,
}

/// The machine's current status.
pub(crate) fn status(places: &Places, id: &MachineId) -> anyhow::Result<Status> {
    let stream = connect(places, id)?;
    match ask(&stream, &ControlRequest::Status)? {
        ControlReply::Status(status) => Ok(*status),
        other @ (ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Streaming
        | ControlReply::Healthy
        | ControlReply::Denied { .. }) => {
            anyhow::bail!("the supervisor of {id} answered {other:?} to a question for its status")
        }
    }
}

/// The machine's status if its supervisor is there to tell it; for whoever will ask again.
pub(crate) fn status_now(places: &Places, id: &MachineId) -> Option<Status> {
    let stream = foreign::connect(&places.layout(id).supervisor(), paths::CONTROL_SOCKET).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    match ask(&stream, &ControlRequest::Status).ok()? {
        ControlReply::Status(status) => Some(*status),
        ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Streaming
        | ControlReply::Healthy
        | ControlReply::Denied { .. } => None,
    }
}

/// Whether an error means that the supervisor is there and says nothing, as one that was stopped does.
pub(crate) fn is_silence(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()));
    let silent = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
    kinds.into_iter().any(|kind| silent.contains(&kind))
}

/// Follows the status until `until` says stop, the run is over or the machine is gone; answers with the last one seen.
/// A supervisor that dies is followed by the next one, as long as there is a shim to start it.
pub(crate) fn watch(
    places: &Places,
    id: &MachineId,
    mut until: impl FnMut(&Status) -> bool,
) -> anyhow::Result<Option<Status>> {
    let machine = places.machine(id);
    let mut stream = connect(places, id)?;
    let mut last: Option<Status> = None;
    loop {
        if follow(&stream, &mut last, &mut until)? == Followed::Enough || !lock::is_held(&machine) {
            return Ok(last);
        }
        stream = match connect(places, id) {
            Err(_) if !machine.exists() => return Ok(last),
            other => other?,
        };
    }
}

/// Why following a status ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// What was waited for is so, or nothing more will come.
    Enough,
    /// The supervisor hung up.
    Lost,
}

fn follow(
    stream: &UnixStream,
    last: &mut Option<Status>,
    until: &mut impl FnMut(&Status) -> bool,
) -> anyhow::Result<Followed> {
    stream.set_read_timeout(None)?;
    if (&mut &*stream).write_all(&wire::encode(&ControlRequest::Watch)?).is_err() {
        return Ok(Followed::Lost);
    }
    let mut reader = BufReader::new(stream);
    let most = u64::try_from(wire::MAX_LINE_BYTES).unwrap_or(u64::MAX);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(most).read_until(b'\n', &mut line);
        // Half a line is what a supervisor leaves that is killed while it writes.
        let Some(ControlReply::Status(status)) = read.ok().and_then(|_| wire::decode(&line).ok()) else { break };
        let enough = until(&status) || status.ended.is_some();
        *last = Some(*status);
        if enough {
            return Ok(Followed::Enough);
        }
    }
    Ok(Followed::Lost)
}
