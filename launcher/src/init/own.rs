//! The directory that PID 1 and the supervisor share, held by a descriptor.
//!
//! On a bare host it is not in the root that PID 1 builds, so QEMU, which lives in the same one, has no path to it. In a pod
//! it is in the container: Landlock keeps QEMU from its files, not from connecting to its sockets, where PID 1's secret does.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::InitError;
use crate::sys::descriptors;

/// An open directory.
pub(super) struct OwnDirectory {
    descriptor: OwnedFd,
}

impl OwnDirectory {
    /// Opens it, before the root is exchanged and at a number that QEMU's descriptors do not take.
    ///
    /// # Errors
    /// The file system's error.
    pub(super) fn open(path: &Path) -> Result<Self, InitError> {
        let failed = |error: std::io::Error| InitError::system(format!("open {}", path.display()), error);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let descriptor = descriptors::keep_clear(opened).map_err(failed)?;
        Ok(Self { descriptor })
    }

    /// The path of a file in it. It works as long as `/proc` is there, whatever became of the directory's own path.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.descriptor.as_raw_fd().to_string()).join(name)
    }
}

impl AsFd for OwnDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_although_the_directory_has_another_name() {
        let parent = tempfile::tempdir().unwrap();
        let (before, after) = (parent.path().join("init"), parent.path().join("elsewhere"));
        std::fs::create_dir(&before).unwrap();
        let own = OwnDirectory::open(&before).unwrap();
        std::fs::rename(&before, &after).unwrap();
        std::fs::write(own.file("exit.json"), "{}").unwrap();
        assert_eq!(std::fs::read_to_string(after.join("exit.json")).unwrap(), "{}");
    }
}
