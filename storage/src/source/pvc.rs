//! `persistentVolumeClaim` and `dataVolume`: a file `disk.img` in the claim's directory, or the claim's block device.
//!
//! Always raw, never probed: the guest writes to it, so its content is not trusted (see [`crate::qcow2`]).

use super::{Disk, SourceError, Warning, raw};
use crate::beneath::BeneathPath;
use crate::open::{Dir, Direct, DiskAccess, Expected, Opening, Sharing};
use crate::preflight::space;
use crate::qcow2::looks_like_qcow2;

/// The name of the disk in a claim with a file system.
pub const FILE_NAME: &str = "disk.img";

/// How much smaller than asked for a new file may be: provisioners give a little less than they state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Per cent of the size that may be missing.
    pub percent: u8,
    /// Bytes left free on the claim.
    pub reserve_bytes: u64,
}

impl Default for Tolerance {
    /// KubeVirt's: 10 % and 128 KiB.
    fn default() -> Self {
        Self { percent: 10, reserve_bytes: 128 << 10 }
    }
}

/// Opens `disk.img` of a claim.
///
/// # Errors
/// [`SourceError`]: not there, a link, not a file, empty.
pub fn open_file(dir: &Dir, access: DiskAccess, direct: Direct) -> Result<Disk, SourceError> {
    let name = name()?;
    let opened = dir.open_disk(
        &name,
        Opening { access, direct: Direct::Off, expected: Expected::File, sharing: Sharing::Exclusive },
    )?;
    let shown = dir.path().join(name.as_path());
    let mut disk = raw(opened, shown.clone())?;
    if looks_like_qcow2(&disk.opened) {
        disk.warnings.push(Warning::LooksLikeQcow2);
    }
    disk.opened.bypass_cache(direct, &shown)?;
    Ok(disk)
}

/// Opens `disk.img` of a claim for reading and writing, after creating it (sparse, `claim_bytes` long) where there is none.
///
/// # Errors
/// As [`open_file`], and [`SourceError::TooSmall`] when the claim has less room than `tolerance` forgives.
pub fn open_or_create(dir: &Dir, claim_bytes: u64, tolerance: Tolerance, direct: Direct) -> Result<Disk, SourceError> {
    let warning = match dir.look_at(&name()?)? {
        Some(_) => None,
        None => create_sparse(dir, &name()?, claim_bytes, tolerance)?,
    };
    let mut disk = open_file(dir, DiskAccess::ReadWrite, direct)?;
    disk.warnings.extend(warning);
    Ok(disk)
}

fn name() -> Result<BeneathPath, SourceError> {
    BeneathPath::parse(FILE_NAME).map_err(|_| SourceError::NotAFile { path: FILE_NAME.into() })
}

