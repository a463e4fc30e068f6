//! Lines with descriptors over an async unix socket: the launch socket and the agent socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use garboard_protocol::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::sys::scm;

/// How long a peer may leave its socket full.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

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
    /// More descriptors came than anybody asked for.
    #[error("the peer sent more than {most} descriptors")]
    TooManyDescriptors {
        /// The most that are kept.
        most: usize,
    },
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
    /// The most descriptors that wait to be taken.
    most: usize,
}

impl LineSocket {
    /// Wraps a connected socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self::limited(stream, usize::MAX)
    }

    /// Wraps a connected socket whose peer may have at most so many descriptors waiting here.
    #[must_use]
    pub fn limited(stream: UnixStream, most: usize) -> Self {
        Self { stream, bytes: Vec::new(), descriptors: Vec::new(), most }
    }

    /// Sends one message with its descriptors.
    ///
    /// # Errors
    /// [`LineError::Socket`] if the peer is gone.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), LineError> {
        let line = wire::encode(message).map_err(io::Error::from)?;
        let sent =
            self.stream.async_io(Interest::WRITABLE, || scm::try_send_all(self.stream.as_fd(), &line, descriptors));
        match tokio::time::timeout(WRITE_PATIENCE, sent).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read").into()),
        }
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
            if self.descriptors.len() > self.most {
                return Err(LineError::TooManyDescriptors { most: self.most });
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
