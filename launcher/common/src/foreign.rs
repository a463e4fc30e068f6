//! Files and sockets in directories that a machine's user writes to. The reader is often root, and a machine whose QEMU or
//! supervisor has been taken over may put anything at a name: a link to `/etc/shadow`, a pipe that never ends, a socket of
//! another user. So no link is followed, the kind is looked at before anything is opened, and sizes are bounded.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Links, OpenError};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

/// Reads a regular file of at most so many bytes; `None` if it is not there.
///
/// # Errors
/// [`OpenError`]: what is there is no such file.
pub fn read(directory: &Path, name: &str, most_bytes: u64) -> Result<Option<Vec<u8>>, OpenError> {
    let Some(name) = BeneathPath::parse(name).ok() else { return Ok(None) };
    there(Dir::open(directory).and_then(|directory| directory.read_file(&name, Links::Refused, most_bytes)))
}

/// Opens a regular file for reading; `None` if it is not there.
///
/// # Errors
/// [`OpenError`]: what is there is no regular file.
pub fn open_file(directory: &Path, name: &str) -> Result<Option<File>, OpenError> {
    let Some(name) = BeneathPath::parse(name).ok() else { return Ok(None) };
    there(Dir::open(directory).and_then(|directory| directory.open_file(&name, Links::Refused)))
}

fn there<T>(found: Result<T, OpenError>) -> Result<Option<T>, OpenError> {
    match found {
        Err(OpenError::Missing { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Connects to a socket that the owner of the directory made there.
///
/// # Errors
/// The kernel's error; `InvalidInput` for a link, another kind of file, or the socket of another user.
pub fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(directory, flags | OFlag::O_DIRECTORY, Mode::empty())?;
    let socket = openat(&directory, name, flags, Mode::empty())?;
    let (parent, found) = (fstat(&directory)?, fstat(&socket)?);
    let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
    if kind != SFlag::S_IFSOCK || found.st_uid != parent.st_uid {
        let text = format!("{name} is not a socket of the machine's own user");
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    connect_to(&socket)
}

/// By the descriptor: a name could have been exchanged meanwhile.
fn connect_to(socket: &OwnedFd) -> io::Result<UnixStream> {
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_pipes_and_long_files_are_not_read() {
        let room = tempfile::tempdir().unwrap();
        let secret = room.path().join("shadow");
        std::fs::write(&secret, "root:*").unwrap();
        symlink(&secret, room.path().join("link.json")).unwrap();
        symlink("/dev/zero", room.path().join("endless.json")).unwrap();
        nix::unistd::mkfifo(&room.path().join("pipe.json"), Mode::S_IRWXU).unwrap();
        for name in ["link.json", "endless.json", "pipe.json", "../shadow"] {
            assert!(!matches!(read(room.path(), name, 1000), Ok(Some(_))), "{name}");
            assert!(!matches!(open_file(room.path(), name), Ok(Some(_))), "{name}");
        }
        assert!(matches!(read(room.path(), "shadow", 3), Err(OpenError::TooLarge { .. })));
        assert_eq!(read(room.path(), "shadow", 6).unwrap().unwrap(), b"root:*");
        assert!(read(room.path(), "missing", 6).unwrap().is_none());
        assert!(read(&room.path().join("gone"), "missing", 6).unwrap().is_none());
    }

    #[test]
    fn a_link_to_another_socket_is_not_connected_to() {
        let room = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(room.path().join("own.sock")).unwrap();
        symlink(room.path().join("own.sock"), room.path().join("control.sock")).unwrap();
        assert_eq!(connect(room.path(), "control.sock").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(connect(room.path(), "own.sock").is_ok());
        assert_eq!(connect(room.path(), "gone.sock").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
