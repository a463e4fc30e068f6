//! `containerDisk`: the disk inside a container image, from an unpacked image or from a file in its place.
//!
//! The image comes from a stranger: no link is followed, and what is found is probed and judged (see [`crate::qcow2`]),
//! because here, unlike in a volume, no guest ever writes to it.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::{Disk, SourceError};
use crate::beneath::BeneathPath;
use crate::open::{Dir, Direct, DiskAccess, Expected, OpenError, OpenedDisk, Opening, Sharing, open_disk};
use crate::qcow2::inspect;

/// Where a container disk keeps its disk unless `path` is set.
const FOLDER: &str = "disk";
/// Entries looked at there.
const MOST_ENTRIES: usize = 64;

/// Finds the disk in an unpacked image: the given path, or the only entry of `/disk`.
///
/// # Errors
/// [`SourceError::NoDisk`], [`SourceError::SeveralDisks`], or what listing gave.
pub fn find(root: &Dir, path: Option<&BeneathPath>) -> Result<BeneathPath, SourceError> {
    if let Some(path) = path {
        return Ok(path.clone());
    }
    let folder = BeneathPath::parse(FOLDER).map_err(|_| SourceError::NoDisk)?;
    let names = match root.open_folder(&folder, crate::open::Links::Refused) {
        Ok(dir) => dir.names(MOST_ENTRIES)?,
        Err(OpenError::Missing { .. }) => return Err(SourceError::NoDisk),
        Err(other) => return Err(other.into()),
    };
    let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    only(&names)
}

/// The path of the only name under `/disk`.
///
/// # Errors
/// [`SourceError::NoDisk`] and [`SourceError::SeveralDisks`].
pub fn only(names: &[String]) -> Result<BeneathPath, SourceError> {
    match names {
        [] => Err(SourceError::NoDisk),
        [name] => BeneathPath::parse(&format!("{FOLDER}/{name}")).map_err(|_| SourceError::NoDisk),
        several => {
            let shown: Vec<&str> = several.iter().take(8).map(String::as_str).collect();
            Err(SourceError::SeveralDisks { names: crate::beneath::shown(&shown.join(", ")) })
        }
    }
}

/// Opens the disk of an unpacked image, read-only.
///
/// # Errors
/// [`SourceError`]: not found, not one, not acceptable.
pub fn open(root: &Dir, path: Option<&BeneathPath>, direct: Direct) -> Result<Disk, SourceError> {
    let path = find(root, path)?;
    let opened = root.open_disk(&path, Opening::BASE)?;
    judged(opened, &root.path().join(path.as_path()), direct)
}

/// Opens a file in place of a container disk, read-only: from the image cache, or named by the operator (then a
/// block device is fine too).
///
/// # Errors
/// [`SourceError`]: not there, or not acceptable.
pub fn open_file(path: &Path, direct: Direct) -> Result<Disk, SourceError> {
    let opening = Opening {
        access: DiskAccess::ReadOnly,
        direct: Direct::Off,
        expected: Expected::FileOrBlock,
        sharing: Sharing::Shared,
    };
    judged(open_disk(path, opening)?, path, direct)
}

/// Takes the disk of an image from another process, which opened it read-only.
///
/// # Errors
/// [`SourceError`]: not a file, or not acceptable.
pub fn received(file: OwnedFd, shown: &Path, direct: Direct) -> Result<Disk, SourceError> {
    judged(OpenedDisk::received(file, shown)?, shown, direct)
}

/// Looks into the image while the page cache still serves odd offsets, then bypasses it.
fn judged(mut opened: OpenedDisk, shown: &Path, direct: Direct) -> Result<Disk, SourceError> {
    let facts = inspect(&opened, opened.size_bytes)
        .map_err(|source| SourceError::Image { image: shown.to_path_buf(), source })?;
    opened.bypass_cache(direct, shown)?;
    Ok(Disk { opened, facts, warnings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::qcow2::{Format, HeaderError, ProbeError, create_empty};

    fn image(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Dir) {
        let room = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = room.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let dir = Dir::open(room.path()).unwrap();
        (room, dir)
    }

    #[test]
    fn the_only_file_is_found() {
        let (_room, dir) = image(&[("disk/alpine.img", &[1; 1024]), ("etc/passwd", b"x")]);
        let disk = open(&dir, None, Direct::IfSupported).unwrap();
        assert_eq!((disk.facts.format, disk.facts.virtual_bytes), (Format::Raw, 1024));
        assert_eq!(disk.opened.access, DiskAccess::ReadOnly);
    }

    #[test]
    fn a_path_chooses_and_stays_inside() {
        let (room, dir) = image(&[("disk/a", &[1; 512]), ("disk/b", &[2; 1024]), ("other/c.img", &[3; 2048])]);
        let path = BeneathPath::parse("/other/c.img").unwrap();
        assert_eq!(open(&dir, Some(&path), Direct::Off).unwrap().facts.virtual_bytes, 2048);
        symlink("/etc", room.path().join("out")).unwrap();
        let path = BeneathPath::parse("out/hostname").unwrap();
        let refused = open(&dir, Some(&path), Direct::Off).unwrap_err();
        assert!(matches!(refused, SourceError::Open(OpenError::SymbolicLink { .. })), "{refused}");
    }

    #[test]
    fn none_and_several_are_distinguished() {
        let (_room, dir) = image(&[("etc/passwd", b"x")]);
        assert!(matches!(open(&dir, None, Direct::Off), Err(SourceError::NoDisk)));
        let (room, dir) = image(&[("disk/a", b"1"), ("disk/b\u{1b}[2J", b"2")]);
        match open(&dir, None, Direct::Off) {
            Err(SourceError::SeveralDisks { names }) => assert_eq!(names, "a, b\\u{1b}[2J"),
            other => panic!("{other:?}"),
        }
        fs::remove_dir_all(room.path().join("disk")).unwrap();
        symlink("/etc", room.path().join("disk")).unwrap();
        assert!(matches!(open(&dir, None, Direct::Off), Err(SourceError::Open(OpenError::SymbolicLink { .. }))));
    }

    #[test]
    fn an_image_with_a_base_of_its_own_is_refused() {
        let (room, dir) = image(&[("disk/evil.qcow2", b"")]);
        let path = room.path().join("disk/evil.qcow2");
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        create_empty(&file, 1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &104_u64.to_be_bytes(), 8).unwrap();
        let refused = open(&dir, None, Direct::Off).unwrap_err();
        assert!(
            matches!(refused, SourceError::Image { source: ProbeError::Qcow2(HeaderError::BackingFile { .. }), .. }),
            "{refused}"
        );
    }

    #[test]
    fn a_file_of_the_operator_may_replace_an_image() {
        let room = tempfile::tempdir().unwrap();
        fs::write(room.path().join("disk.raw"), vec![9; 4096]).unwrap();
        symlink("disk.raw", room.path().join("current")).unwrap();
        assert_eq!(open_file(&room.path().join("current"), Direct::Off).unwrap().facts.virtual_bytes, 4096);
        assert!(matches!(open_file(room.path(), Direct::Off), Err(SourceError::Open(OpenError::WrongKind { .. }))));
    }
}
