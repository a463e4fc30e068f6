//! A connection to the proxy: a unix socket, or where the standard library has none a port of this computer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection, both ends of which may be used at once.
#[derive(Debug)]
pub(super) enum Socket {
    /// In a directory of the user alone.
    #[cfg(unix)]
    Unix(UnixStream),
    /// Of 127.0.0.1.
    #[cfg_attr(unix, allow(dead_code, reason = "tests use it where there are unix sockets"))]
    Tcp(TcpStream),
}

impl Socket {
    /// The same connection.
    pub(super) fn again(&self) -> io::Result<Self> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
        }
    }

    /// How long one read may take; for ever without a limit.
    pub(super) fn limit_reads(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.set_read_timeout(limit),
            Self::Tcp(socket) => socket.set_read_timeout(limit),
        }
    }

    /// The same for writes.
    pub(super) fn limit_writes(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.set_write_timeout(limit),
            Self::Tcp(socket) => socket.set_write_timeout(limit),
        }
    }

    /// Ends it for both ends that use it.
    pub(super) fn end(&self) {
        // It may have ended.
        let _ = match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => socket.write(bytes),
            Self::Tcp(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
