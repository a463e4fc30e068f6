//! A `/dev` of the agent's own, with the devices it opens and no other. A privileged container has all devices of the node, and
//! a process of root can open each of them, raw disks too, without any capability.
//!
//! What is there when the agent starts is all it ever has: see [`crate::device::health::newcomer`].

use std::fs::{DirBuilder, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use garboard_host::devices::{KVM, TUN, VHOST_NET};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;

use super::ConfineError;

/// Devices of the node that are opened, for which the agent is privileged.
pub(super) const OF_THE_NODE: [&str; 3] = [KVM, TUN, VHOST_NET];
/// What libraries open.
pub(super) const HARMLESS: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// Goes to a mount namespace of its own, in which `/dev` has these alone. Where a device is missing, so is its name.
pub(super) fn keep() -> Result<(), ConfineError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(ConfineError::Devices)?;
    change(None, "/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    // In the new namespace: a mount of another one cannot be bound.
    let wanted = OF_THE_NODE.into_iter().chain(HARMLESS);
    let devices: Vec<(&str, OwnedFd)> = wanted.filter_map(|path| Some(path).zip(opened(path))).collect();
    let none = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let empty: Option<&str> = Some("tmpfs");
    mount(empty, "/dev", empty, none, Some("mode=755,size=64k")).map_err(ConfineError::Devices)?;
    for (path, device) in &devices {
        place(path).map_err(ConfineError::Places)?;
        let source = format!("/proc/self/fd/{}", device.as_raw_fd());
        change(Some(&source), path, MsFlags::MS_BIND)?;
    }
    change(None, "/dev", MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | none)
}

/// A descriptor of its place (`O_PATH`), not of the device.
fn opened(path: &str) -> Option<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()
}

fn change(source: Option<&str>, target: &str, flags: MsFlags) -> Result<(), ConfineError> {
    let nothing: Option<&str> = None;
    mount(source, target, nothing, flags, nothing).map_err(ConfineError::Devices)
}

/// An empty file to bind a device to.
fn place(path: &str) -> std::io::Result<()> {
    if let Some(directory) = Path::new(path).parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    File::create(path).map(drop)
}
