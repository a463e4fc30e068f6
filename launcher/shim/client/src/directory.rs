//! The directory of a machine from the moment `run` makes it until the machine's shim holds its lock. The process that
//! makes it starts the machine; all others are too late. The process that removes an earlier run has the same right:
//! to this very directory, and to none that is made at its place later.

use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use garboard_common::private;
use nix::fcntl::{Flock, FlockArg};

/// The right to a machine's directory: to start the machine there, or to clear it away. While it is held, no other process has it.
pub struct Right {
    machine: PathBuf,
    directory: Flock<File>,
}

impl Right {
    /// Where the directory was when the right was taken.
    #[must_use]
    pub fn machine(&self) -> &Path {
        &self.machine
    }

    /// Whether it is there still. A shim takes the directory away that it was started in; what is made there afterwards is
    /// another machine's.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let place = |found: std::fs::Metadata| (found.dev(), found.ino());
        let ours = self.directory.metadata().map(place);
        let there = std::fs::symlink_metadata(&self.machine).map(place);
        ours.is_ok_and(|ours| there.is_ok_and(|there| ours == there))
    }

    fn if_there(self) -> Option<Self> {
        self.is_there().then_some(self)
    }
}

/// Makes the directory of a machine; `None` if it is there already.
///
/// # Errors
/// The file system's error.
pub fn make(machine: &Path) -> std::io::Result<Option<Right>> {
    // The end of another machine takes the namespace's directory with it if it was the last one there.
    match private::beneath_passage(machine, || DirBuilder::new().mode(0o700).create(machine)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    }
    // A process that looks whether it is held holds it for a moment: that is waited for.
    let directory = match File::open(machine) {
        Ok(directory) => Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A process that took it for a leftover meanwhile has cleared it away, and starts the machine.
    let Some(right) = Right { machine: machine.to_owned(), directory }.if_there() else { return Ok(None) };
    // The machine's own user passes through to its files; whatever the umask took away.
    right.directory.set_permissions(Permissions::from_mode(0o711))?;
    Ok(Some(right))
}

/// The right to clear the directory away as what is left of an earlier run; `None` while a `run` starts its machine there, or
/// another process clears it away.
#[must_use]
pub fn leftover(machine: &Path) -> Option<Right> {
    let directory = Flock::lock(File::open(machine).ok()?, FlockArg::LockExclusiveNonblock).ok()?;
    Right { machine: machine.to_owned(), directory }.if_there()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_makes_the_directory_and_starts_the_machine() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        assert!(leftover(&machine).is_none());
        let starting = make(&machine).unwrap();
        assert!(starting.is_some() && leftover(&machine).is_none());
        assert!(make(&machine).unwrap().is_none());
        drop(starting);
        // Another test may have started a process meanwhile: until its child has executed something, the child holds it, too.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while leftover(&machine).is_none() {
            assert!(std::time::Instant::now() < deadline, "it stays held");
            std::thread::yield_now();
        }
        // A leftover is not started over either: it is cleared away first.
        assert!(make(&machine).unwrap().is_none());
    }

    #[test]
    fn the_right_is_to_one_directory_and_not_to_the_next_at_its_place() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let right = make(&machine).unwrap().unwrap();
        assert!(right.is_there());
        std::fs::rename(&machine, room.path().join(".vm-1")).unwrap();
        assert!(!right.is_there());
        let next = make(&machine).unwrap().unwrap();
        assert!(next.is_there() && !right.is_there());
    }

    #[test]
    fn a_directory_in_nowhere_cannot_be_made() {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("file"), "").unwrap();
        assert!(make(&room.path().join("file/vm")).is_err());
    }
}
