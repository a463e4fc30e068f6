//! The agent's socket: its name for launchers, and what is behind it.
//!
//! While one pod of the DaemonSet goes and the next one comes, two agents of a node may live for a moment, and the one that goes
//! may be the last to bind. What it leaves refuses every connection, and launchers would ask there for ever. So an agent looks
//! whether the name is still its own, and takes it again.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use crate::device::watch::Directory;

/// How long another agent has the name before it is taken again: two that live must not do nothing else.
const TURN: Duration = Duration::from_secs(1);

/// A socket that listens at a path.
pub struct AgentSocket {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of its file.
    file: (u64, u64),
    directory: Directory,
}

impl AgentSocket {
    /// Listens at a path, for every process: whether a caller may ask is decided when it asks. A socket that an earlier agent left is replaced
    /// in one step, so that there always is one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen(path: &Path) -> io::Result<Self> {
        // Before it has the name, which another agent may take at once.
        let directory = Directory::watch(path.parent().unwrap_or(Path::new("/")))?;
        let (listener, file) = bind(path)?;
        Ok(Self { path: path.to_owned(), listener, file, directory })
    }

    /// The next connection.
    ///
    /// # Errors
    /// The kernel's error.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => return accepted.map(|(stream, _)| stream),
                changed = self.directory.changed() => changed?,
            }
            self.keep().await?;
        }
    }

    /// Takes the name again, if another agent has it.
    async fn keep(&mut self) -> io::Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        tokio::time::sleep(TURN).await;
        if !self.is_ours() {
            tracing::warn!(socket = %self.path.display(), "the socket was replaced by another process; it is created again");
            (self.listener, self.file) = bind(&self.path)?;
        }
        Ok(())
    }

    fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|file| file == self.file)
    }
}

fn bind(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    // Another agent may be doing the same.
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, Permissions::from_mode(0o666))?;
    let file = identity(&fresh)?;
    std::fs::rename(&fresh, path)?;
    Ok((listener, file))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_accepted_at(path: &Path, mut socket: AgentSocket) -> bool {
        let accepting = tokio::spawn(async move { socket.accept().await.map(drop) });
        let connected = async {
            while UnixStream::connect(path).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { (connected.await, accepting.await) };
        tokio::time::timeout(Duration::from_secs(60), both).await.is_ok_and(|(_, accepted)| accepted.unwrap().is_ok())
    }

    #[tokio::test]
    async fn the_name_of_an_agent_that_goes_is_taken_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sock");
        let stays = AgentSocket::listen(&path).unwrap();
        drop(AgentSocket::listen(&path).unwrap());
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(is_accepted_at(&path, stays).await);
    }

    #[tokio::test]
    async fn a_name_that_was_removed_is_taken_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sock");
        let stays = AgentSocket::listen(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(is_accepted_at(&path, stays).await);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }
}
