//! The client's side of a machine's control socket, blocking: commands are short-lived.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_common::foreign;
use garboard_kubectl::line::{self, Incoming, Line, Outcome};
use garboard_protocol::control::{Asked, ControlReply, ControlRequest, Status};
use garboard_protocol::{paths, wire};
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::{lock, pause_briefly, pending_restart, processes};

use crate::exit::{NOT_FOUND, REFUSED, exit_error};

/// A supervisor that is alive answers at once; one that hangs must not hang the command.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same of one that waits for a guest, which has a minute.
const PATIENCE_WITH_GUESTS: Duration = Duration::from_secs(90);

/// Connects to the supervisor of a machine.
pub(crate) fn connect(places: &Places, id: &MachineId) -> anyhow::Result<UnixStream> {
    if !places.machine(id).exists() {
        return Err(exit_error(NOT_FOUND, format!("there is no running machine {id}; `garboard ps` lists them")));
    }
    if let Some(pending) = pending_restart::awaited(&places.machine(id)) {
        return Err(exit_error(REFUSED, format!("{id} is between two runs: {}", pending.summary())));
    }
    let directory = places.layout(id).supervisor();
    let stream = reach(&directory, &places.machine(id)).with_context(|| unanswered(places, id, &directory))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a supervisor that does not answer means.
fn unanswered(places: &Places, id: &MachineId, directory: &Path) -> String {
    let machine = places.machine(id);
    if !lock::is_held(&machine) && processes::all(&machine).is_empty() {
        return format!("nothing of {id} runs; `garboard stop {id}` removes what an interrupted command has left");
    }
    format!("the supervisor of {id} does not answer in {}", directory.display())
}

/// A line to the supervisor of a machine on this host.
pub(crate) fn line(places: &Places, id: &MachineId) -> anyhow::Result<Line> {
    let stream = connect(places, id)?;
    // Only the reading end of the line has a time limit.
    stream.set_read_timeout(None)?;
    let mut incoming = Incoming::of(stream.try_clone()?);
    incoming.set_patience(Some(PATIENCE));
    Ok(Line { incoming, outgoing: Box::new(WritingEnd(stream)), machine: id.to_string(), claimed_user: None })
}

/// Asks the supervisor for a stream; from then on the connection carries its bytes.
pub(crate) fn stream(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<UnixStream> {
    let stream = connect(places, id)?;
    line::streaming(ask(&stream, request)?, &id.to_string())?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// The writing end of a socket, with which the connection ends.
pub(crate) struct WritingEnd(pub(crate) UnixStream);

impl Write for WritingEnd {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for WritingEnd {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
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

/// Sends one request and reads one reply; the stream then carries what the reply announces.
pub(crate) fn ask(stream: &UnixStream, request: &ControlRequest) -> anyhow::Result<ControlReply> {
    let asked = Asked { request: request.clone(), claimed_user: None, audit_id: None, number: None };
    line::request_reply(&mut &*stream, &mut &*stream, &asked)
}

/// Asks for something that is queued, is so already, or is denied.
pub(crate) fn request(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<Outcome> {
    line::outcome(ask(&connect(places, id)?, request)?, &id.to_string())
}

/// The same, of what is answered when the guest has done it.
pub(crate) fn request_of_guest(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<Outcome> {
    let stream = connect(places, id)?;
    stream.set_read_timeout(Some(PATIENCE_WITH_GUESTS))?;
    line::outcome(ask(&stream, request)?, &id.to_string())
}

/// The machine's current status.
pub(crate) fn status(places: &Places, id: &MachineId) -> anyhow::Result<Status> {
    let stream = connect(places, id)?;
    match ask(&stream, &ControlRequest::Status)? {
        ControlReply::Status(status) => Ok(*status),
        other @ (ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. }
        | ControlReply::Denied { .. }) => {
            anyhow::bail!("the supervisor of {id} answered {other:?} to a question for its status")
        }
    }
}

/// The machine's status if its supervisor answers; for callers that ask again.
pub(crate) fn status_now(places: &Places, id: &MachineId) -> Option<Status> {
    let stream = foreign::connect(&places.layout(id).supervisor(), paths::CONTROL_SOCKET).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    match ask(&stream, &ControlRequest::Status).ok()? {
        ControlReply::Status(status) => Some(*status),
        ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. }
        | ControlReply::Denied { .. } => None,
    }
}

/// Whether an error means that the supervisor is there and does not answer, as one that was stopped does.
pub(crate) fn is_silence(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()));
    let silent = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
    kinds.into_iter().any(|kind| silent.contains(&kind))
}

/// Follows the status until `until` is true, the run is over or the machine is gone; answers with the last one seen.
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
    /// The supervisor closed the connection.
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
        // A supervisor that is killed while it writes leaves half a line.
        let Some(ControlReply::Status(status)) = read.ok().and_then(|_| wire::decode(&line).ok()) else { break };
        let enough = until(&status) || status.ended.is_some();
        *last = Some(*status);
        if enough {
            return Ok(Followed::Enough);
        }
    }
    Ok(Followed::Lost)
}
