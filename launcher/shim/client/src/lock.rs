//! The lock that a shim holds for as long as it lives: a free one means that the shim is dead.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Its name in the machine's directory.
const LOCK: &str = "lock";

/// The lock, held until this is dropped.
pub struct Held {
    /// Held, not read.
    _lock: Flock<File>,
}

/// Takes the lock of a machine.
///
/// # Errors
/// `WouldBlock` if another shim holds it, else what the file system says.
pub fn hold(machine: &Path) -> io::Result<Held> {
    let file = File::create(machine.join(LOCK))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
    Ok(Held { _lock: lock })
}

/// Whether a shim holds the lock of a machine.
#[must_use]
pub fn is_held(machine: &Path) -> bool {
    let Ok(file) = File::open(machine.join(LOCK)) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_others_see_that() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_held(directory.path()), "there is none");
        let held = hold(directory.path()).unwrap();
        assert!(is_held(directory.path()));
        assert_eq!(hold(directory.path()).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        // Another test may have started a process meanwhile: until its child has executed something, the child holds it, too.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while is_held(directory.path()) {
            assert!(std::time::Instant::now() < deadline, "it stays held");
            std::thread::yield_now();
        }
    }
}
