//! Lines with descriptors over an async unix socket: the launch socket and the agent socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use garboard_protocol::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::sys::scm;

/// Why a conversation broke.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The socket failed.
    #[error("the connection failed")]
    Socket(#[from] io::Error),
    /// The peer hung up.
    #[error("the peer hung up")]
    Closed,
    /// The peer does not speak our protocol.
    #[error("the peer was not understood")]
    Wire(#[from] WireError),
    /// Fewer descriptors came than the line announced.
    #[error("the peer announced {announced} descriptors and sent {arrived}")]
    MissingDescriptors {
        /// What the line said.
        announced: usize,
        /// What came.
        arrived: usize,
    },
}

/// One connection.
pub struct LineSocket {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl LineSocket {
    /// Wraps a connected socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), descriptors: Vec::new() }
    }

    /// Sends one message with its descriptors.
    ///
    /// # Errors
    /// [`LineError::Socket`] if the peer is gone.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), LineError> {
        let line = wire::encode(message).map_err(io::Error::from)?;
        self.stream
            .async_io(Interest::WRITABLE, || scm::send_all(self.stream.as_fd(), &line, descriptors))
            .await
            .map_err(LineError::from)
    }

    /// Waits for the next message. Cancel-safe: what was read stays in the buffer.
    ///
    /// # Errors
    /// [`LineError`].
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, LineError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(wire::decode(&line)?);
            }
            if self.bytes.len() > wire::MAX_LINE_BYTES {
                return Err(WireError::TooLong.into());
            }
            let (stream, bytes, descriptors) = (&self.stream, &mut self.bytes, &mut self.descriptors);
            let read = stream.async_io(Interest::READABLE, || scm::receive(stream.as_fd(), bytes, descriptors)).await?;
            if read == 0 {
                return Err(LineError::Closed);
            }
        }
    }

    /// Takes the first `count` descriptors that came with the lines read so far.
    ///
    /// # Errors
    /// [`LineError::MissingDescriptors`].
    pub fn take_descriptors(&mut self, count: usize) -> Result<Vec<OwnedFd>, LineError> {
        if self.descriptors.len() < count {
            return Err(LineError::MissingDescriptors { announced: count, arrived: self.descriptors.len() });
        }
        Ok(self.descriptors.drain(..count).collect())
    }
}
