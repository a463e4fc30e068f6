//! Opens disks so that QEMU gets exactly what was asked for, as a descriptor, and never a path of a tenant.
//!
//! Two kinds of path exist, and the caller must distinguish them:
//!
//! - one the *operator* chose (a block device, `--image REF=PATH`): [`open_disk`], symbolic links followed, because
//!   `/dev/disk/by-id/…` is made of them;
//! - one beneath a directory whose *contents* a tenant controls (a volume, an unpacked image): [`Dir::open_disk`], which
//!   resolves with `openat2(2)` and `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`.
//!
//! Seven of KubeVirt's core CVEs (2022-1798, 2025-64324, 2025-64433 and their kin) are one mistake: a privileged process
//! followed a name that a tenant controls. Hence the rules here: look at the kind of file before opening it for real, open
//! again and compare identity, never change owner or mode of anything, create only with `O_EXCL`.
//!
//! Not for: deciding formats (see [`crate::qcow2`]).

mod dir;
mod error;

pub use dir::{Dir, Links};
pub use error::OpenError;
use error::refusal;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{Whence, lseek64};

use crate::direct;

/// What the guest may do with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskAccess {
    /// Read only.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Whether the page cache of the host is to be bypassed (`O_DIRECT`, QEMU's `cache.direct`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// Through the page cache.
    Off,
    /// Bypass it where the file system can.
    IfSupported,
    /// Bypass it, or refuse the disk.
    Required,
}

/// What a volume source may point at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Either.
    FileOrBlock,
}

/// Which other processes may write a block device meanwhile. A file is guarded by the locks that QEMU takes; those are per inode, and
/// two containers have different inodes for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Any process: a shareable disk, or a base that is only read. A later process may still claim it exclusively: the
    /// kernel has no shared claim on a device, and locks of the descriptor (`flock`, QEMU's own) are per inode.
    Shared,
    /// No other process on this kernel that asks for the same, nor a mount, swap area, RAID or LVM, until the descriptor and all its
    /// copies are closed: `O_EXCL` without `O_CREAT` (open(2)).
    Exclusive,
}

/// How a disk is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// What the guest may do.
    pub access: DiskAccess,
    /// Page cache or not.
    pub direct: Direct,
    /// What may be found.
    pub expected: Expected,
    /// Which other processes may write it, if it is a block device and is written.
    pub sharing: Sharing,
}

impl Opening {
    /// Read-only regular file through the page cache: seed media, kernels, images that serve as a base.
    pub const BASE: Self =
        Self { access: DiskAccess::ReadOnly, direct: Direct::Off, expected: Expected::File, sharing: Sharing::Shared };
}

/// What a disk turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// A regular file; `blockdev` driver `file`.
    File,
    /// A block device; `blockdev` driver `host_device`.
    Block {
        /// Major device number.
        major: u64,
        /// Minor device number.
        minor: u64,
    },
}

/// A disk, open.
#[derive(Debug)]
pub struct OpenedDisk {
    /// The descriptor, close-on-exec; its access mode is exactly the one asked for, as QEMU's fd sets demand.
    pub fd: OwnedFd,
    /// Length in bytes: of the file, or of the device.
    pub size_bytes: u64,
    /// File or block device.
    pub kind: DiskKind,
    /// What it was opened for.
    pub access: DiskAccess,
    /// Whether the descriptor bypasses the page cache.
    pub direct: bool,
}

impl OpenedDisk {
    /// Takes a regular file that another process opened for reading. `shown` is its name in messages.
    ///
    /// # Errors
    /// [`OpenError::WrongKind`] for anything but a regular file, [`OpenError::Io`] if it cannot be looked at.
    pub fn received(fd: OwnedFd, shown: &Path) -> Result<Self, OpenError> {
        let failed =
            |errno: Errno| OpenError::Io { path: shown.to_path_buf(), attempt: "look at", source: errno.into() };
        let stat = fstat(&fd).map_err(failed)?;
        let kind = accepted_kind(&stat, Expected::File, shown)?;
        let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFL).map_err(failed)?;
        if OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE != OFlag::O_RDONLY {
            let (found, expected) = ("file open for writing", "one open for reading");
            return Err(OpenError::WrongKind { path: shown.to_path_buf(), found, expected });
        }
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_RDONLY)).map_err(failed)?;
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { fd, size_bytes, kind, access: DiskAccess::ReadOnly, direct: false })
    }

    /// Switches to direct I/O now, for a disk that had to be looked into first. `shown` is its path, for the message.
    ///
    /// # Errors
    /// [`OpenError::NoDirect`] when it is required and not to be had.
    pub fn bypass_cache(&mut self, direct: Direct, shown: &Path) -> Result<(), OpenError> {
        self.direct = match direct {
            Direct::Off => false,
            Direct::IfSupported => direct::enable(self.fd.as_fd()).is_ok(),
            Direct::Required => {
                let refused = |_| OpenError::NoDirect { path: shown.to_path_buf() };
                direct::enable(self.fd.as_fd()).map_err(refused)?;
                true
            }
        };
        Ok(())
    }
}

impl AsFd for OpenedDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a disk at a path that the *operator* chose; symbolic links are followed.
///
/// A block device opened for writing is refused while the host uses it itself (mounted, swap, RAID, LVM), or another process
/// has it with [`Sharing::Exclusive`].
///
/// # Errors
/// [`OpenError`], naming the path and what to do.
pub fn open_disk(path: &Path, opening: Opening) -> Result<OpenedDisk, OpenError> {
    let place = Place { dir: AT_FDCWD, name: path, shown: path.to_path_buf(), resolve: ResolveFlag::empty() };
    open_at(&place, opening)
}

