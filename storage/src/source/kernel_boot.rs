//! `kernelBoot.container`: kernel and initial RAM disk out of a container image, as descriptors.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::SourceError;
use crate::beneath::BeneathPath;
use crate::open::{Dir, OpenedDisk, Opening, open_disk};

/// Opens a kernel or initial RAM disk in an unpacked image, read-only; no symbolic links.
///
/// # Errors
/// [`SourceError`]: not there, not a regular file, or empty.
pub fn open(root: &Dir, path: &BeneathPath) -> Result<OpenedDisk, SourceError> {
    filled(root.open_disk(path, Opening::BASE)?, &root.path().join(path.as_path()))
}

/// Opens one from the image cache, or a file of the operator.
///
/// # Errors
/// As [`open`].
pub fn open_file(path: &Path) -> Result<OpenedDisk, SourceError> {
    filled(open_disk(path, Opening::BASE)?, path)
}

/// One that another process opened, read-only.
///
/// # Errors
/// As [`open`].
pub fn received(file: OwnedFd, shown: &Path) -> Result<OpenedDisk, SourceError> {
    filled(OpenedDisk::received(file, shown)?, shown)
}

fn filled(opened: OpenedDisk, shown: &Path) -> Result<OpenedDisk, SourceError> {
    if opened.size_bytes == 0 {
        return Err(SourceError::EmptyKernel { path: shown.to_path_buf() });
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::OpenError;

    #[test]
    fn a_kernel_is_a_filled_file_inside_the_image() {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("boot")).unwrap();
        std::fs::write(room.path().join("boot/vmlinuz"), "kernel").unwrap();
        std::fs::write(room.path().join("boot/initrd"), "").unwrap();
        std::os::unix::fs::symlink("boot/vmlinuz", room.path().join("vmlinuz")).unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let at = |path: &str| open(&dir, &BeneathPath::parse(path).unwrap());
        assert_eq!(at("/boot/vmlinuz").unwrap().size_bytes, 6);
        assert!(matches!(at("/boot/initrd"), Err(SourceError::EmptyKernel { .. })));
        assert!(matches!(at("/vmlinuz"), Err(SourceError::Open(OpenError::SymbolicLink { .. }))));
        assert!(matches!(at("/boot"), Err(SourceError::Open(OpenError::WrongKind { .. }))));
    }
}
