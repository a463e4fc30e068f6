//! The client's side of a machine's control socket, blocking: commands are short-lived.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_protocol::control::{ControlReply, ControlRequest, Status};
use garboard_protocol::{paths, wire};

use crate::exit::{NOT_FOUND, REFUSED, complaint};
use crate::places::{MachineId, Places};

/// A supervisor that is alive answers at once; one that hangs must not hang the command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to the supervisor of a machine.
pub(crate) fn connect(places: &Places, id: &MachineId) -> anyhow::Result<UnixStream> {
    if !places.machine(id).exists() {
        return Err(complaint(NOT_FOUND, format!("there is no running machine {id}; `garboard ps` lists them")));
    }
    if let Some(between) = crate::keeper::between::read(&places.machine(id)) {
        return Err(complaint(REFUSED, format!("{id} is between two runs: {}", between.sentence())));
    }
    let socket = places.shared(id).join(paths::CONTROL_SOCKET);
    let stream = reach(&socket, &places.machine(id))
        .with_context(|| format!("the supervisor of {id} does not answer at {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A supervisor that was just started, or started again, needs a moment until it listens; as long as the machine has
/// a keeper it is waited for.
fn reach(socket: &Path, machine: &Path) -> std::io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < deadline && crate::keeper::keeper_is_alive(machine) => {
                crate::keeper::pause_briefly();
            }
            other => return other,
        }
    }
}

/// Sends one request and reads one reply; the stream is then whatever the reply made of it.
pub(crate) fn ask(stream: &UnixStream, request: &ControlRequest) -> anyhow::Result<ControlReply> {
    (&mut &*stream).write_all(&wire::encode(request)?)?;
    let mut line = Vec::new();
    // Byte by byte: after `Streaming` the rest belongs to the stream.
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        let read = (&mut &*stream).read(&mut byte).context("the supervisor did not answer")?;
        if read == 0 {
            anyhow::bail!("the supervisor hung up without an answer; `garboard logs` may say why");
        }
        line.extend_from_slice(&byte);
    }
    Ok(wire::decode(&line)?)
}

/// Asks for something that is queued, is so already, or is denied.
pub(crate) fn request(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<Outcome> {
    let stream = connect(places, id)?;
    match ask(&stream, request)? {
        ControlReply::Queued | ControlReply::Streaming | ControlReply::Status(_) => Ok(Outcome::Queued),
        ControlReply::AlreadySo => Ok(Outcome::AlreadySo),
        ControlReply::Denied { reason } => Err(complaint(REFUSED, format!("{id}: {reason}"))),
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
        other => anyhow::bail!("the supervisor of {id} answered {other:?} to a question for its status"),
    }
}

/// The machine's status if its supervisor is there to tell it; for whoever will ask again.
pub(crate) fn status_now(places: &Places, id: &MachineId) -> Option<Status> {
    let stream = UnixStream::connect(places.shared(id).join(paths::CONTROL_SOCKET)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    match ask(&stream, &ControlRequest::Status).ok()? {
        ControlReply::Status(status) => Some(*status),
        _ => None,
    }
}

/// Follows the status until `until` says stop or the machine is gone; answers with the last one seen.
pub(crate) fn watch(
    places: &Places,
    id: &MachineId,
    mut until: impl FnMut(&Status) -> bool,
) -> anyhow::Result<Option<Status>> {
    let stream = connect(places, id)?;
    stream.set_read_timeout(None)?;
    (&mut &stream).write_all(&wire::encode(&ControlRequest::Watch)?)?;
    let mut last = None;
    for line in BufReader::new(&stream).split(b'\n') {
        let Ok(line) = line else { break };
        if let ControlReply::Status(status) = wire::decode(&line)? {
            let enough = until(&status);
            last = Some(*status);
            if enough {
                break;
            }
        }
    }
    Ok(last)
}
