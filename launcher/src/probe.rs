//! A kubelet's probe of the guest: a command in `compute` that asks the supervisor through a socket for nothing else.
//!
//! ```text
//!   kubelet ── exec ──► garboard-launcher --probe 1 ping               ──► supervisor ──► guest agent
//!                       garboard-launcher --probe 1 exec -- CMD ARG…
//! ```
//!
//! It ends with 0 if the guest is well, else prints the reason to standard error.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use garboard_protocol::control::{ControlReply, ControlRequest, GuestQuestion};
use garboard_protocol::{paths, wire};

/// Longest answer, bytes.
const ANSWER_BYTES: u64 = 64 * 1024;
/// What is left to the way from the guest to the kubelet.
const MARGIN: Duration = Duration::from_millis(500);
/// The least that is waited for an answer.
const SHORTEST: Duration = Duration::from_millis(50);

/// Why the guest is not well, or not known to be.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The command line.
    #[error("usage: garboard-launcher --probe SECONDS ping | exec -- COMMAND [ARGUMENT]…")]
    Usage,
    /// No supervisor.
    #[error("the supervisor did not answer")]
    Supervisor(#[source] std::io::Error),
    /// It is not well.
    #[error("{reason}")]
    Unwell {
        /// The supervisor's message.
        reason: String,
    },
    /// The supervisor is of another version.
    #[error("the supervisor's answer could not be parsed")]
    Nonsense,
}

/// The question of a command and how long its answer may take, seconds; without the command's first two arguments.
///
/// # Errors
/// [`ProbeError::Usage`].
pub fn parse(arguments: &[String]) -> Result<(GuestQuestion, u32), ProbeError> {
    let (seconds, rest) = arguments.split_first().ok_or(ProbeError::Usage)?;
    let within_seconds = seconds.parse().map_err(|_| ProbeError::Usage)?;
    let question = match rest {
        [ping] if ping == "ping" => GuestQuestion::Ping,
        [exec, dashes, command @ ..] if exec == "exec" && dashes == "--" && !command.is_empty() => {
            GuestQuestion::Exec { command: command.to_vec() }
        }
        _ => return Err(ProbeError::Usage),
    };
    Ok((question, within_seconds))
}

/// Puts the question of a command line to the supervisor that listens in `directory`.
///
/// # Errors
/// [`ProbeError`] unless the guest is well.
pub fn run(directory: &Path, arguments: &[String]) -> Result<(), ProbeError> {
    let (question, within_seconds) = parse(arguments)?;
    let within = Duration::from_secs(u64::from(within_seconds));
    let request = ControlRequest::Probe { question, within_seconds };
    match ask(directory, &request, within + MARGIN).map_err(ProbeError::Supervisor)? {
        ControlReply::Healthy => Ok(()),
        ControlReply::Denied { reason } => Err(ProbeError::Unwell { reason }),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(ProbeError::Nonsense),
    }
}

/// Sends a request to the socket for probes.
pub(crate) fn ask(directory: &Path, request: &ControlRequest, within: Duration) -> std::io::Result<ControlReply> {
    let deadline = Instant::now() + within;
    // A supervisor that is just being started again fails one probe; how many count is the manifest's failureThreshold.
    let stream = UnixStream::connect(directory.join(paths::PROBE_SOCKET))?;
    let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST);
    stream.set_read_timeout(Some(left))?;
    (&stream).write_all(&wire::encode(request)?)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(ANSWER_BYTES)).read_until(b'\n', &mut line)?;
    wire::decode(&line).map_err(std::io::Error::other)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_command_is_read_as_it_was_written() {
        let exec = GuestQuestion::Exec { command: vec!["sh".into(), "-c".into(), "test -e /x".into(), "--".into()] };
        for question in [GuestQuestion::Ping, exec] {
            let arguments = garboard_protocol::probe::command(&question, 3);
            assert_eq!(parse(&arguments[2..]).unwrap(), (question, 3));
        }
        for wrong in [&["ping"][..], &["1"], &["1", "exec", "--"], &["1", "exec", "true"], &["1", "ping", "x"]] {
            let arguments: Vec<String> = wrong.iter().map(|argument| (*argument).to_owned()).collect();
            assert!(matches!(parse(&arguments), Err(ProbeError::Usage)), "{wrong:?}");
        }
    }

    /// What a command makes of an answer, and what it asked.
    pub(crate) fn answering<T>(reply: ControlReply, command: impl FnOnce(&Path) -> T) -> (T, ControlRequest) {
        let room = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(room.path().join(paths::PROBE_SOCKET)).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = Vec::new();
            BufReader::new(&stream).read_until(b'\n', &mut line).unwrap();
            stream.write_all(&wire::encode(&reply).unwrap()).unwrap();
            wire::decode(&line).unwrap()
        });
        let outcome = command(room.path());
        (outcome, answering.join().unwrap())
    }

    /// What a probe makes of an answer.
    fn answered(reply: ControlReply) -> Result<(), ProbeError> {
        answering(reply, |directory| run(directory, &["60".to_owned(), "ping".to_owned()])).0
    }

    #[test]
    fn only_a_healthy_guest_is_healthy() {
        assert!(answered(ControlReply::Healthy).is_ok());
        let unwell = answered(ControlReply::Denied { reason: "no guest agent".into() }).unwrap_err();
        assert_eq!(unwell.to_string(), "no guest agent");
        assert!(matches!(answered(ControlReply::Queued), Err(ProbeError::Nonsense)));
    }

    #[test]
    fn a_supervisor_that_is_gone_is_no_health() {
        let room = tempfile::tempdir().unwrap();
        let outcome = run(room.path(), &["0".to_owned(), "ping".to_owned()]);
        assert!(matches!(outcome, Err(ProbeError::Supervisor(_))));
    }
}
