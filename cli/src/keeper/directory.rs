//! The directory of a machine from the moment `run` makes it until the machine's keeper holds its lock. Whoever makes it
//! starts the machine; everybody else is too late.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// The right to start a machine. While it is held, nobody takes the directory for a leftover.
pub(crate) struct Starting {
    /// Held, not read.
    _directory: Flock<File>,
}

/// Makes the directory of a machine; `None` if it is there already.
pub(crate) fn make(machine: &Path) -> std::io::Result<Option<Starting>> {
    // Others may pass through to a socket they were given, and see nothing.
    match DirBuilder::new().mode(0o711).create(machine) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    }
    // Who looks whether it is held holds it for a moment: that is waited for.
    let held = Flock::lock(File::open(machine)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    Ok(Some(Starting { _directory: held }))
}

/// Whether a `run` has made the directory and its keeper has not begun.
pub(crate) fn is_starting(machine: &Path) -> bool {
    let Ok(directory) = File::open(machine) else { return false };
    Flock::lock(directory, FlockArg::LockExclusiveNonblock).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_the_directory_starts_the_machine_and_nobody_else() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        assert!(!is_starting(&machine));
        let starting = make(&machine).unwrap();
        assert!(starting.is_some() && is_starting(&machine));
        assert!(make(&machine).unwrap().is_none());
        drop(starting);
        assert!(!is_starting(&machine));
        // A leftover is not started over either: it is cleared away first.
        assert!(make(&machine).unwrap().is_none());
    }

    #[test]
    fn a_directory_in_nowhere_cannot_be_made() {
        let room = tempfile::tempdir().unwrap();
        assert!(make(&room.path().join("nowhere/vm")).is_err());
    }
}
