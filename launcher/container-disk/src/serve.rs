//! Handing files out, until SIGTERM.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::handed::{MAX_ANSWER_BYTES, OPENED, REFUSED};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Opening};
use garboard_storage::source::{SourceError, container_disk};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

/// Why nothing is handed out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A path leads out of the image, or is none.
    #[error("`{path}` is not a path of a file in the image; {why}")]
    Path {
        /// As it was written.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A system call failed.
    #[error("could not {attempt}")]
    System {
        /// What was attempted.
        attempt: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

fn system(attempt: &str) -> impl FnOnce(nix::errno::Errno) -> ServeError {
    move |errno| ServeError::System { attempt: attempt.to_owned(), source: errno.into() }
}

/// A file and where it is handed out.
pub(crate) struct Offer {
    socket: PathBuf,
    /// `None`: the only file of `/disk`.
    file: Option<BeneathPath>,
}

impl Offer {
    /// Of two arguments of the command line.
    pub(crate) fn parse(socket: &str, file: &str) -> Result<Self, ServeError> {
        let wrong = |error: &dyn std::fmt::Display| ServeError::Path { path: file.to_owned(), why: error.to_string() };
        let file = (!file.is_empty()).then(|| BeneathPath::parse(file)).transpose().map_err(|error| wrong(&error))?;
        Ok(Self { socket: socket.into(), file })
    }
}

/// Hands out files below `root` to each client that connects, until SIGTERM or SIGINT: as the first process of a container it would
/// not be ended by them.
pub(crate) fn serve(root: &Path, offers: &[Offer]) -> Result<(), ServeError> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    ends.thread_block().map_err(system("block signals"))?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC).map_err(system("listen for signals"))?;
    let listeners: Vec<UnixListener> = offers.iter().map(listen).collect::<Result<_, _>>()?;
    loop {
        let mut watched = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        watched.extend(listeners.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(system("wait")(errno)),
        }
        let ready: Vec<bool> = watched.iter().map(|one| one.any() == Some(true)).collect();
        if ready[0] {
            return Ok(());
        }
        for ((listener, offer), _) in listeners.iter().zip(offers).zip(&ready[1..]).filter(|(_, ready)| **ready) {
            // A client that hung up meanwhile connects again.
            let _ = listener.accept().and_then(|(stream, _)| answer(&stream, &open(root, offer)));
        }
    }
}

fn listen(offer: &Offer) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::System { attempt: format!("listen at {}", offer.socket.display()), source };
    match std::fs::remove_file(&offer.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    UnixListener::bind(&offer.socket).map_err(failed)
}

/// As out of an unpacked image: no link is followed, and only a regular file is opened. What is in it is judged by who
/// asked.
fn open(root: &Path, offer: &Offer) -> Result<(String, OwnedFd), SourceError> {
    let root = Dir::open(root)?;
    let path = container_disk::find(&root, offer.file.as_ref())?;
    let opened = root.open_disk(&path, Opening::BASE)?;
    Ok((path.to_string(), opened.fd))
}

fn answer(stream: &UnixStream, found: &Result<(String, OwnedFd), SourceError>) -> io::Result<()> {
    let (kind, text, file) = match found {
        Ok((path, file)) => (OPENED, format!("/{path}"), Some(file)),
        Err(error) => (REFUSED, ErrorChain(error).to_string(), None),
    };
    let mut bytes = vec![kind];
    bytes.extend(text.bytes().take(MAX_ANSWER_BYTES - 1));
    let numbers: Vec<i32> = file.iter().map(|file| file.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights: &[ControlMessage<'_>] = if numbers.is_empty() { &[] } else { &rights };
    sendmsg::<UnixAddr>(stream.as_raw_fd(), &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{IoSliceMut, Read};

    use nix::sys::socket::recvmsg;

    use super::*;

    /// What comes out of a connection, and how many descriptors with it.
    fn ask(socket: &Path) -> (String, usize) {
        let mut stream = UnixStream::connect(socket).unwrap();
        let (mut bytes, mut control) = ([0; 512], nix::cmsg_space!([i32; 4]));
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let message =
            recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC);
        let message = message.unwrap();
        let (read, descriptors) = (message.bytes, message.cmsgs().unwrap().count());
        let mut text = bytes[..read].to_vec();
        stream.read_to_end(&mut text).unwrap();
        (String::from_utf8(text).unwrap(), descriptors)
    }

    #[test]
    fn files_are_handed_out_until_the_end() {
        let room = tempfile::tempdir().unwrap();
        let image = room.path().join("image");
        std::fs::create_dir_all(image.join("disk")).unwrap();
        std::fs::write(image.join("disk/alpine.img"), "disk").unwrap();
        std::fs::write(image.join("vmlinuz"), "kernel").unwrap();
        std::os::unix::fs::symlink("vmlinuz", image.join("link")).unwrap();
        let sockets: Vec<PathBuf> = (0..3).map(|index| room.path().join(format!("{index}.sock"))).collect();
        std::fs::write(&sockets[0], "left by an earlier one").unwrap();
        let socket = |index: usize| sockets[index].to_str().unwrap();
        let offers = [(0, ""), (1, "/vmlinuz"), (2, "link")].map(|(at, file)| Offer::parse(socket(at), file).unwrap());
        let serving = std::thread::spawn(move || serve(&image, &offers).is_ok());
        while !sockets.iter().all(|socket| UnixStream::connect(socket).is_ok()) {
            std::thread::yield_now();
        }
        assert_eq!(ask(&sockets[0]), ("o/disk/alpine.img".to_owned(), 1));
        assert_eq!(ask(&sockets[0]), ("o/disk/alpine.img".to_owned(), 1), "again");
        assert_eq!(ask(&sockets[1]), ("o/vmlinuz".to_owned(), 1));
        let (refused, descriptors) = ask(&sockets[2]);
        assert!(refused.starts_with('n') && refused.contains("symbolic link") && descriptors == 0, "{refused}");
        nix::sys::pthread::pthread_kill(std::os::unix::thread::JoinHandleExt::as_pthread_t(&serving), Signal::SIGTERM)
            .unwrap();
        assert!(serving.join().unwrap());
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        assert!(matches!(Offer::parse("/s", "../etc/shadow"), Err(ServeError::Path { .. })));
    }
}
