//! What this process may do.

use crate::root::HostRoot;

/// `CAP_NET_ADMIN` of `include/uapi/linux/capability.h`.
const NET_ADMIN: u32 = 12;
/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;
/// `CAP_SETUID`, `CAP_SETGID`, `CAP_CHOWN`, `CAP_MKNOD`: what making a machine's two processes another user takes.
const OTHERS: [u32; 4] = [7, 6, 0, 27];

/// User, capabilities and user namespace of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Effective user ID.
    pub euid: u32,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// We are in the user namespace the host started with.
    pub initial_user_namespace: bool,
}

impl Privileges {
    /// Reads `/proc/self`.
    #[must_use]
    pub fn read(root: &HostRoot) -> Self {
        let status = root.read("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let euid = field("Uid").and_then(|ids| ids.split_whitespace().nth(1)).and_then(|id| id.parse().ok());
        let capabilities = field("CapEff").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        // "0 0 4294967295": every ID is itself.
        let map = root.read_trimmed("/proc/self/uid_map").unwrap_or_default();
        let initial_user_namespace = map.split_whitespace().eq(["0", "0", "4294967295"]);
        let euid = euid.unwrap_or_else(|| nix::unistd::geteuid().as_raw());
        Self { euid, capabilities, initial_user_namespace }
    }

    fn has(self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    /// May make network devices.
    #[must_use]
    pub fn net_admin(self) -> bool {
        self.has(NET_ADMIN)
    }

    /// Root of the host, with what that normally brings: not root of a container.
    #[must_use]
    pub fn is_root(self) -> bool {
        let capable = [NET_ADMIN, SYS_ADMIN].into_iter().chain(OTHERS).all(|capability| self.has(capability));
        self.euid == 0 && self.initial_user_namespace && capable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    fn read(uid: &str, capabilities: &str, map: &str) -> Privileges {
        let status = format!("Name:\tx\nUid:\t1\t{uid}\t1\t1\nCapEff:\t{capabilities}\n");
        let (_directory, root) = host_of(&[("/proc/self/status", &status), ("/proc/self/uid_map", map)]);
        Privileges::read(&root)
    }

    #[test]
    fn root_of_a_container_is_not_root_of_the_host() {
        let whole = "         0          0 4294967295\n";
        assert!(read("0", "000001ffffffffff", whole).is_root());
        assert!(!read("0", "000001ffffffffff", "0 100000 65536\n").is_root());
        assert!(!read("1000", "000001ffffffffff", whole).is_root());
        // Docker's default set.
        assert!(!read("0", "00000000a80425fb", whole).is_root());
    }

    #[test]
    fn a_user_with_one_capability_has_that_one() {
        let user = read("1000", "0000000000001000", "0 0 4294967295");
        assert!(user.net_admin() && !user.is_root());
    }
}
