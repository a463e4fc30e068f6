//! On a bare host PID 1 builds what a container runtime gives it in a pod: a root file system that holds
//! QEMU and its libraries read-only, a few devices, its own /proc, and nothing else: no file of ours is in it.
//!
//! It runs in mount, PID, IPC, UTS and network namespaces that the shim made for it, or without the last in those that
//! it made in a user namespace (`mount_namespaces(7)`, `pivot_root(2)`).

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use garboard_protocol::launch::BASIC_DEVICES;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, mknod, umask};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::pivot_root;

use super::InitError;
use crate::sys::mounts;

/// Host links that must exist for the dynamic loader on a merged-/usr system.
const USR_LINKS: [&str; 4] = ["/bin", "/lib", "/lib64", "/sbin"];
/// Upper bound of the memory file system the new root is on; it holds directories and mount points only.
const ROOT_TMPFS: &str = "size=1m,mode=0755";
/// The same of /dev.
const DEV_TMPFS: &str = "size=64k,mode=0755";
/// Permissions of a device made for the machine's user.
const DEVICE_MODE: Mode = Mode::from_bits_truncate(0o660);

/// Devices beside the basic ones.
pub(super) struct Devices<'a> {
    /// Their paths on the host; those that are not there are left out.
    pub(super) paths: &'a [PathBuf],
    /// The user they are created for; `None`: they are bound as they are.
    pub(super) owner: Option<u32>,
}

/// Waits until the shim has put this process where it belongs (its cgroup): it closes our standard input.
///
/// # Errors
/// When standard input cannot be read.
pub(super) fn wait_for_shim() -> Result<(), InitError> {
    let mut ignored = Vec::new();
    std::io::stdin()
        .take(64)
        .read_to_end(&mut ignored)
        .map(|_| ())
        .map_err(|error| InitError::system("wait for the shim", error))
}

/// Builds the new root at `root`, beside the directory shared with the supervisor, and moves into it.
///
/// # Errors
/// The mount that failed, by path.
pub(super) fn own_root(directory: &Path, readable: &[PathBuf], devices: &Devices<'_>) -> Result<(), InitError> {
    let parent = directory.parent().unwrap_or(directory);
    let root = parent.join("root");
    fs::create_dir_all(&root).map_err(|error| InitError::system(format!("create {}", root.display()), error))?;
    // What is made in it are places for mounts, which another user than ours passes through.
    let before = umask(Mode::S_IWGRP | Mode::S_IWOTH);
    call_mount(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    call_mount(Some(Path::new("tmpfs")), &root, Some("tmpfs"), flags, Some(ROOT_TMPFS))?;
    // For passt, which builds its own root there. Before what is bound: that may be below /tmp.
    make_directory(&root.join("tmp"))?;
    call_mount(Some(Path::new("tmpfs")), &root.join("tmp"), Some("tmpfs"), flags, Some("size=16m,mode=1777"))?;
    own_devices(&root.join("dev"), devices)?;
    for path in readable {
        bind(path, &root, Kind::Files)?;
    }
    for link in USR_LINKS {
        copy_link(Path::new(link), &root)?;
    }
    make_directory(&root.join("proc"))?;
    let proc_flags = flags | MsFlags::MS_NOEXEC;
    call_mount(Some(Path::new("proc")), &root.join("proc"), Some("proc"), proc_flags, None)?;
    enter(&root)?;
    umask(before);
    Ok(())
}

/// A /dev of its own: the only place in the new root where device nodes count.
fn own_devices(dev: &Path, devices: &Devices<'_>) -> Result<(), InitError> {
    make_directory(dev)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    call_mount(Some(Path::new("tmpfs")), dev, Some("tmpfs"), flags, Some(DEV_TMPFS))?;
    let root = dev.parent().unwrap_or(dev);
    for device in BASIC_DEVICES.map(Path::new) {
        bind(device, root, Kind::Device)?;
    }
    for device in devices.paths {
        match devices.owner {
            Some(owner) => make_device(device, root, owner)?,
            None => bind(device, root, Kind::Device)?,
        }
    }
    Ok(())
}

/// A node of the same driver as the host's, for the machine's user alone.
fn make_device(device: &Path, root: &Path, owner: u32) -> Result<(), InitError> {
    let Some(host) = fs::metadata(device).ok().filter(|host| host.file_type().is_char_device()) else { return Ok(()) };
    let target = below(root, device);
    make_directory(target.parent().unwrap_or(root))?;
    match mknod(&target, SFlag::S_IFCHR, DEVICE_MODE, host.rdev()) {
        Ok(()) => {}
        // Root of a container may not make nodes; the host's own is used then.
        Err(Errno::EPERM) => return bind(device, root, Kind::Device),
        Err(errno) => return Err(InitError::system(format!("make {}", target.display()), errno)),
    }
    // Whatever the umask took away.
    fs::set_permissions(&target, fs::Permissions::from_mode(DEVICE_MODE.bits()))
        .map_err(|error| InitError::system(format!("permit {}", target.display()), error))?;
    std::os::unix::fs::chown(&target, Some(owner), Some(owner))
        .map_err(|error| InitError::system(format!("give {} to user {owner}", target.display()), error))
}

fn enter(root: &Path) -> Result<(), InitError> {
    let old = root.join("old");
    make_directory(&old)?;
    pivot_root(root, &old).map_err(|errno| InitError::system("pivot into the new root", errno))?;
    std::env::set_current_dir("/").map_err(|error| InitError::system("enter the new root", error))?;
    umount2("/old", MntFlags::MNT_DETACH).map_err(|errno| InitError::system("leave the host's root", errno))?;
    fs::remove_dir("/old").map_err(|error| InitError::system("remove /old", error))
}

/// What a bound path is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Files that are only read, with all that is mounted among them.
    Files,
    /// A device.
    Device,
}

