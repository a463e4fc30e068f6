//! Finds QEMU: where the caller named it, in `PATH`, or where distributions put it.
//!
//! A QEMU may also lie in a tree of its own, unpacked beside the installed one:
//!
//! ```text
//! <tree>/usr/bin/qemu-system-x86_64     then also  <tree>/usr/lib/*/qemu      modules
//!                                                  <tree>/usr/share/qemu, …   firmware
//! ```

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::root::HostRoot;

/// Its name everywhere except in the Red Hat family.
const NAME: &str = "qemu-system-x86_64";

/// Tried in this order after `PATH`.
const KNOWN: [&str; 4] =
    ["/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm"];

/// Directories of firmware below a tree, in the order QEMU of Debian looks at them.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// A QEMU binary and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuBinary {
    /// Absolute path, as found: a symbolic link stays one.
    pub path: PathBuf,
    /// Where its modules are, if not where it was built to find them.
    pub module_dir: Option<PathBuf>,
    /// Directories for `-L`, if its firmware is not where it was built to find it.
    pub firmware_dirs: Vec<PathBuf>,
}

/// There is no QEMU to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// The caller named one that is not there.
    #[error("{path} is not there or not executable")]
    NotExecutable {
        /// What the caller named.
        path: PathBuf,
    },
    /// None was named and none was found.
    #[error(
        "qemu-system-x86_64 was not found in PATH nor in {looked_at:?}; install one (Debian: apt install \
         qemu-system-x86) or name it with --qemu"
    )]
    NotFound {
        /// Where it could have been beside `PATH`.
        looked_at: Vec<PathBuf>,
    },
}

impl QemuBinary {
    /// The QEMU the caller named, else the first found.
    ///
    /// # Errors
    /// There is none.
    pub fn locate(root: &HostRoot, named: Option<&Path>, search_path: Option<&OsStr>) -> Result<Self, LocateError> {
        if let Some(named) = named {
            let path = std::path::absolute(named).unwrap_or_else(|_| named.to_path_buf());
            return if is_executable(&path) { Ok(Self::at(path)) } else { Err(LocateError::NotExecutable { path }) };
        }
        let in_path = search_path.map(std::env::split_paths).into_iter().flatten().filter(|each| each.is_absolute());
        let candidates = in_path.map(|directory| directory.join(NAME)).chain(KNOWN.map(PathBuf::from));
        candidates
            .map(|path| root.path(path))
            .find(|path| is_executable(path))
            .map(Self::at)
            .ok_or_else(|| LocateError::NotFound { looked_at: KNOWN.map(PathBuf::from).to_vec() })
    }

    fn at(path: PathBuf) -> Self {
        let tree = tree_of(&path);
        let module_dir = tree.as_deref().and_then(modules_below);
        let firmware_dirs = tree.map_or_else(Vec::new, |tree| {
            FIRMWARE.iter().map(|directory| tree.join(directory)).filter(|path| path.is_dir()).collect()
        });
        Self { path, module_dir, firmware_dirs }
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// `<tree>` if the binary really is in `<tree>/usr/bin` and the tree is not `/`.
fn tree_of(binary: &Path) -> Option<PathBuf> {
    let real = binary.canonicalize().ok()?;
    let directory = real.parent()?;
    let tree = directory.parent()?.parent()?;
    (directory == tree.join("usr/bin") && tree != Path::new("/")).then(|| tree.to_path_buf())
}

fn modules_below(tree: &Path) -> Option<PathBuf> {
    let libraries = tree.join("usr/lib");
    let architectures = std::fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut places: Vec<PathBuf> = architectures.chain([libraries, tree.join("usr/lib64")]).collect();
    places.sort();
    places.into_iter().map(|place| place.join("qemu")).find(|directory| has_modules(directory))
}

fn has_modules(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension() == Some(OsStr::new("so")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    fn executable(root: &HostRoot, path: &str) {
        std::fs::set_permissions(root.path(path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn path_comes_before_the_known_places() {
        let (_directory, root) = host_of(&[("/opt/qemu/qemu-system-x86_64", ""), ("/usr/libexec/qemu-kvm", "")]);
        executable(&root, "/usr/libexec/qemu-kvm");
        let search = OsStr::new("relative:/opt/qemu");
        let found = QemuBinary::locate(&root, None, Some(search)).unwrap();
        assert_eq!(found.path, root.path("/usr/libexec/qemu-kvm"), "what is not executable is passed over");
        executable(&root, "/opt/qemu/qemu-system-x86_64");
        let found = QemuBinary::locate(&root, None, Some(search)).unwrap();
        assert_eq!(found.path, root.path("/opt/qemu/qemu-system-x86_64"));
    }

    #[test]
    fn a_tree_beside_brings_its_modules_and_firmware() {
        let (_directory, root) = host_of(&[
            ("/cache/q/usr/bin/qemu-system-x86_64", ""),
            ("/cache/q/usr/lib/debug/x", ""),
            ("/cache/q/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so", ""),
            ("/cache/q/usr/share/seabios/bios-256k.bin", ""),
        ]);
        executable(&root, "/cache/q/usr/bin/qemu-system-x86_64");
        let named = root.path("/cache/q/usr/bin/qemu-system-x86_64");
        let found = QemuBinary::locate(&root, Some(&named), None).unwrap();
        let tree = root.path("/cache/q").canonicalize().unwrap();
        assert_eq!(found.module_dir, Some(tree.join("usr/lib/x86_64-linux-gnu/qemu")));
        assert_eq!(found.firmware_dirs, [tree.join("usr/share/seabios")]);
    }

    #[test]
    fn none_is_reported_and_a_named_one_is_never_replaced() {
        let (_directory, root) = host_of(&[("/usr/bin/qemu-kvm", "")]);
        assert!(matches!(QemuBinary::locate(&root, None, None), Err(LocateError::NotFound { .. })));
        executable(&root, "/usr/bin/qemu-kvm");
        let named = root.path("/not/there");
        let error = QemuBinary::locate(&root, Some(&named), None).unwrap_err();
        assert_eq!(error, LocateError::NotExecutable { path: named });
    }
}
