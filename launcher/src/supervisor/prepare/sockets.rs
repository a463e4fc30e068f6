//! Listening sockets that QEMU takes over as descriptors, and the ones the supervisor keeps.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use garboard_protocol::paths::MAX_SOCKET_PATH_BYTES;

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel would refuse it.
    #[error("the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes; use a shorter runtime directory")]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// It could not be bound.
    #[error("could not listen at {path}")]
    Bind {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It could not be connected to.
    #[error("could not connect to {path}")]
    Connect {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Listens at a path, replacing whatever an earlier process left there. Owner only: a bare host's other users
/// have no business on a monitor.
pub(crate) fn listen(directory: &Path, name: &str) -> Result<UnixListener, SocketError> {
    let path = directory.join(name);
    if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
        return Err(SocketError::TooLong { path });
    }
    bind(&path).map_err(|source| SocketError::Bind { path, source })
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A connection to a socket that QEMU will serve, which from then on has no name: no other process can connect.
pub(crate) fn connect_and_drop(directory: &Path, name: &str) -> Result<OwnedFd, SocketError> {
    let path = directory.join(name);
    let connected = UnixStream::connect(&path).and_then(|stream| fs::remove_file(&path).map(|()| stream.into()));
    connected.map_err(|source| SocketError::Connect { path, source })
}

/// As [`listen`], for the supervisor's own runtime.
pub(crate) fn listen_async(directory: &Path, name: &str) -> Result<tokio::net::UnixListener, SocketError> {
    let listener = listen(directory, name)?;
    listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::UnixListener::from_std(listener))
        .map_err(|source| SocketError::Bind { path: directory.join(name), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        drop(listen(directory.path(), "a.sock").unwrap());
        let again = listen(directory.path(), "a.sock").unwrap();
        assert!(std::os::unix::net::UnixStream::connect(directory.path().join("a.sock")).is_ok());
        drop(again);
    }

    #[test]
    fn a_socket_that_was_connected_to_has_no_name_left() {
        let directory = tempfile::tempdir().unwrap();
        let listener = listen(directory.path(), "m.sock").unwrap();
        let ours = UnixStream::from(connect_and_drop(directory.path(), "m.sock").unwrap());
        assert!(!directory.path().join("m.sock").exists());
        // What serves it finds the connection all the same.
        drop(listener.accept().unwrap());
        assert_eq!(std::io::Read::read(&mut &ours, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_path_the_kernel_would_cut_is_refused_by_name() {
        let long = PathBuf::from("/").join("x".repeat(120));
        assert!(matches!(listen(&long, "a"), Err(SocketError::TooLong { .. })));
    }
}
