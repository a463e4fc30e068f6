//! The task that owns a monitor's socket.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tracing::debug;

use super::{READ_SIZE, Router};
use crate::fd;
use crate::wire::LineSplitter;

/// A command ready to be written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: u64,
    /// The whole message, line feed included.
    pub(crate) line: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// For the transcript: the command, on whose behalf, its arguments.
    pub(crate) command: Cow<'static, str>,
    pub(crate) requester: Option<String>,
    pub(crate) arguments: Option<Box<RawValue>>,
}

/// Closes the router however the task ends: end of stream, error, or abort because the monitor was dropped.
struct CloseAtEnd(Arc<Router>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads and writes until the stream ends.
pub(super) async fn drive(
    stream: UnixStream,
    splitter: LineSplitter,
    queue: mpsc::Receiver<Outgoing>,
    router: Arc<Router>,
) {
    let closing = CloseAtEnd(Arc::clone(&router));
    // A write that fails does not end the task: QEMU's last output (its SHUTDOWN event) is still to be read.
    let ended = tokio::select! {
        ended = read_all(&stream, splitter, &router) => ended,
        () = async { write_all(&stream, queue, &router).await; std::future::pending().await } => Ok(()),
    };
    let reason = router.shutdown_reason().map_or_else(|| "no reason given".to_owned(), |reason| reason.to_string());
    match ended {
        Ok(()) => router.transcript.note("disconnected", &reason),
        Err(error) => router.transcript.note("disconnected", &format!("{error}; {reason}")),
    }
    drop(closing);
}

async fn read_all(stream: &UnixStream, mut splitter: LineSplitter, router: &Router) -> io::Result<()> {
    let mut chunk = [0; READ_SIZE];
    loop {
        while let Some(line) = splitter.next_line() {
            router.accept(line);
        }
        match read_some(stream, &mut chunk).await? {
            0 => return Ok(()),
            count => splitter.push(&chunk[..count]),
        }
    }
}

async fn write_all(stream: &UnixStream, mut queue: mpsc::Receiver<Outgoing>, router: &Router) {
    while let Some(Outgoing { id, line, descriptors, command, requester, arguments }) = queue.recv().await {
        let Some(span) = router.mark_sent(id) else {
            debug!(id, "command given up before it was sent");
            continue;
        };
        let arguments = arguments.as_ref().map_or("{}", |arguments| arguments.get());
        span.in_scope(|| router.transcript.command(&command, id, requester.as_deref(), arguments));
        if let Err(error) = fd::write_with_descriptors(stream, &line, &descriptors).await {
            debug!(id, %error, "could not write to QEMU");
            return;
        }
    }
}

/// Reads what is there, waiting for something to be. Zero means the end. Dropping the future loses nothing.
pub(crate) async fn read_some(stream: &UnixStream, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What a peer that is gone looks like when it left unread bytes behind.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
            done => return done,
        }
    }
}
