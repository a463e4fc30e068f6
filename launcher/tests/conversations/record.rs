//! A conversation, line by line, and the sockets on which it is recorded.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use garboard_agent::scm;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line that was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// On which socket.
    pub socket: Socket,
    /// On which connection: each has a number of its own.
    pub connection: u32,
    /// By whom.
    pub from: End,
    /// What.
    pub message: Value,
    /// How many descriptors came with it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub descriptors: usize,
}

fn is_none(descriptors: &usize) -> bool {
    *descriptors == 0
}

/// The sockets of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Socket {
    Launch,
    Agent,
    Control,
    Probe,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum End {
    Init,
    Supervisor,
    Agent,
    Client,
}

/// What was sent so far.
#[derive(Clone, Default)]
pub(crate) struct Record {
    lines: Arc<Mutex<Vec<Line>>>,
    connections: Arc<AtomicU32>,
}

impl Record {
    pub(crate) fn add(&self, line: Line) {
        self.lines.lock().unwrap().push(line);
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    /// The number of another connection.
    fn next_connection(&self) -> u32 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// One end of a connection, which writes down what is sent on it. For ends that the test plays itself.
pub(crate) struct Played {
    stream: UnixStream,
    record: Record,
    socket: Socket,
    connection: u32,
    /// Who is played, and who is at the other end.
    ends: (End, End),
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Played {
    pub(crate) fn new(stream: UnixStream, record: &Record, socket: Socket, ends: (End, End)) -> Self {
        let (record, connection) = (record.clone(), record.next_connection());
        Self { stream, record, socket, connection, ends, bytes: Vec::new(), descriptors: Vec::new() }
    }

    /// Sends a line, and descriptors with it.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[OwnedFd]) -> io::Result<()> {
        let message = serde_json::to_value(message)?;
        self.note(self.ends.0, &message, descriptors.len());
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        scm::send_all(self.stream.as_fd(), format!("{message}\n").as_bytes(), &borrowed)
    }

    /// The next line of the other end; nothing once it has hung up.
    pub(crate) fn receive(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let message = serde_json::from_slice(&line).unwrap();
                self.note(self.ends.1, &message, self.descriptors.len());
                self.descriptors.clear();
                return Some(message);
            }
            let read = scm::receive(self.stream.as_fd(), &mut self.bytes, &mut self.descriptors);
            read.ok().filter(|read| *read > 0)?;
        }
    }

    fn note(&self, from: End, message: &Value, descriptors: usize) {
        let (socket, connection, message) = (self.socket, self.connection, message.clone());
        self.record.add(Line { socket, connection, from, message, descriptors });
    }
}

/// Listens at a path and passes what comes on to another socket, and back. A peer is sent away while nothing listens there.
pub(crate) fn relay(at: &Path, upstream: PathBuf, record: &Record, socket: Socket, from: End) {
    let (listener, record) = (UnixListener::bind(at).unwrap(), record.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(near), Ok(far)) = (stream, UnixStream::connect(&upstream)) else { continue };
            let connection = record.next_connection();
            for (reader, writer, from) in [(&near, &far, from), (&far, &near, End::Supervisor)] {
                let (reader, writer) = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
                let line = Line { socket, connection, from, message: Value::Null, descriptors: 0 };
                let record = record.clone();
                std::thread::spawn(move || pass_on(&reader, &writer, &record, line));
            }
        }
    });
}

/// Until one of them hangs up. What was sent is written down before it is passed on: the answer comes after it.
fn pass_on(reader: &UnixStream, writer: &UnixStream, record: &Record, mut line: Line) {
    let (mut text, mut bytes, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
    while let Ok(1..) = scm::receive(reader.as_fd(), &mut bytes, &mut descriptors) {
        line.descriptors += descriptors.len();
        text.extend_from_slice(&bytes);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            line.message = serde_json::from_slice(&text.drain(..=end).collect::<Vec<u8>>()).unwrap();
            record.add(line.clone());
            line.descriptors = 0;
        }
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if scm::send_all(writer.as_fd(), &bytes, &borrowed).is_err() {
            break;
        }
        bytes.clear();
        descriptors.clear();
    }
    for stream in [reader, writer] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
