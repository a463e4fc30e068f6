//! Descriptors over unix sockets (`SCM_RIGHTS`, `unix(7)`), together with the bytes that name them.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use garboard_protocol::wire::MAX_DESCRIPTORS_PER_MESSAGE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

/// Bytes read at a time. Lines are longer than this only for machines with many disks.
const CHUNK_BYTES: usize = 16 * 1024;

/// How long a peer may leave its socket full, milliseconds.
const WRITE_PATIENCE_MS: u16 = 5000;

/// Sends all of `bytes` and all of `descriptors`. Waits a few seconds for a full socket; more than
/// [`MAX_DESCRIPTORS_PER_MESSAGE`] are spread over several messages, each with a part of the bytes.
///
/// # Errors
/// The error of `sendmsg(2)`; `InvalidInput` if there are more messages needed than bytes to carry them.
pub fn send_all(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut outgoing = Outgoing::new(bytes, descriptors);
    loop {
        match outgoing.send_rest(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_writable(socket)?,
            other => return other,
        }
    }
}

/// A line on its way, with its descriptors. A socket that is full leaves it half-sent, to be gone on with.
pub struct Outgoing<'a> {
    bytes: &'a [u8],
    descriptors: Vec<i32>,
}

impl<'a> Outgoing<'a> {
    /// Nothing is sent yet.
    pub fn new(bytes: &'a [u8], descriptors: &'a [BorrowedFd<'_>]) -> Self {
        Self { bytes, descriptors: descriptors.iter().map(AsRawFd::as_raw_fd).collect() }
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// The error of `sendmsg(2)`. `WouldBlock`: the socket is full, and this can be called again.
    pub fn send_rest(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.bytes.is_empty() {
            let count = self.descriptors.len().min(MAX_DESCRIPTORS_PER_MESSAGE);
            // Messages that follow need a byte too, each.
            let part = if self.descriptors.len() > count { 1 } else { self.bytes.len() };
            let sent = send_part(socket, &self.bytes[..part], &self.descriptors[..count])?;
            self.bytes = &self.bytes[sent..];
            self.descriptors.drain(..count);
        }
        let unsent = || io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than bytes to carry them");
        if self.descriptors.is_empty() { Ok(()) } else { Err(unsent()) }
    }
}

fn send_part(socket: BorrowedFd<'_>, bytes: &[u8], numbers: &[i32]) -> io::Result<usize> {
    let rights = [ControlMessage::ScmRights(numbers)];
    let control: &[ControlMessage<'_>] = if numbers.is_empty() { &[] } else { &rights };
    loop {
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

fn wait_writable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut watched = [PollFd::new(socket, PollFlags::POLLOUT)];
    match poll(&mut watched, PollTimeout::from(WRITE_PATIENCE_MS)) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")),
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads what is there, once. Appends bytes and descriptors (close-on-exec) to the two buffers.
///
/// # Errors
/// The error of `recvmsg(2)`, `WouldBlock` included.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut chunk = [0_u8; CHUNK_BYTES];
    let mut control = nix::cmsg_space!([i32; MAX_DESCRIPTORS_PER_MESSAGE]);
    let mut slices = [IoSliceMut::new(&mut chunk)];
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            // SAFETY: the kernel has just installed these descriptors for this process and no other
            // has their numbers, so each is owned exactly once.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    let read = message.bytes;
    bytes.extend_from_slice(&chunk[..read]);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn many_descriptors_arrive_with_their_line() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many: Vec<BorrowedFd<'_>> = (0..300).map(|_| file.as_fd()).collect();
        send_all(here.as_fd(), b"hello world\n", &many).unwrap();
        drop(here);
        let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
        while receive(there.as_fd(), &mut bytes, &mut descriptors).unwrap() > 0 {}
        assert_eq!(bytes, b"hello world\n");
        assert_eq!(descriptors.len(), 300);
    }

    #[test]
    fn a_closed_socket_reads_zero() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        assert_eq!(receive(there.as_fd(), &mut Vec::new(), &mut Vec::new()).unwrap(), 0);
    }
}
