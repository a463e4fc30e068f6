//! Watches for a socket that was created again: the kubelet's after it started again, or the agent's by another agent.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

/// A directory whose files come and go.
pub(crate) struct Directory {
    changes: watch::Receiver<u64>,
}

impl Directory {
    /// Watches from now on.
    pub(crate) fn watch(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        let kinds = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVE;
        inotify.add_watch(path, kinds | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_ONLYDIR)?;
        let (sender, changes) = watch::channel(0);
        // A thread of its own: tokio waits for a foreign descriptor only in `unsafe` code. It sleeps until the next change
        // and ends then if its receiver is gone, so that at most one is left for each start of the kubelet.
        std::thread::Builder::new().name("directory-watch".to_owned()).spawn(move || {
            loop {
                match inotify.read_events() {
                    Ok(_) if sender.is_closed() => return,
                    Ok(_) => sender.send_modify(|count| *count += 1),
                    Err(Errno::EINTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self { changes })
    }

    /// Waits until something came or went since the last time.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        self.changes.changed().await.map_err(|_| io::Error::other("the watch of the directory has ended"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_file_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let mut directory = Directory::watch(place.path()).unwrap();
        std::fs::write(place.path().join("kubelet.sock"), "").unwrap();
        directory.changed().await.unwrap();
        std::fs::remove_file(place.path().join("kubelet.sock")).unwrap();
        directory.changed().await.unwrap();
    }
}
