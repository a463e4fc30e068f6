//! Directories that are created together with their permissions. Those that all machines of a host share are made by
//! whichever command comes first, and that may be killed at any time: what it leaves half made would stay closed to the users of
//! all machines.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

/// Makes a directory with these permissions, whatever the umask. What is there stays as it is. A process that is killed
/// meanwhile leaves at most an empty directory of another name, which begins with a dot.
///
/// # Errors
/// The file system's error.
pub fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let fresh = make_fresh(path)?;
    let made = permit(&fresh, mode).and_then(|()| give_name(&fresh, path));
    if made.is_err() {
        let _ = std::fs::remove_dir(&fresh);
    }
    match made {
        // Another process was faster.
        Err(_) if path.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Errno::ENOTDIR.into()),
        other => other,
    }
}

/// The same, with the directories above it.
///
/// # Errors
/// The file system's error.
pub fn make_all(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_all(parent, mode)?;
    }
    make(path, mode)
}

/// A directory beside its place, of a name that no other process uses.
fn make_fresh(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh = path.with_file_name(format!(".{name}.{}-{number}.new", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&fresh) {
            // Left by a killed process, or in use in another PID namespace.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            other => return other.map(|()| fresh),
        }
    }
}

/// Never in place of another process's directory, even an empty one: that process is about to write to it.
fn give_name(fresh: &Path, path: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, fresh, AT_FDCWD, path, RenameFlags::RENAME_NOREPLACE) {
        // This file system cannot; a directory that is not empty is kept all the same.
        Err(Errno::EINVAL | Errno::ENOSYS) => std::fs::rename(fresh, path),
        other => Ok(other?),
    }
}

fn permit(path: &Path, mode: u32) -> io::Result<()> {
    let flags = nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)?.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(path: &Path) -> Option<u32> {
        Some(path.metadata().ok()?.permissions().mode() & 0o7777)
    }

    #[test]
    fn a_directory_is_never_seen_with_other_permissions() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("shared");
        std::thread::scope(|scope| {
            // With write permission for all, which every umask takes away.
            let maker = scope.spawn(|| {
                for _ in 0..2000 {
                    make(&path, 0o777).unwrap();
                    fs::remove_dir(&path).unwrap();
                }
            });
            while !maker.is_finished() {
                assert!(mode(&path).is_none_or(|mode| mode == 0o777), "{:o}", mode(&path).unwrap_or_default());
            }
        });
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0, "something is left");
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("one/two");
        make_all(&path, 0o711).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (Some(0o711), Some(0o711)));
        fs::write(path.join("file"), "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        make_all(&path, 0o711).unwrap();
        assert_eq!(mode(&path), Some(0o700));
        assert!(path.join("file").exists());
        // Nothing but a directory will do.
        assert_eq!(make(&path.join("file"), 0o711).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "something is left");
    }

    #[test]
    fn several_processes_may_make_the_same_directory() {
        let room = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let path = room.path().join(round.to_string());
            std::thread::scope(|scope| {
                for name in ["a", "b", "c", "d"] {
                    let path = &path;
                    scope.spawn(move || {
                        make(path, 0o711).unwrap();
                        fs::write(path.join(name), "").unwrap();
                    });
                }
            });
            assert_eq!((mode(&path), fs::read_dir(&path).unwrap().count()), (Some(0o711), 4));
        }
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 100, "something is left");
    }
}