fn bind(path: &Path, root: &Path, kind: Kind) -> Result<(), InitError> {
    if !path.exists() {
        return Ok(());
    }
    let target = below(root, path);
    if path.is_dir() {
        make_directory(&target)?;
    } else {
        make_directory(target.parent().unwrap_or(root))?;
        fs::write(&target, b"").map_err(|error| InitError::system(format!("create {}", target.display()), error))?;
    }
    call_mount(Some(path), &target, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)?;
    let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | locked_flags(&target)?;
    match kind {
        Kind::Device => call_mount(None, &target, None, again | MsFlags::MS_NOEXEC, None),
        Kind::Files => match mounts::make_read_only(&target) {
            // Before Linux 5.12: then what is mounted below stays as it is.
            Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) => {
                call_mount(None, &target, None, again | MsFlags::MS_NODEV | MsFlags::MS_RDONLY, None)
            }
            other => other.map_err(|error| InitError::system(format!("make {} read-only", target.display()), error)),
        },
    }
}

/// What is already forbidden on a mount: in a user namespace the kernel insists that it stays so.
fn locked_flags(target: &Path) -> Result<MsFlags, InitError> {
    let found = statvfs(target).map_err(|errno| InitError::system(format!("examine {}", target.display()), errno))?;
    let pairs = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    let kept = pairs.into_iter().filter(|(flag, _)| found.flags().contains(*flag));
    Ok(kept.fold(MsFlags::empty(), |flags, (_, kept)| flags | kept))
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy_link(link: &Path, root: &Path) -> Result<(), InitError> {
    let Ok(destination) = fs::read_link(link) else { return Ok(()) };
    let target = below(root, link);
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    std::os::unix::fs::symlink(destination, &target)
        .map_err(|error| InitError::system(format!("link {}", target.display()), error))
}

fn make_directory(path: &Path) -> Result<(), InitError> {
    fs::create_dir_all(path).map_err(|error| InitError::system(format!("create {}", path.display()), error))
}

fn call_mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), InitError> {
    mount(source, target, kind, flags, options)
        .map_err(|errno| InitError::system(format!("mount {}", target.display()), errno))
}
