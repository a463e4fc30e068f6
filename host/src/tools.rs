//! Programs of other packages that are started for a machine.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::root::HostRoot;

/// Where they are looked for. Fixed, and not `PATH`: some of them are started as root.
const DIRECTORIES: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Absolute paths of what is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Network rules.
    pub nft: Option<PathBuf>,
    /// A user's network without privileges.
    pub passt: Option<PathBuf>,
    /// Makes and converts disk images.
    pub qemu_img: Option<PathBuf>,
}

impl Tools {
    /// Looks for them.
    #[must_use]
    pub fn find(root: &HostRoot) -> Self {
        Self { nft: find(root, "nft"), passt: find(root, "passt"), qemu_img: find(root, "qemu-img") }
    }
}

fn find(root: &HostRoot, name: &str) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        root.path(path).metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    DIRECTORIES.iter().map(|directory| PathBuf::from(directory).join(name)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    #[test]
    fn only_executables_are_found() {
        let (_directory, root) = host_of(&[("/usr/bin/passt", ""), ("/usr/sbin/nft", "")]);
        std::fs::set_permissions(root.path("/usr/sbin/nft"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let expected = Tools { nft: Some("/usr/sbin/nft".into()), ..Tools::default() };
        assert_eq!(Tools::find(&root), expected);
    }
}
