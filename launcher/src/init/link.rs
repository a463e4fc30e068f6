//! PID 1's side of the launch socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use garboard_agent::scm;
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_protocol::wire;

use super::InitError;

use crate::sys::descriptors;

/// A connection to the supervisor. Reading never blocks, writing may for a moment.
pub(super) struct Link {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// What [`Link::receive`] found.
pub(super) enum Received {
    /// A whole message; its descriptors are fetched with [`Link::take_descriptors`].
    Message(ToInit),
    /// Nothing more for now.
    Nothing,
    /// The supervisor is gone.
    Closed,
}

impl Link {
    /// Connects; `None` when there is no listener yet.
    ///
    /// # Errors
    /// When the connection cannot be used: trying again would not help.
    pub(super) fn connect(socket: &Path) -> Result<Option<Self>, InitError> {
        let Ok(stream) = UnixStream::connect(socket) else { return Ok(None) };
        let doing =
            "keep the supervisor's socket clear of QEMU's descriptors (more than 1000 open files must be allowed)";
        let stream = descriptors::keep_clear(stream.into()).map_err(|error| InitError::system(doing, error))?;
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(true).map_err(|error| InitError::system("prepare the supervisor's socket", error))?;
        Ok(Some(Self { stream, bytes: Vec::new(), descriptors: Vec::new() }))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn send(&mut self, message: &FromInit) -> io::Result<()> {
        let line = wire::encode(message)?;
        scm::send_all(self.stream.as_fd(), &line, &[])
    }

    pub(super) fn receive(&mut self) -> Result<Received, InitError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let message = wire::decode(&line).map_err(|source| InitError::Protocol { source })?;
                return Ok(Received::Message(message));
            }
            if self.bytes.len() > wire::MAX_LINE_BYTES {
                return Err(InitError::Protocol { source: wire::WireError::TooLong });
            }
            match scm::receive(self.stream.as_fd(), &mut self.bytes, &mut self.descriptors) {
                Ok(0) => return Ok(Received::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(Received::Closed),
            }
        }
    }

    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }
}
