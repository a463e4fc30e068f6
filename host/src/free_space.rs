//! Room on the file systems where machines are kept.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::root::HostRoot;

/// The file system a directory is on, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// The directory asked about.
    pub directory: PathBuf,
    /// Bytes a user may still write.
    pub free_bytes: u64,
    /// It may not be written.
    pub read_only: bool,
    /// We may make or use the directory.
    pub writable: bool,
}

impl FreeSpace {
    /// Looks at the file system of `directory`; of its nearest parent that exists, if it does not.
    pub fn of(root: &HostRoot, directory: &Path) -> Option<Self> {
        let real = root.path(directory);
        let existing = real.ancestors().find(|path| path.exists())?;
        let found = statvfs(existing).ok()?;
        Some(Self {
            directory: directory.to_path_buf(),
            free_bytes: found.blocks_available().saturating_mul(found.fragment_size()),
            read_only: found.flags().contains(FsFlags::ST_RDONLY),
            writable: nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK).is_ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_has_the_room_of_its_parent() {
        let directory = tempfile::tempdir().unwrap();
        let root = HostRoot::real();
        let here = FreeSpace::of(&root, directory.path()).unwrap();
        let below = FreeSpace::of(&root, &directory.path().join("a/b/c")).unwrap();
        assert!(here.free_bytes > 0 && !here.read_only && here.writable);
        assert!(below.writable);
        assert_eq!(FreeSpace::of(&root, Path::new("/proc/self")).unwrap().free_bytes, 0);
    }
}
