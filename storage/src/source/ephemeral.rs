//! Overlays: the guest writes to a fresh qcow2, the image below stays as it is. For containerDisks and `ephemeral`.

use super::{Disk, Layered, Placement, SourceError, new_qcow2};
use crate::open::{Direct, DiskAccess};

/// Puts a fresh overlay over an image.
///
/// # Errors
/// [`SourceError`]: no space. A base open for writing is refused, because no process may write below an overlay.
pub fn over(base: Disk, placement: Placement<'_>, direct: Direct) -> Result<Layered, SourceError> {
    if base.opened.access == DiskAccess::ReadWrite {
        let source = std::io::Error::from_raw_os_error(nix::libc::EBADF);
        return Err(SourceError::Open(crate::open::OpenError::Io {
            path: placement.shown(),
            attempt: "use a writable image as the base of",
            source,
        }));
    }
    let overlay = new_qcow2(placement, base.facts.virtual_bytes, direct)?;
    Ok(Layered { overlay, base })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Dir;
    use crate::source::{container_disk, pvc};

    #[test]
    fn an_overlay_has_the_size_of_its_base() {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("disk.img"), vec![1; 1_000_000]).unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let base = container_disk::open_file(&room.path().join("disk.img"), Direct::Off).unwrap();
        let layered = over(base, Placement::Nameless { dir: &dir }, Direct::Off).unwrap();
        assert_eq!(layered.overlay.facts.virtual_bytes, 1_000_000_u64.next_multiple_of(512));
        assert_eq!(layered.base.opened.access, DiskAccess::ReadOnly);
        assert_eq!(layered.overlay.opened.access, DiskAccess::ReadWrite);
    }

    #[test]
    fn a_writable_base_is_refused() {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("disk.img"), vec![1; 4096]).unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let base = pvc::open_file(&dir, DiskAccess::ReadWrite, Direct::Off).unwrap();
        assert!(over(base, Placement::Nameless { dir: &dir }, Direct::Off).is_err());
    }
}