/// A name, where it is resolved from and under which rules.
struct Place<'a> {
    dir: BorrowedFd<'a>,
    name: &'a Path,
    shown: PathBuf,
    resolve: ResolveFlag,
}

impl Place<'_> {
    fn open(&self, flags: OFlag, mode: Mode, access: DiskAccess) -> Result<OwnedFd, OpenError> {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(mode).resolve(self.resolve);
        // RESOLVE_BENEATH answers EAGAIN when something is renamed meanwhile: openat2(2) recommends another try.
        for _ in 0..64 {
            match openat2(self.dir, self.name, how) {
                Ok(fd) => return Ok(fd),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(refusal(errno, &self.shown, access, "open")),
            }
        }
        Err(OpenError::Replaced { path: self.shown.clone() })
    }
}

fn open_at(place: &Place<'_>, opening: Opening) -> Result<OpenedDisk, OpenError> {
    let failed = |attempt: &'static str| {
        let path = place.shown.clone();
        move |errno: Errno| OpenError::Io { path, attempt, source: errno.into() }
    };
    // First without any effect on what is there (opening a FIFO waits, opening some devices acts), then for real.
    let looked = place.open(OFlag::O_PATH, Mode::empty(), opening.access)?;
    let before = fstat(&looked).map_err(failed("look at"))?;
    let kind = accepted_kind(&before, opening.expected, &place.shown)?;
    let is_written_block = matches!(kind, DiskKind::Block { .. }) && opening.access == DiskAccess::ReadWrite;
    let exclusive = match (is_written_block, opening.sharing) {
        (true, Sharing::Exclusive) => OFlag::O_EXCL,
        (true, Sharing::Shared) => {
            drop(claimed(place, OFlag::O_RDONLY | OFlag::O_EXCL | OFlag::O_NONBLOCK, DiskAccess::ReadOnly)?);
            OFlag::empty()
        }
        (false, _) => OFlag::empty(),
    };
    let mode = match opening.access {
        DiskAccess::ReadOnly => OFlag::O_RDONLY,
        DiskAccess::ReadWrite => OFlag::O_RDWR,
    };
    let fd = claimed(place, mode | exclusive | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, opening.access)?;
    let after = fstat(&fd).map_err(failed("look at"))?;
    if (before.st_dev, before.st_ino, before.st_rdev) != (after.st_dev, after.st_ino, after.st_rdev) {
        return Err(OpenError::Replaced { path: place.shown.clone() });
    }
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(mode)).map_err(failed("set the flags of"))?;
    let size_bytes = match kind {
        DiskKind::File => u64::try_from(after.st_size).unwrap_or(0),
        DiskKind::Block { .. } => device_bytes(&fd).map_err(failed("measure"))?,
    };
    let mut disk = OpenedDisk { fd, size_bytes, kind, access: opening.access, direct: false };
    disk.bypass_cache(opening.direct, &place.shown)?;
    Ok(disk)
}

fn device_bytes(fd: &OwnedFd) -> Result<u64, Errno> {
    let end = lseek64(fd, 0, Whence::SeekEnd)?;
    lseek64(fd, 0, Whence::SeekSet)?;
    u64::try_from(end).map_err(|_| Errno::EOVERFLOW)
}

fn accepted_kind(stat: &FileStat, expected: Expected, shown: &Path) -> Result<DiskKind, OpenError> {
    let format = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    let wrong = |wanted| OpenError::WrongKind { path: shown.to_path_buf(), found: kind_name(stat), expected: wanted };
    let device =
        DiskKind::Block { major: nix::sys::stat::major(stat.st_rdev), minor: nix::sys::stat::minor(stat.st_rdev) };
    match (expected, format) {
        (Expected::File | Expected::FileOrBlock, SFlag::S_IFREG) => Ok(DiskKind::File),
        (Expected::Block | Expected::FileOrBlock, SFlag::S_IFBLK) => Ok(device),
        (Expected::File, _) => Err(wrong("a regular file")),
        (Expected::Block, _) => Err(wrong("a block device")),
        (Expected::FileOrBlock, _) => Err(wrong("a regular file or a block device")),
    }
}

fn kind_name(stat: &FileStat) -> &'static str {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => "regular file",
        SFlag::S_IFBLK => "block device",
        SFlag::S_IFCHR => "character device",
        SFlag::S_IFDIR => "directory",
        SFlag::S_IFIFO => "FIFO",
        SFlag::S_IFSOCK => "socket",
        SFlag::S_IFLNK => "symbolic link",
        _ => "file of unknown kind",
    }
}

/// Opens with flags of which `O_EXCL` may be one: on a block device the kernel grants it only while no other user holds it (a
/// mount, a swap area, md, LVM, another QEMU).
fn claimed(place: &Place<'_>, flags: OFlag, access: DiskAccess) -> Result<OwnedFd, OpenError> {
    match place.open(flags, Mode::empty(), access) {
        Ok(fd) => Ok(fd),
        Err(OpenError::Io { source, path, .. }) if source.raw_os_error() == Some(Errno::EBUSY as i32) => {
            Err(OpenError::InUse { path })
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
