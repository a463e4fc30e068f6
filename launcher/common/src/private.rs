//! Permissions of what this program writes: launch requests and records hold what Secrets hold, and a guest's console.
//!
//! A machine's processes are another user's when the shim is root, and must get to their own files: directories on the
//! way there may be passed through and not listed (0711), everything else is its owner's alone.

use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use garboard_storage::directory;
use nix::sys::stat::{Mode, umask};

/// What other users may not do with what is made from here on: anything.
const PRIVATE: Mode = Mode::from_bits_truncate(0o077);
/// A directory that others may pass through.
const PASSAGE: u32 = 0o711;
/// How often a directory is made that others remove.
const MOST_TRIES: u32 = 100;

/// From here on no other user can read what this process and its children make, unless they allow it themselves.
pub fn by_default() {
    umask(PRIVATE);
}

/// Makes a directory, and those above it, through which others may pass to a file that they were given. It can be passed
/// from the moment that it is there. What is there stays as it is.
///
/// # Errors
/// The file system's error.
pub fn make_passage(path: &Path) -> io::Result<()> {
    directory::make_all(path, PASSAGE)
}

/// Makes what is to be in such a directory. Another process may remove the directory meanwhile, because it is empty: then it is
/// made again.
///
/// # Errors
/// The file system's error.
pub fn beneath_passage<T>(path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        tries += 1;
        match path.parent().map_or(Ok(()), make_passage).and_then(|()| make()) {
            Err(error) if error.kind() == ErrorKind::NotFound && tries < MOST_TRIES => {}
            other => return other,
        }
    }
}

/// Replaces a file of a directory that only we write to, as a whole.
///
/// # Errors
/// The file system's error.
pub fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let fresh = directory.join(format!("{name}.new"));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    std::fs::rename(&fresh, directory.join(name))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_passage_can_be_passed_and_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("one/two");
        make_passage(&inner).unwrap();
        assert_eq!((mode(&inner), mode(inner.parent().unwrap())), (0o711, 0o711));
    }

    /// The last machine of a namespace ends while another one begins there.
    #[test]
    fn a_directory_is_made_although_the_one_above_is_removed_as_empty_meanwhile() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("default/vm");
        let tries = std::cell::Cell::new(0);
        let make = |removals: u32| {
            tries.set(tries.get() + 1);
            if tries.get() <= removals {
                std::fs::remove_dir(path.parent().unwrap()).unwrap();
            }
            std::fs::create_dir(&path)
        };
        beneath_passage(&path, || make(3)).unwrap();
        assert!(path.is_dir() && tries.get() == 4);
        std::fs::remove_dir(&path).unwrap();
        // Not for ever.
        assert_eq!(beneath_passage(&path, || make(u32::MAX)).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_replaced_file_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("request.json");
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        replace(directory.path(), "request.json", b"new").unwrap();
        assert_eq!((mode(&file), std::fs::read(&file).unwrap()), (0o600, b"new".to_vec()));
    }

    #[test]
    fn a_link_at_the_new_name_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join("request.json.new")).unwrap();
        replace(directory.path(), "request.json", b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    }
}
