//! How users' commands reach a supervisor in a pod: `kubectl exec POD -c launcher -- garboard-launcher --connect`.
//!
//! The image has no shell and no `socat`, and the control socket is in a volume of the pod; so this program itself passes
//! bytes between its standard input and output and the socket, and understands none of them. What may be done is decided
//! where it always is, by the supervisor. `--show` prints one of the files that make up the machine's record.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use garboard_protocol::paths::{self, Layout};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A supervisor that was just started, or started again, needs a moment until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts, milliseconds.
const PAUSE_MS: u8 = 50;
const CHUNK_BYTES: usize = 16 * 1024;

/// Why the relay could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The socket has no listener.
    #[error("the supervisor does not answer at {socket}")]
    Unreachable {
        /// The control socket.
        socket: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file that is not part of the record.
    #[error("unknown file `{name}`; expected {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file is not there (yet).
    #[error("this run has no {name} yet")]
    Missing {
        /// The file.
        name: String,
    },
    /// The bytes could not be passed on.
    #[error("could not {action}")]
    Stream {
        /// What was being attempted.
        action: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

fn while_trying(action: &'static str) -> impl FnOnce(io::Error) -> RelayError {
    move |source| RelayError::Stream { action, source }
}

/// What may be shown. Sockets are not for reading, and the variables of the firmware are the guest's secrets.
#[must_use]
pub fn shown() -> [String; 9] {
    let record = [paths::VMI, paths::FACTS, paths::OPTIONS, paths::STORED, paths::PLAN, paths::TRANSCRIPT];
    let [vmi, facts, options, stored, plan, transcript] = record.map(str::to_owned);
    let (qemu, exit) = (paths::QEMU_LOG.to_owned(), paths::EXIT.to_owned());
    [vmi, facts, options, stored, plan, transcript, qemu, exit, paths::serial_log(0)]
}

/// Prints a file of the record.
///
/// # Errors
/// [`RelayError`] if it is none, not there, or standard output is closed.
pub fn show(layout: &Layout, name: &str) -> Result<(), RelayError> {
    copy_shown(layout, name, &mut io::stdout().lock())
}

fn copy_shown(layout: &Layout, name: &str, out: &mut impl Write) -> Result<(), RelayError> {
    if !shown().iter().any(|known| known == name) {
        return Err(RelayError::Unknown { name: name.to_owned(), known: shown().join(", ") });
    }
    let mut file = match File::open(layout.directory_of(name).join(name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(RelayError::Missing { name: name.to_owned() });
        }
        other => other.map_err(while_trying("open the file"))?,
    };
    io::copy(&mut file, out).and_then(|_| out.flush()).map_err(while_trying("write the file to standard output"))
}

/// Passes bytes between standard input and output and the control socket until the supervisor closes the connection or the
/// reader is gone.
///
/// # Errors
/// [`RelayError`] if there is no listener or the bytes cannot be written.
pub fn connect(layout: &Layout) -> Result<(), RelayError> {
    let stream = reach(&layout.supervisor().join(paths::CONTROL_SOCKET))?;
    let typed = stream.try_clone().map_err(while_trying("share the connection"))?;
    // A thread for one direction, so that a full pipe in the other cannot stop it. It ends with the process.
    std::thread::spawn(move || send_typed(&typed));
    receive(&stream)
}

fn reach(socket: &Path) -> Result<UnixStream, RelayError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if Instant::now() < deadline => {
                let _ = poll(&mut [], PollTimeout::from(PAUSE_MS));
            }
            Err(source) => return Err(RelayError::Unreachable { socket: socket.to_owned(), source }),
        }
    }
}

fn send_typed(mut stream: &UnixStream) {
    // Either end may be gone; then the other direction notices as well.
    let _ = io::copy(&mut io::stdin().lock(), &mut stream);
    // A runtime closes our input when the client is gone, and keeps our output open: this is the only sign there is. A
    // client that has nothing more to send therefore keeps its end open for as long as it listens.
    let _ = stream.shutdown(Shutdown::Both);
}

fn receive(mut stream: &UnixStream) -> Result<(), RelayError> {
    let mut out = io::stdout().lock();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if reader_is_gone(stream, &out)? {
            return Ok(());
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let passed = out.write_all(&chunk[..count]).and_then(|()| out.flush());
                passed.map_err(while_trying("write to standard output"))?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(while_trying("read from the supervisor")(error)),
        }
    }
}

/// Waits for the supervisor's next bytes. A viewer whose window was closed shows as a broken pipe: waiting for the guest to
/// print something before we notice would leave a console occupied.
fn reader_is_gone(stream: &UnixStream, out: &io::StdoutLock<'_>) -> Result<bool, RelayError> {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::POLLIN), PollFd::new(out.as_fd(), PollFlags::empty())];
    match poll(&mut watched, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(errno) => return Err(while_trying("wait for the supervisor")(errno.into())),
    }
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    Ok(watched[1].revents().is_some_and(|flags| flags.intersects(gone)))
}

#[cfg(test)]
mod tests {
    use garboard_protocol::part::RecordPart;

    use super::*;

    #[test]
    fn only_the_record_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        std::fs::create_dir(layout.supervisor()).unwrap();
        std::fs::write(layout.supervisor().join(paths::PLAN), b"{\"argv\":[]}").unwrap();
        let mut out = Vec::new();
        copy_shown(&layout, paths::PLAN, &mut out).unwrap();
        assert_eq!(out, b"{\"argv\":[]}");
        let error = copy_shown(&layout, paths::FACTS, &mut out).unwrap_err();
        assert!(matches!(error, RelayError::Missing { .. }), "{error}");
        for name in ["../../etc/passwd", "control.sock", "", "journal.json", "launch.secret"] {
            let error = copy_shown(&layout, name, &mut out).unwrap_err();
            assert!(error.to_string().contains("qmp.jsonl"), "{error}");
        }
    }

    /// Where a supervisor is too old for its API, a refusal names this way.
    #[test]
    fn each_part_of_the_api_is_shown() {
        for part in RecordPart::ALL {
            assert!(shown().contains(&part.file()), "{part:?}");
        }
    }
}
