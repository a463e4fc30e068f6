//! The directory of a machine from the moment `run` makes it until the machine's shim holds its lock. The process that
//! makes it starts the machine; all others are too late.

use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// The right to start a machine. While it is held, no process takes the directory for a leftover.
pub struct Starting {
    /// Held, not read.
    _directory: Flock<File>,
}

/// Makes the directory of a machine; `None` if it is there already.
///
/// # Errors
/// What the file system says.
pub fn make(machine: &Path) -> std::io::Result<Option<Starting>> {
    match DirBuilder::new().mode(0o700).create(machine) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    }
    // The machine's own user passes through to its files; whatever the umask took away.
    std::fs::set_permissions(machine, Permissions::from_mode(0o711))?;
    // A process that looks whether it is held holds it for a moment: that is waited for.
    let held = match File::open(machine) {
        Ok(directory) => Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A process that took it for a leftover meanwhile has cleared it away, and starts the machine.
    let ours = held.metadata()?;
    let is_there = std::fs::metadata(machine).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
    Ok(is_there.then_some(Starting { _directory: held }))
}

/// The right to clear the directory away as what is left of an earlier run; `None` while a `run` starts its machine there.
#[must_use]
pub fn leftover(machine: &Path) -> Option<Starting> {
    let held = Flock::lock(File::open(machine).ok()?, FlockArg::LockExclusiveNonblock).ok()?;
    Some(Starting { _directory: held })
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
    fn a_directory_in_nowhere_cannot_be_made() {
        let room = tempfile::tempdir().unwrap();
        assert!(make(&room.path().join("nowhere/vm")).is_err());
    }
}
