//! From a volume to disks that QEMU can be given: one file per kind of volume.
//!
//! Each function opens or makes what it needs and returns [`Disk`]s: an open descriptor, its format and size, and what is
//! worth a warning. Names in manifests are resolved beneath directories only; existing files are not changed.

pub mod container_disk;
pub mod disc;
pub mod empty_disk;
pub mod ephemeral;
pub mod firmware_vars;
pub mod host_disk;
pub mod kernel_boot;
pub mod pvc;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::beneath::BeneathPath;
use crate::open::{Dir, Direct, DiskAccess, DiskKind, OpenError, OpenedDisk};
use crate::preflight::{PreflightError, SpaceCheck};
use crate::qcow2::{CreateError, ImageFacts, ProbeError};

/// A disk, ready for QEMU.
#[derive(Debug)]
pub struct Disk {
    /// The open file or device.
    pub opened: OpenedDisk,
    /// Format and size.
    pub facts: ImageFacts,
    /// Warnings for the user.
    pub warnings: Vec<Warning>,
}

/// An overlay that the guest writes to, and the image it reads what it has not written from.
#[derive(Debug)]
pub struct Layered {
    /// qcow2, written by us, no name of the base stored inside: give QEMU the base as `backing`.
    pub overlay: Disk,
    /// Read-only.
    pub base: Disk,
}

/// Something that works and may surprise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A raw disk begins like a qcow2 image. It is used as raw all the same.
    LooksLikeQcow2,
    /// The guest can write more than there is space for.
    Overcommitted {
        /// Bytes the guest may come to write.
        wanted_bytes: u64,
        /// Bytes free now.
        available_bytes: u64,
    },
    /// The file that was made is smaller than asked for, within the tolerated share.
    SmallerThanAsked {
        /// Size asked for, in bytes.
        wanted_bytes: u64,
        /// Size made, in bytes.
        made_bytes: u64,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LooksLikeQcow2 => f.write_str(
                "the disk begins like a qcow2 image but is used as raw, as a volume always is; convert it with \
                 `qemu-img convert -O raw` if the guest does not find its system",
            ),
            Self::Overcommitted { wanted_bytes, available_bytes } => write!(
                f,
                "the guest may write {wanted_bytes} bytes and only {available_bytes} are free; it will be paused when \
                 they are used up"
            ),
            Self::SmallerThanAsked { wanted_bytes, made_bytes } => {
                write!(
                    f,
                    "{wanted_bytes} bytes were asked for and only {made_bytes} are there; the disk has the latter"
                )
            }
        }
    }
}

/// Why a volume could not be made into a disk.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Opening or creating.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Not an image we serve.
    #[error("the image {image} cannot be used")]
    Image {
        /// The image, as a path.
        image: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ProbeError,
    },
    /// Writing a new image.
    #[error("could not create the disk {disk}")]
    Create {
        /// The disk, as a path.
        disk: PathBuf,
        /// How it failed.
        #[source]
        source: CreateError,
    },
    /// No space, or a lock.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// A container disk without a disk.
    #[error("the container disk has no file under /disk; add one, or name it with `path`")]
    NoDisk,
    /// A container disk with several.
    #[error("the container disk has several files under /disk ({names}); name one with `path`")]
    SeveralDisks {
        /// The names, cut after a few.
        names: String,
    },
    /// Variables that this firmware did not write.
    #[error(
        "{path} has {bytes} bytes, and the variables of this firmware have {wanted_bytes}: it is of another firmware; move it \
         away to start with new variables"
    )]
    OtherFirmware {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size of the firmware's own.
        wanted_bytes: u64,
    },
    /// An empty file where a kernel should be.
    #[error("{path} in the kernel boot image is empty; check kernelPath and initrdPath")]
    EmptyKernel {
        /// The path.
        path: PathBuf,
    },
    /// A new file would be too small.
    #[error(
        "{disk} needs {wanted_bytes} bytes and only {available_bytes} are free, which is less than the tolerated share; \
         free some space or ask for a smaller disk"
    )]
    TooSmall {
        /// The disk, as a path.
        disk: PathBuf,
        /// Size asked for, in bytes.
        wanted_bytes: u64,
        /// Bytes free.
        available_bytes: u64,
    },
    /// A size of nothing.
    #[error("{disk} does not exist and no size is given for it; set `capacity`")]
    NoSize {
        /// The disk, as a path.
        disk: PathBuf,
    },
    /// A path on the host that is not one.
    #[error("{path} is not a path of a file; write it absolute, for example /var/lib/disks/a.img")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The memory of a disc.
    #[error("could not create a disc in memory; see the cause")]
    Memory(#[source] std::io::Error),
}

/// Where a new file goes.
#[derive(Debug, Clone, Copy)]
pub enum Placement<'a> {
    /// Under a name, so that the kubelet counts it; what had the name before is removed.
    Named {
        /// The directory, ours alone.
        dir: &'a Dir,
        /// Its name there.
        name: &'a BeneathPath,
    },
    /// Without a name: gone with QEMU, even if all processes are killed.
    Nameless {
        /// The directory whose file system is used.
        dir: &'a Dir,
    },
}

impl Placement<'_> {
    fn dir(&self) -> &Dir {
        match self {
            Self::Named { dir, .. } | Self::Nameless { dir } => dir,
        }
    }

    /// The path for messages.
    fn shown(&self) -> PathBuf {
        match self {
            Self::Named { dir, name } => dir.path().join(name.as_path()),
            Self::Nameless { dir } => dir.path().join("(a file without a name)"),
        }
    }

    fn create(&self) -> Result<File, OpenError> {
        match self {
            Self::Named { dir, name } => {
                dir.remove_file(name)?;
                dir.create_file(name)
            }
            Self::Nameless { dir } => dir.create_nameless(),
        }
    }
}

/// Makes a writable qcow2 that the guest may fill.
fn new_qcow2(placement: Placement<'_>, virtual_bytes: u64, direct: Direct) -> Result<Disk, SourceError> {
    let first_bytes = crate::qcow2::host_bytes_of_empty(virtual_bytes);
    let room = crate::preflight::room_for(placement.dir(), first_bytes, virtual_bytes.saturating_add(first_bytes))?;
    let file = placement.create()?;
    let failed = |source| SourceError::Create { disk: placement.shown(), source };
    crate::qcow2::create_empty(&file, virtual_bytes).map_err(failed)?;
    let mut opened = OpenedDisk {
        fd: OwnedFd::from(file),
        size_bytes: first_bytes,
        kind: DiskKind::File,
        access: DiskAccess::ReadWrite,
        direct: false,
    };
    opened.bypass_cache(direct, &placement.shown())?;
    let warnings = match room {
        SpaceCheck::Enough => Vec::new(),
        SpaceCheck::Overcommitted { wanted_bytes, available_bytes } => {
            vec![Warning::Overcommitted { wanted_bytes, available_bytes }]
        }
    };
    Ok(Disk { opened, facts: ImageFacts { format: crate::qcow2::Format::Qcow2, virtual_bytes }, warnings })
}

/// A disk that is raw by rule. `shown` is its path, for messages.
fn raw(opened: OpenedDisk, shown: PathBuf) -> Result<Disk, SourceError> {
    let facts =
        crate::qcow2::raw_facts(opened.size_bytes).map_err(|source| SourceError::Image { image: shown, source })?;
    Ok(Disk { opened, facts, warnings: Vec::new() })
}

#[cfg(test)]
mod tests;
