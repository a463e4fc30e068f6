//! `hostDisk`: a raw file at a path of the host, created on demand.
//!
//! An administrator's feature. What exists is never given another owner or mode: CVE-2025-64324 was exactly that.

use std::path::Path;

use super::pvc::{Tolerance, create_sparse};
use super::{Disk, SourceError, Warning, raw};
use crate::beneath::BeneathPath;
use crate::open::{Dir, Direct, DiskAccess, Expected, Opening, Sharing};
use crate::qcow2::looks_like_qcow2;

/// `hostDisk.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// `Disk`: must exist.
    Required,
    /// `DiskOrCreate`: made when missing.
    CreateIfMissing {
        /// Size of a new file in bytes.
        capacity_bytes: u64,
    },
}

/// Opens the file. Its directory may be reached through symbolic links, the file itself may not be one.
///
/// # Errors
/// [`SourceError`]: not there, a link, not a file, no space.
pub fn open(path: &Path, existence: Existence, access: DiskAccess, direct: Direct) -> Result<Disk, SourceError> {
    let not_a_file = || SourceError::NotAFile { path: path.to_path_buf() };
    let folder = path.parent().filter(|_| path.is_absolute()).ok_or_else(not_a_file)?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(not_a_file)?;
    let name = BeneathPath::parse(name).map_err(|_| not_a_file())?;
    let dir = Dir::open(folder)?;
    let mut warnings: Vec<Warning> = Vec::new();
    if let Existence::CreateIfMissing { capacity_bytes } = existence
        && dir.look_at(&name)?.is_none()
    {
        warnings.extend(create_sparse(&dir, &name, capacity_bytes, Tolerance::default())?);
    }
    let opened = dir.open_disk(
        &name,
        Opening { access, direct: Direct::Off, expected: Expected::File, sharing: Sharing::Exclusive },
    )?;
    let mut disk = raw(opened, path.to_path_buf())?;
    if looks_like_qcow2(&disk.opened) {
        warnings.push(Warning::LooksLikeQcow2);
    }
    disk.opened.bypass_cache(direct, path)?;
    disk.warnings = warnings;
    Ok(disk)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::open::OpenError;

    #[test]
    fn a_disk_must_exist_unless_it_may_be_created() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("a.img");
        let missing = open(&path, Existence::Required, DiskAccess::ReadWrite, Direct::Off);
        assert!(matches!(missing, Err(SourceError::Open(OpenError::Missing { .. }))));
        let create = |capacity_bytes| Existence::CreateIfMissing { capacity_bytes };
        let unsized_disk = open(&path, create(0), DiskAccess::ReadWrite, Direct::Off);
        assert!(matches!(unsized_disk, Err(SourceError::NoSize { .. })));
        assert_eq!(
            open(&path, create(1 << 20), DiskAccess::ReadWrite, Direct::Off).unwrap().facts.virtual_bytes,
            1 << 20
        );
        assert_eq!(
            open(&path, create(2 << 20), DiskAccess::ReadWrite, Direct::Off).unwrap().facts.virtual_bytes,
            1 << 20
        );
        assert!(open(&path, Existence::Required, DiskAccess::ReadOnly, Direct::Off).is_ok());
    }

    #[test]
    fn what_exists_keeps_owner_mode_and_content() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("a.img");
        fs::write(&path, vec![3; 512]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        open(&path, Existence::CreateIfMissing { capacity_bytes: 1 << 30 }, DiskAccess::ReadWrite, Direct::Off)
            .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read(&path).unwrap(), vec![3; 512]);
    }

    #[test]
    fn a_link_as_the_disk_is_refused_and_one_on_the_way_is_the_operators() {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("real")).unwrap();
        fs::write(room.path().join("real/a.img"), vec![3; 512]).unwrap();
        symlink("real", room.path().join("way")).unwrap();
        symlink("a.img", room.path().join("real/b.img")).unwrap();
        let at = |path: &str| open(&room.path().join(path), Existence::Required, DiskAccess::ReadWrite, Direct::Off);
        assert!(at("way/a.img").is_ok());
        assert!(matches!(at("real/b.img"), Err(SourceError::Open(OpenError::SymbolicLink { .. }))));
    }

    #[test]
    fn a_relative_path_is_refused() {
        for path in ["a.img", "/", ".."] {
            let refused = open(Path::new(path), Existence::Required, DiskAccess::ReadOnly, Direct::Off).unwrap_err();
            assert!(matches!(refused, SourceError::NotAFile { .. }), "{path}: {refused}");
        }
    }
}
