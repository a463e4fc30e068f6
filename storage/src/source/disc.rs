//! Seed media and file trees: discs in memory. Nothing of a Secret is ever written to a file system.
//!
//! The memory file is sealed before QEMU gets it: its size always, its content too unless the guest sees a disk that it
//! may write to. What it writes then is its own copy, gone with QEMU.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

use super::{Disk, SourceError};
use crate::iso::{DiscTree, TreeError, VolumeLabel, image};
use crate::open::{DiskAccess, DiskKind, OpenedDisk};
use crate::qcow2::{Format, ImageFacts};

/// Nothing, behind the file system: some readers look ahead and fail at the end of a small disc (busybox asks for 68 KiB
/// before it prints a label), so tools that make discs leave 150 sectors too. It takes no memory.
const PADDING_BYTES: u64 = 150 * 2048;

/// Makes the disc of a tree: cloud-init's drives, answer files, anything of [`crate::seed`]. `access` is the guest's.
///
/// # Errors
/// [`SourceError::Memory`].
pub fn of_tree(tree: &DiscTree, label: &VolumeLabel, access: DiskAccess) -> Result<Disk, SourceError> {
    let bytes = image(tree, label);
    let opened = sealed(&bytes, access).map_err(SourceError::Memory)?;
    let facts = ImageFacts { format: Format::Raw, virtual_bytes: opened.size_bytes };
    Ok(Disk { opened, facts, warnings: Vec::new() })
}

/// The tree of a ConfigMap, Secret, downward API volume or service account: its files as they are, readable by all.
///
/// # Errors
/// [`TreeError`]: names or sizes that do not fit on a disc.
pub fn files(files: &BTreeMap<String, Vec<u8>>) -> Result<DiscTree, TreeError> {
    crate::seed::files_disc(files)
}

/// Bytes in a sealed memory file, open for exactly this access.
///
/// QEMU's fd sets hand a descriptor out only for the access mode it was opened with, so a read-only disk needs a
/// read-only descriptor and any other a writable one.
fn sealed(bytes: &[u8], access: DiskAccess) -> std::io::Result<OpenedDisk> {
    let memory = memfd_create(c"garboard-disc", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    let size_bytes = bytes.len() as u64 + PADDING_BYTES;
    file.set_len(size_bytes)?;
    let mut seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    seals.set(SealFlag::F_SEAL_WRITE, access == DiskAccess::ReadOnly);
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    let fd = match access {
        DiskAccess::ReadWrite => file.into(),
        DiskAccess::ReadOnly => open_for_reading(&file)?,
    };
    Ok(OpenedDisk { fd, size_bytes, kind: DiskKind::File, access, direct: false })
}

/// Our own descriptor of an unlinked memory file: no other process can exchange what this name means.
fn open_for_reading(file: &File) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    nix::fcntl::open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::iso::Readers;
    use crate::seed::NoCloud;

    #[test]
    fn a_disc_is_whole_sectors_of_sealed_memory() {
        let seed = NoCloud { instance_id: "1".into(), user_data: b"#cloud-config\n".to_vec(), ..NoCloud::default() };
        let disk = of_tree(&seed.tree().unwrap(), &NoCloud::label(), DiskAccess::ReadOnly).unwrap();
        assert_eq!(disk.facts.virtual_bytes % 2048, 0);
        assert!(disk.facts.virtual_bytes > PADDING_BYTES, "also the smallest disc is long enough to look ahead on");
        assert_eq!(disk.opened.access, DiskAccess::ReadOnly);
        let file = File::from(disk.opened.fd);
        let mut mark = [0; 5];
        file.read_exact_at(&mut mark, 16 * 2048 + 1).unwrap();
        assert_eq!(&mark, b"CD001");
        assert!(file.write_at(b"x", 0).is_err());
        let again = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert!(again.and_then(|file| file.write_at(b"x", 0)).is_err(), "the seal holds for every process");
    }

    #[test]
    fn a_disc_on_a_writable_disk_keeps_its_size() {
        let seed = NoCloud { instance_id: "1".into(), user_data: b"#cloud-config\n".to_vec(), ..NoCloud::default() };
        let disk = of_tree(&seed.tree().unwrap(), &NoCloud::label(), DiskAccess::ReadWrite).unwrap();
        assert_eq!(disk.opened.access, DiskAccess::ReadWrite);
        let file = File::from(disk.opened.fd);
        file.write_all_at(b"x", 0).unwrap();
        assert!(file.write_at(b"x", disk.opened.size_bytes).is_err(), "a guest cannot make it take more memory");
        assert!(file.set_len(0).is_err());
    }

    #[test]
    fn files_of_a_config_map_are_readable_by_all() {
        let tree = files(&BTreeMap::from([("app.conf".to_owned(), b"a=1\n".to_vec())])).unwrap();
        assert_eq!(tree.readers(), Readers::All);
        assert!(of_tree(&tree, &VolumeLabel::files(), DiskAccess::ReadOnly).is_ok());
    }
}
