//! Entering, making, identifying and pinning network namespaces. Source followed: namespaces(7),
//! ioctl_nsfs(2), mount(2) of man-pages 6.03.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

/// Device and inode: equal exactly for descriptors of the same namespace (ioctl_nsfs(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

nix::ioctl_none!(
    /// `NS_GET_NSTYPE`: the clone flag of the namespace's type.
    ns_get_nstype,
    0xb7,
    0x3
);

nix::ioctl_none!(
    /// `NS_GET_USERNS`: a descriptor of the user namespace that owns a namespace.
    ns_get_userns,
    0xb7,
    0x1
);

/// Whether the user namespace of this process owns a namespace. One that this process may not even see does not.
pub(crate) fn is_owned_by_ours(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: the request takes no argument and the descriptor is open for the whole call; that it is a namespace's was
    // found out when the value it comes from was made.
    let owner = match unsafe { ns_get_userns(namespace.as_raw_fd()) } {
        // SAFETY: the kernel has just made this descriptor for us, and no other owner has its number.
        Ok(number) => unsafe { OwnedFd::from_raw_fd(number) },
        Err(Errno::EPERM) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let (owner, ours) = (fstat(&owner)?, nix::sys::stat::stat("/proc/thread-self/ns/user")?);
    Ok((owner.st_dev, owner.st_ino) == (ours.st_dev, ours.st_ino))
}

/// The identity of a network namespace; none if the descriptor is something else.
pub(crate) fn identify(descriptor: BorrowedFd<'_>) -> io::Result<Option<Identity>> {
    // Asked first, because an ioctl number means something else to another file.
    if fstatfs(descriptor)?.filesystem_type() != NSFS_MAGIC {
        return Ok(None);
    }
    // SAFETY: the request takes no argument and the descriptor is open for the whole call.
    let kind = unsafe { ns_get_nstype(descriptor.as_raw_fd()) }?;
    if kind != CloneFlags::CLONE_NEWNET.bits() {
        return Ok(None);
    }
    let stat = fstat(descriptor)?;
    Ok(Some(Identity { device: stat.st_dev, inode: stat.st_ino }))
}

/// The namespace of the calling thread.
pub(crate) fn open_current() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Puts the calling thread into a new network namespace.
pub(crate) fn unshare() -> io::Result<()> {
    Ok(nix::sched::unshare(CloneFlags::CLONE_NEWNET)?)
}

/// Puts the calling thread into this network namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// Bind-mounts the namespace at `path`. What is pinned there already is unpinned first.
pub(crate) fn pin(namespace: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    unpin(path)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    drop(file);
    let source = format!("/proc/thread-self/fd/{}", namespace.as_fd().as_raw_fd());
    let mounted = mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>);
    if mounted.is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(mounted?)
}

/// Unmounts every mount at `path` and removes the file.
pub(crate) fn unpin(path: &Path) -> io::Result<()> {
    loop {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL) => break,
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
