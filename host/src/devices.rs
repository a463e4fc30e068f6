//! Device nodes: their permissions, and whether we can open them.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::root::HostRoot;

/// Multiplies packets: guests are joined to networks with it.
pub const TUN: &str = "/dev/net/tun";
/// Moves packets in the kernel instead of QEMU.
pub const VHOST_NET: &str = "/dev/vhost-net";
/// The kernel's virtual machines.
pub const KVM: &str = "/dev/kvm";

/// A device node as this process finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Its path, without the prefix of the root.
    pub path: PathBuf,
    /// What opening it for reading and writing gave.
    pub access: DeviceAccess,
    /// Owner, group and permission bits; `None` if it is not there.
    pub permissions: Option<Permissions>,
}

/// What opening gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceAccess {
    /// It opens.
    Open,
    /// There is no such node.
    Missing,
    /// We may not.
    NotPermitted,
    /// It is there and we may, but its driver refuses: the kernel's error.
    Refused(String),
}

/// Owner, group and permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// User that owns it.
    pub uid: u32,
    /// Group that owns it.
    pub gid: u32,
    /// The lower twelve bits of the mode.
    pub mode: u32,
}

impl DeviceNode {
    /// Looks at a node and tries to open it.
    #[must_use]
    pub fn probe(root: &HostRoot, path: &str) -> Self {
        let real = root.path(path);
        let permissions = fs::metadata(&real).ok().map(|metadata| Permissions {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode() & 0o7777,
        });
        let flags = nix::libc::O_CLOEXEC | nix::libc::O_NONBLOCK;
        let access = match fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(&real) {
            Ok(_) => DeviceAccess::Open,
            Err(error) if error.kind() == io::ErrorKind::NotFound => DeviceAccess::Missing,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => DeviceAccess::NotPermitted,
            Err(error) => DeviceAccess::Refused(error.to_string()),
        };
        Self { path: path.into(), access, permissions }
    }

    /// Whether it opens.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.access == DeviceAccess::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    #[test]
    fn a_missing_node_is_distinguished_from_a_closed_one() {
        let (_directory, root) = host_of(&[("/dev/net/tun", "")]);
        assert_eq!(DeviceNode::probe(&root, VHOST_NET).access, DeviceAccess::Missing);
        assert!(DeviceNode::probe(&root, TUN).opens());
    }
}
