//! Which namespaces this process may make for a virtual machine.

use nix::errno::Errno;
use nix::sched::CloneFlags;

use crate::root::HostRoot;
use crate::sys::fork::try_unshare;

/// What making each namespace gave. As a user everything but the user namespace needs one of those first, so they are
/// tried together with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// User namespaces: the way to the others without root.
    pub user: Result<(), Errno>,
    /// Mount, pid, ipc, uts and network: what a machine's two processes live in. The first one refused.
    pub machine: Result<(), Refused>,
    /// `/proc/sys/user/max_user_namespaces`, if there is such a limit.
    pub max_user: Option<u64>,
}

/// A namespace the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name, as in `/proc/self/ns`.
    pub kind: &'static str,
    /// Why.
    pub errno: Errno,
}

const MACHINE: [(&str, CloneFlags); 5] = [
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("net", CloneFlags::CLONE_NEWNET),
];

/// Whether this process may make user namespaces; tried in a child that ends at once.
///
/// # Errors
/// The kernel's refusal.
pub fn user() -> Result<(), Errno> {
    try_unshare(CloneFlags::CLONE_NEWUSER)
}

impl Namespaces {
    /// Tries them, each in a child of its own that ends at once.
    #[must_use]
    pub fn probe(root: &HostRoot) -> Self {
        let user = user();
        let first = if nix::unistd::geteuid().is_root() { CloneFlags::empty() } else { CloneFlags::CLONE_NEWUSER };
        let machine = MACHINE
            .iter()
            .try_for_each(|(kind, flag)| try_unshare(first | *flag).map_err(|errno| Refused { kind, errno }));
        let max_user = root.read_trimmed("/proc/sys/user/max_user_namespaces").and_then(|text| text.parse().ok());
        Self { user, machine, max_user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_agrees_with_unshare_of_util_linux() {
        let tried = std::process::Command::new("unshare").args(["--net", "true"]).output();
        let Ok(output) = tried else {
            eprintln!("skipped: unshare of util-linux is not installed");
            return;
        };
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        assert_eq!(Namespaces::probe(&HostRoot::real()).machine.is_ok(), output.status.success());
    }

    #[test]
    fn this_process_keeps_its_namespaces() {
        let before = std::fs::read_link("/proc/self/ns/net").unwrap();
        let _ = Namespaces::probe(&HostRoot::real());
        assert_eq!(std::fs::read_link("/proc/self/ns/net").unwrap(), before);
    }
}
