//! Checks before QEMU starts: is there room for what a guest may write, does another QEMU hold the disk.
//!
//! Neither is a guarantee (space and locks change afterwards, and QEMU takes the lock itself): they turn what would be a
//! cryptic death of QEMU, or a guest paused at night, into an error message at the start.

use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::statvfs::fstatvfs;

use crate::open::{Dir, DiskAccess};

/// Below this, nothing is started that writes: 16 MiB.
pub const LEAST_FREE_BYTES: u64 = 16 << 20;

/// Space of the file system that a directory is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free for this user, in bytes.
    pub available_bytes: u64,
    /// All of it, in bytes.
    pub total_bytes: u64,
}

/// Whether what may be written fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// It does.
    Enough,
    /// Not if the guest fills its disk: then it is paused or sees errors. This is a warning.
    Overcommitted {
        /// Bytes the guest may come to write.
        wanted_bytes: u64,
        /// Bytes free now.
        available_bytes: u64,
    },
}

/// Why a start would fail.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Full, or nearly.
    #[error(
        "{directory} has only {available_bytes} bytes free and {wanted_bytes} are needed to begin; free some space or \
         use another directory"
    )]
    Full {
        /// Where.
        directory: PathBuf,
        /// Bytes free.
        available_bytes: u64,
        /// Bytes needed.
        wanted_bytes: u64,
    },
    /// The kernel's query failed.
    #[error("could not measure the free space of {directory}; see the cause")]
    Measure {
        /// Where.
        directory: PathBuf,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// Locked by another QEMU.
    #[error("{disk} is in use by another running VM; stop that one, or mark the disk shareable in both")]
    Locked {
        /// The disk, as the caller names it.
        disk: String,
    },
    /// The kernel's query failed.
    #[error("could not ask for the locks on {disk}; see the cause")]
    Ask {
        /// The disk, as the caller names it.
        disk: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
}

/// Free and total space where `dir` is.
///
/// # Errors
/// [`PreflightError::Measure`].
pub fn space(dir: &Dir) -> Result<Space, PreflightError> {
    let measured = fstatvfs(dir)
        .map_err(|errno| PreflightError::Measure { directory: dir.path().to_path_buf(), source: errno.into() })?;
    let bytes = |blocks: u64| blocks.saturating_mul(measured.fragment_size());
    Ok(Space { available_bytes: bytes(measured.blocks_available()), total_bytes: bytes(measured.blocks()) })
}

/// Judges whether `dir` has room for a file that starts with `first_bytes` and may grow to `most_bytes`.
///
/// # Errors
/// [`PreflightError::Full`] when not even the beginning (and [`LEAST_FREE_BYTES`]) fits.
pub fn room_for(dir: &Dir, first_bytes: u64, most_bytes: u64) -> Result<SpaceCheck, PreflightError> {
    let available_bytes = space(dir)?.available_bytes;
    let wanted_bytes = first_bytes.saturating_add(LEAST_FREE_BYTES);
    if available_bytes < wanted_bytes {
        return Err(PreflightError::Full { directory: dir.path().to_path_buf(), available_bytes, wanted_bytes });
    }
    if available_bytes < most_bytes {
        return Ok(SpaceCheck::Overcommitted { wanted_bytes: most_bytes, available_bytes });
    }
    Ok(SpaceCheck::Enough)
}

/// Byte whose lock means "its holder writes to this image", from QEMU's `block/file-posix.c` (`RAW_LOCK_PERM_BASE` + `WRITE`).
const HOLDER_WRITES: i64 = 101;
/// Byte whose lock means "no other process may write" (`RAW_LOCK_SHARED_BASE` + `WRITE`).
const NO_OTHER_WRITES: i64 = 201;

/// Refuses a disk that another QEMU holds in a way that excludes ours. Not for shareable disks: [`unlocked_to_share`].
///
/// # Errors
/// [`PreflightError::Locked`], naming the disk as `shown`.
pub fn unlocked(disk: impl AsFd, access: DiskAccess, shown: &str) -> Result<(), PreflightError> {
    let bytes: &[i64] = match access {
        DiskAccess::ReadOnly => &[HOLDER_WRITES],
        DiskAccess::ReadWrite => &[HOLDER_WRITES, NO_OTHER_WRITES],
    };
    none_locked(disk, bytes, shown)
}

/// Refuses a disk that ours would share, and that another QEMU keeps to itself.
///
/// # Errors
/// [`PreflightError::Locked`], naming the disk as `shown`.
pub fn unlocked_to_share(disk: impl AsFd, access: DiskAccess, shown: &str) -> Result<(), PreflightError> {
    match access {
        DiskAccess::ReadOnly => Ok(()),
        DiskAccess::ReadWrite => none_locked(disk, &[NO_OTHER_WRITES], shown),
    }
}

fn none_locked(disk: impl AsFd, bytes: &[i64], shown: &str) -> Result<(), PreflightError> {
    for byte in bytes {
        match locked(disk.as_fd(), *byte) {
            Ok(false) => {}
            Ok(true) => return Err(PreflightError::Locked { disk: shown.to_owned() }),
            // Some network file systems do not support such locks; QEMU then goes on without, and so do we.
            Err(Errno::EINVAL | Errno::ENOLCK | Errno::EOPNOTSUPP) => return Ok(()),
            Err(errno) => return Err(PreflightError::Ask { disk: shown.to_owned(), source: errno.into() }),
        }
    }
    Ok(())
}

fn locked(disk: impl AsFd, byte: i64) -> Result<bool, Errno> {
    let kind = |value: libc::c_int| i16::try_from(value).map_err(|_| Errno::EINVAL);
    let mut lock = libc::flock {
        l_type: kind(libc::F_WRLCK)?,
        l_whence: kind(libc::SEEK_SET)?,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(disk, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type != kind(libc::F_UNLCK)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn room_is_judged_by_what_is_free() {
        let room = tempfile::tempdir().unwrap();
        let dir = Dir::open(room.path()).unwrap();
        let free = space(&dir).unwrap().available_bytes;
        assert!(free > LEAST_FREE_BYTES, "this test needs some space");
        assert_eq!(room_for(&dir, 0, 4096).unwrap(), SpaceCheck::Enough);
        assert!(matches!(room_for(&dir, 0, u64::MAX).unwrap(), SpaceCheck::Overcommitted { .. }));
        let refused = room_for(&dir, u64::MAX / 2, 0).unwrap_err();
        assert!(matches!(refused, PreflightError::Full { .. }), "{refused}");
    }

    #[test]
    fn a_disk_that_another_qemu_writes_is_refused_until_it_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let ours = std::fs::File::open(file.path()).unwrap();
        assert!(unlocked(&ours, DiskAccess::ReadWrite, "disk").is_ok());

        let mut holder = match Command::new("qemu-io")
            .args(["-f", "raw"])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: qemu-io: {error}");
                return;
            }
        };
        // Its answer to a command proves that the image is open.
        let mut input = holder.stdin.take().unwrap();
        input.write_all(b"length\n").unwrap();
        let mut answer = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.as_mut().unwrap()), &mut answer)
            .unwrap();
        let for_writing = unlocked(&ours, DiskAccess::ReadWrite, "disk");
        let for_reading = unlocked(&ours, DiskAccess::ReadOnly, "disk");
        drop(input);
        holder.wait().unwrap();
        assert!(matches!(for_writing, Err(PreflightError::Locked { .. })), "{for_writing:?}");
        assert!(matches!(for_reading, Err(PreflightError::Locked { .. })), "{for_reading:?}");
        assert!(unlocked(&ours, DiskAccess::ReadWrite, "disk").is_ok());
    }

    #[test]
    fn a_shared_disk_is_refused_only_while_another_process_holds_it_exclusively() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ours = std::fs::File::open(file.path()).unwrap();
        for (byte, is_kept) in [(HOLDER_WRITES, false), (NO_OTHER_WRITES, true)] {
            // Its own open file description, as another QEMU has.
            let theirs = std::fs::File::open(file.path()).unwrap();
            let lock = libc::flock {
                l_type: i16::try_from(libc::F_RDLCK).unwrap(),
                l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
                l_start: byte,
                l_len: 1,
                l_pid: 0,
            };
            fcntl(&theirs, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
            assert_eq!(unlocked_to_share(&ours, DiskAccess::ReadWrite, "disk").is_err(), is_kept);
            assert!(unlocked_to_share(&ours, DiskAccess::ReadOnly, "disk").is_ok());
            assert!(unlocked(&ours, DiskAccess::ReadWrite, "disk").is_err());
        }
    }
}
