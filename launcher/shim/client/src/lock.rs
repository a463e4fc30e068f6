//! The lock that a shim holds for as long as it lives: a free one means that the shim is dead.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::pause_briefly;

/// Its name in the machine's directory.
const LOCK: &str = "lock";
/// A process that looks whether it is held holds it for a moment, and so does a child of a shim between fork and exec, which
/// may have to wait for a processor. A shim holds it longer.
const MOMENT: Duration = Duration::from_secs(2);

/// The lock, held until this is dropped.
pub struct HeldLock {
    /// Held, not read.
    _lock: Flock<File>,
}

/// Takes the lock of a machine. Nothing that a dead shim had started is between fork and exec then.
///
/// # Errors
/// `WouldBlock` if another shim holds it, `NotFound` if the directory was removed meanwhile, else the file system's error.
pub fn hold(machine: &Path) -> io::Result<HeldLock> {
    let path = machine.join(LOCK);
    let mut file = File::create(&path)?;
    let deadline = Instant::now() + MOMENT;
    let lock = loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => break lock,
            Err((same, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file = same,
            Err((_, errno)) => return Err(errno.into()),
        }
        pause_briefly();
    };
    // The directory of a shim that has just ended its machine is gone, and another machine may have its place.
    let (ours, there) = (lock.metadata()?, std::fs::metadata(&path)?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
        Ok(HeldLock { _lock: lock })
    } else {
        Err(ErrorKind::NotFound.into())
    }
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
        let deadline = Instant::now() + Duration::from_secs(60);
        while is_held(directory.path()) {
            assert!(Instant::now() < deadline, "it stays held");
            std::thread::yield_now();
        }
    }

    /// Commands look while a shim starts: that must not make it fail.
    #[test]
    fn it_is_taken_while_others_look_whether_it_is_held() {
        let directory = tempfile::tempdir().unwrap();
        drop(hold(directory.path()).unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let _ = is_held(directory.path());
                    }
                });
            }
            let failed = (0..200).find_map(|_| hold(directory.path()).err());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn the_lock_of_a_directory_that_goes_meanwhile_is_not_taken() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        std::fs::create_dir(&machine).unwrap();
        let held = hold(&machine).unwrap();
        let late = std::thread::scope(|scope| {
            let late = scope.spawn(|| hold(&machine));
            // Until the other has opened it, too.
            while open_locks(&machine) < 2 {
                std::thread::yield_now();
            }
            std::fs::rename(&machine, room.path().join(".vm-1")).unwrap();
            std::fs::create_dir(&machine).unwrap();
            std::fs::write(machine.join(LOCK), "").unwrap();
            drop(held);
            late.join().unwrap()
        });
        assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }

    /// How many descriptors of this process are a machine's lock.
    fn open_locks(machine: &Path) -> usize {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == machine.join(LOCK))).count()
    }
}
