//! A connection to a machine's supervisor, over whatever carries bytes both ways: the pipes of `kubectl exec`, or a socket of
//! this host. Reading is done by a thread, because neither pipes nor every operating system support reading with a time limit.
//!
//! ```text
//!   reader ──thread──► chunks ──► Incoming ──► Line ◄── command
//!   writer ◄──────────────────────────────────┘
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::wire;

use crate::exit::{REFUSED, exit_error};

/// Bytes that are read at once, and how many such pieces wait for a slow reader here.
const CHUNK_BYTES: usize = 16 * 1024;
const WAITING_CHUNKS: usize = 16;

/// The reading end of a connection, with a time limit.
pub struct Incoming {
    chunks: Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
    patience: Option<Duration>,
}

impl Incoming {
    /// Begins to read; the thread ends with the reader, or with this.
    pub fn of(reader: impl Read + Send + 'static) -> Self {
        let (sender, chunks) = sync_channel(WAITING_CHUNKS);
        std::thread::spawn(move || pump(reader, &sender));
        Self { chunks, rest: io::Cursor::default(), patience: None }
    }

    /// How long one read may wait from now on; for ever without a limit.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    fn next_chunk(&self) -> io::Result<Vec<u8>> {
        match self.patience {
            None => self.chunks.recv().unwrap_or_else(|_| Ok(Vec::new())),
            Some(patience) => match self.chunks.recv_timeout(patience) {
                Ok(chunk) => chunk,
                Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
                Err(RecvTimeoutError::Timeout) => Err(ErrorKind::TimedOut.into()),
            },
        }
    }
}

fn pump(mut reader: impl Read, chunks: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let chunk = match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = chunk.is_err();
        if chunks.send(chunk).is_err() || is_last {
            return;
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        self.rest = io::Cursor::new(self.next_chunk()?);
        self.rest.read(buffer)
    }
}

/// The writing end of a connection. Dropping it ends the connection.
pub type Outgoing = Box<dyn Write + Send>;

/// An open way to a supervisor, on this host or in a pod.
pub struct Line {
    /// What the supervisor sends.
    pub incoming: Incoming,
    /// What it is sent.
    pub outgoing: Outgoing,
    /// The machine, for messages.
    pub machine: String,
    /// The user at this end, for the supervisor's log; on a bare host the kernel reports it.
    pub claimed_user: Option<String>,
}

impl Line {
    fn ask(&mut self, request: ControlRequest) -> anyhow::Result<ControlReply> {
        let asked = Asked { request, claimed_user: self.claimed_user.clone(), audit_id: None, number: None };
        request_reply(&mut self.incoming, &mut self.outgoing, &asked)
    }

    /// Asks for a stream; from then on the connection carries its bytes.
    pub fn open(&mut self, request: ControlRequest) -> anyhow::Result<()> {
        streaming(self.ask(request)?, &self.machine)
    }
}

/// Judges the answer to a request for a stream.
pub fn streaming(reply: ControlReply, machine: &str) -> anyhow::Result<()> {
    match reply {
        ControlReply::Streaming => Ok(()),
        ControlReply::Denied { reason } => Err(exit_error(REFUSED, format!("{machine}: {reason}"))),
        other @ (ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. }) => {
            anyhow::bail!("unexpected answer {other:?}")
        }
    }
}

/// Sends one request and reads one reply; the connection then carries what the reply announces.
pub fn request_reply(
    incoming: &mut impl Read,
    outgoing: &mut impl Write,
    asked: &Asked,
) -> anyhow::Result<ControlReply> {
    outgoing.write_all(&wire::encode(asked)?)?;
    outgoing.flush()?;
    let mut line = Vec::new();
    // Byte by byte: after `Streaming` the rest belongs to the stream.
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        let read = incoming.read(&mut byte).context("the supervisor did not answer")?;
        if read == 0 {
            anyhow::bail!("the supervisor closed the connection without an answer; its log may have the reason");
        }
        line.extend_from_slice(&byte);
        anyhow::ensure!(line.len() <= wire::MAX_LINE_BYTES, "the supervisor's answer is too long");
    }
    Ok(wire::decode(&line)?)
}

/// Judges the answer to a request that is queued, is so already, or is denied.
pub fn outcome(reply: ControlReply, machine: &str) -> anyhow::Result<Outcome> {
    match reply {
        ControlReply::Queued
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Status(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Ok(Outcome::Queued),
        ControlReply::AlreadySo => Ok(Outcome::AlreadySo),
        ControlReply::Denied { reason } => Err(exit_error(REFUSED, format!("{machine}: {reason}"))),
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It will be done.
    Queued,
    /// There was nothing to do.
    AlreadySo,
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use garboard_protocol::control::{QmpAccess, Session};

    use super::*;

    /// A supervisor that answers so, and what it was asked.
    fn line(answers: Vec<u8>) -> (Line, std::io::PipeReader) {
        let (asked, outgoing) = std::io::pipe().unwrap();
        let incoming = Incoming::of(io::Cursor::new(answers));
        let outgoing = Box::new(outgoing);
        (Line { incoming, outgoing, machine: "default/hello".into(), claimed_user: Some("ada".into()) }, asked)
    }

    fn read_line(from: std::io::PipeReader) -> String {
        let mut text = String::new();
        BufReader::new(from).read_line(&mut text).unwrap();
        text
    }

    #[test]
    fn a_request_says_who_asks_and_a_denial_is_a_refusal() {
        let denied = ControlReply::Denied { reason: "the console is taken".into() };
        let (mut line, asked) = line(wire::encode(&denied).unwrap());
        let error = line.open(ControlRequest::Qmp { access: QmpAccess::ReadOnly }).unwrap_err();
        assert_eq!(error.to_string(), "default/hello: the console is taken");
        assert_eq!(crate::exit::code_of(&error), REFUSED);
        assert!(read_line(asked).contains("ada"));
    }

    #[test]
    fn what_follows_the_answer_belongs_to_the_stream() {
        let mut answers = wire::encode(&ControlReply::Streaming).unwrap();
        answers.extend(b"RFB 003.008\n");
        let (mut line, _asked) = line(answers);
        line.open(ControlRequest::Vnc { session: Session::None }).unwrap();
        let mut greeting = String::new();
        line.incoming.read_to_string(&mut greeting).unwrap();
        assert_eq!(greeting, "RFB 003.008\n");
    }

    #[test]
    fn a_supervisor_that_is_silent_is_waited_for_as_long_as_its_timeout() {
        let (reader, _held_open) = std::io::pipe().unwrap();
        let mut incoming = Incoming::of(reader);
        incoming.set_patience(Some(Duration::from_millis(10)));
        assert_eq!(incoming.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn one_that_leaves_without_an_answer_is_an_error() {
        let (mut line, _asked) = line(Vec::new());
        let error = line.open(ControlRequest::Vnc { session: Session::None }).unwrap_err().to_string();
        assert!(error.contains("without an answer"), "{error}");
    }
}