/// Creates a hole of the wanted length, or of what is free when that is nearly as much. Exclusive: two launchers that
/// come at once do not both create.
pub(super) fn create_sparse(
    dir: &Dir,
    name: &BeneathPath,
    wanted_bytes: u64,
    tolerance: Tolerance,
) -> Result<Option<Warning>, SourceError> {
    let disk = dir.path().join(name.as_path());
    if wanted_bytes == 0 {
        return Err(SourceError::NoSize { disk });
    }
    let available_bytes = space(dir)?.available_bytes.saturating_sub(tolerance.reserve_bytes);
    let least = u128::from(wanted_bytes) * u128::from(100_u8.saturating_sub(tolerance.percent)) / 100;
    let (made_bytes, warning) = if wanted_bytes <= available_bytes {
        (wanted_bytes.next_multiple_of(512), None)
    } else if least <= u128::from(available_bytes) {
        // Whole MiB, so that partitions end evenly.
        let made_bytes = available_bytes / (1 << 20) * (1 << 20);
        (made_bytes, Some(Warning::SmallerThanAsked { wanted_bytes, made_bytes }))
    } else {
        return Err(SourceError::TooSmall { disk, wanted_bytes, available_bytes });
    };
    if !dir.create_sized(name, made_bytes, 0o600)? {
        // Another process was faster; its file is as good as ours.
        return Ok(None);
    }
    tracing::info!(path = %dir.path().display(), name = %name, made_bytes, "sparse disk created");
    Ok(warning)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::open::OpenError;
    use crate::qcow2::Format;

    fn claim() -> (tempfile::TempDir, Dir) {
        let room = tempfile::tempdir().unwrap();
        let dir = Dir::open(room.path()).unwrap();
        (room, dir)
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_missing_disk_is_created_sparse_and_kept() {
        let (room, dir) = claim();
        let disk = open_or_create(&dir, GIB, Tolerance::default(), Direct::IfSupported).unwrap();
        assert_eq!((disk.facts.format, disk.facts.virtual_bytes), (Format::Raw, GIB));
        let metadata = fs::metadata(room.path().join("disk.img")).unwrap();
        assert!(metadata.blocks() * 512 < 1 << 20);
        fs::write(room.path().join("disk.img"), vec![5; 8192]).unwrap();
        let disk = open_or_create(&dir, GIB, Tolerance::default(), Direct::Off).unwrap();
        assert_eq!(disk.facts.virtual_bytes, 8192, "what is there is never resized");
    }

    #[test]
    fn a_link_planted_as_disk_img_is_refused() {
        let (room, dir) = claim();
        symlink("/etc/hostname", room.path().join("disk.img")).unwrap();
        let refused = open_or_create(&dir, GIB, Tolerance::default(), Direct::Off).unwrap_err();
        assert!(matches!(refused, SourceError::Open(OpenError::SymbolicLink { .. })), "{refused}");
    }

    #[test]
    fn a_dangling_link_creates_nothing_elsewhere() {
        let (room, dir) = claim();
        let target = room.path().join("elsewhere");
        symlink(&target, room.path().join("disk.img")).unwrap();
        assert!(open_or_create(&dir, GIB, Tolerance::default(), Direct::Off).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_qcow2_header_in_a_volume_changes_nothing_but_a_warning() {
        let (room, dir) = claim();
        fs::write(room.path().join("disk.img"), b"QFI\xfb\0\0\0\x03 whatever a guest wrote").unwrap();
        let disk = open_file(&dir, DiskAccess::ReadWrite, Direct::Off).unwrap();
        assert_eq!(disk.facts.format, Format::Raw);
        assert_eq!(disk.warnings, [Warning::LooksLikeQcow2]);
    }

    #[test]
    fn a_little_less_is_tolerated_and_much_less_is_not() {
        let (room, dir) = claim();
        let free = space(&dir).unwrap().available_bytes;
        let nearly = Tolerance { percent: 50, reserve_bytes: 0 };
        let disk = open_or_create(&dir, free + free / 4, nearly, Direct::Off).unwrap();
        assert!(matches!(disk.warnings.as_slice(), [Warning::SmallerThanAsked { .. }]), "{:?}", disk.warnings);
        assert!(disk.facts.virtual_bytes <= free && disk.facts.virtual_bytes > free / 2);
        fs::remove_file(room.path().join("disk.img")).unwrap();
        let refused = open_or_create(&dir, free * 3, nearly, Direct::Off).unwrap_err();
        assert!(matches!(refused, SourceError::TooSmall { .. }), "{refused}");
        assert!(!room.path().join("disk.img").exists());
    }

    #[test]
    fn a_read_only_claim_is_opened_so_and_not_created() {
        let (room, dir) = claim();
        assert!(matches!(
            open_file(&dir, DiskAccess::ReadOnly, Direct::Off),
            Err(SourceError::Open(OpenError::Missing { .. }))
        ));
        fs::write(room.path().join("disk.img"), vec![1; 4096]).unwrap();
        assert_eq!(open_file(&dir, DiskAccess::ReadOnly, Direct::Off).unwrap().opened.access, DiskAccess::ReadOnly);
        fs::write(room.path().join("disk.img"), b"").unwrap();
        assert!(matches!(open_file(&dir, DiskAccess::ReadOnly, Direct::Off), Err(SourceError::Image { .. })));
    }
}
