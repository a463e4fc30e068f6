//! Lines with descriptors over an async unix socket: the launch socket and the agent socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use garboard_protocol::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use crate::scm;

/// How long a peer may leave its socket full.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Room that is kept for the lines to come, bytes.
const KEPT_BYTES: usize = 16 * 1024;

/// The next connection. One that could not be accepted is tried again after a while: out of descriptors, most likely, and
/// some come back as connections end.
pub async fn next_client(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Why a conversation broke.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The socket failed.
    #[error("the connection failed")]
    Socket(#[from] io::Error),
    /// The peer hung up.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer does not use our protocol.
    #[error("the peer's message could not be parsed")]
    Wire(#[from] WireError),
    /// More descriptors came than were requested.
    #[error("the peer sent more than {most} descriptors")]
    TooManyDescriptors {
        /// The most that are kept.
        most: usize,
    },
    /// Fewer descriptors came than the line announced.
    #[error("the peer announced {announced} descriptors and sent {arrived}")]
    MissingDescriptors {
        /// The content of the line.
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
    /// How many of the bytes are known to hold no newline.
    searched: usize,
    /// The most descriptors that wait to be taken.
    most: usize,
    /// The most bytes of a line.
    longest: usize,
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
        let (bytes, descriptors) = (Vec::new(), Vec::new());
        Self { stream, bytes, descriptors, searched: 0, most, longest: wire::MAX_LINE_BYTES }
    }

    /// Takes only lines of at most so many bytes.
    #[must_use]
    pub fn with_longest_line(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Sends one message with its descriptors.
    ///
    /// # Errors
    /// [`LineError::Socket`] if the peer is gone.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), LineError> {
        let line = wire::encode(message).map_err(io::Error::from)?;
        let mut outgoing = scm::Outgoing::new(&line, descriptors);
        let sent = self.stream.async_io(Interest::WRITABLE, || outgoing.send_rest(self.stream.as_fd()));
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
            // From where the last search ended: a peer that sends byte by byte must not have all of it searched each time.
            let fresh = self.bytes.get(self.searched..).unwrap_or_default();
            if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=self.searched + end).collect();
                self.searched = 0;
                // What grew for one long line is given back.
                self.bytes.shrink_to(KEPT_BYTES);
                return if line.len() > self.longest {
                    Err(WireError::TooLong.into())
                } else {
                    Ok(wire::decode(&line)?)
                };
            }
            self.searched = self.bytes.len();
            if self.bytes.len() > self.longest {
                return Err(WireError::TooLong.into());
            }
            let (stream, bytes, descriptors) = (&self.stream, &mut self.bytes, &mut self.descriptors);
            let read = stream.async_io(Interest::READABLE, || scm::receive(stream.as_fd(), bytes, descriptors)).await?;
            if read == 0 {
                return Err(LineError::Closed);
            }
            self.descriptors.iter().for_each(close_at_once);
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

    /// Hangs up on a peer that is not trusted, without being kept waiting by what it sent.
    ///
    /// Closing the last descriptor of a TCP socket with `SO_LINGER` may wait as long as that option allows (socket(7)), and what
    /// lies unread in a socket is closed with it: so nothing more is let in, and what is there is taken out first.
    pub fn put_away(mut self) {
        // Fails only if the peer is gone, and then nothing more comes either.
        let _ = nix::sys::socket::shutdown(self.stream.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        loop {
            // First those that came with what was read already, and was refused.
            self.descriptors.iter().for_each(close_at_once);
            self.descriptors.clear();
            self.bytes.clear();
            let Ok(1..) = scm::receive(self.stream.as_fd(), &mut self.bytes, &mut self.descriptors) else { return };
        }
    }
}

/// A peer's descriptor that is a socket is to be closed without waiting. Others have no such setting.
fn close_at_once(descriptor: &OwnedFd) {
    let at_once = nix::libc::linger { l_onoff: 0, l_linger: 0 };
    let _ = nix::sys::socket::setsockopt(descriptor, nix::sys::socket::sockopt::Linger, &at_once);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    use std::time::Instant;

    #[tokio::test]
    async fn a_connection_that_cannot_be_accepted_is_not_the_last() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("socket");
        // Until it listens every accept(2) fails, as without a free descriptor.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let bare = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(bare.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let again = bare.try_clone().unwrap();
        let listener = UnixListener::from_std(bare.into()).unwrap();
        let accepting = tokio::spawn(async move { next_client(&listener).await });
        tokio::time::sleep(ACCEPT_PAUSE * 2).await;
        assert!(!accepting.is_finished());
        listen(&again, Backlog::new(8).unwrap()).unwrap();
        let _client = UnixStream::connect(&path).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), accepting).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_line_that_comes_byte_by_byte_is_not_searched_again_and_again() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(there);
        let bytes = wire::MAX_LINE_BYTES;
        let began = Instant::now();
        let feed = async {
            let text = vec![b' '; 512];
            for _ in 0..bytes / text.len() - 1 {
                while here.try_write(&text).is_err() {
                    here.writable().await.unwrap();
                }
            }
            while here.try_write(b"7\n8\n").is_err() {
                here.writable().await.unwrap();
            }
        };
        let read = async { (socket.receive::<u8>().await.unwrap(), socket.receive::<u8>().await.unwrap()) };
        assert_eq!(tokio::join!(feed, read).1, (7, 8));
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_line_has_a_longest_length() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::limited(there, 0).with_longest_line(8);
        here.try_write(b"[1, 2, 3, 4]\n").unwrap();
        let error = socket.receive::<Vec<u8>>().await.unwrap_err();
        assert!(matches!(error, LineError::Wire(WireError::TooLong)), "{error:?}");
    }

    /// A TCP socket that is closed only when its data is taken, which it never is.
    fn stuck_socket() -> (std::net::TcpStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let lingering = nix::libc::linger { l_onoff: 1, l_linger: 300 };
        nix::sys::socket::setsockopt(&here, nix::sys::socket::sockopt::Linger, &lingering).unwrap();
        here.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &here, &[0; 65536]).is_ok() {}
        (here, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn what_came_with_a_request_that_was_refused_does_not_delay_the_close() {
        let (here, there) = UnixStream::pair().unwrap();
        let (stuck, _peer) = stuck_socket();
        scm::send_all(here.as_fd(), b"7\n", &[stuck.as_fd()]).unwrap();
        drop(stuck);
        let mut socket = LineSocket::limited(there, 1);
        assert_eq!(socket.receive::<u8>().await.unwrap(), 7);
        let began = Instant::now();
        socket.put_away();
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }
}
