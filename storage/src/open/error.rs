//! Why a disk could not be opened.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::DiskAccess;

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing there.
    #[error("there is no {path}; check the name, or create the file first")]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// Something else than a disk.
    #[error("{path} is a {found}, where {expected} is expected; point the volume at one")]
    WrongKind {
        /// The path asked for.
        path: PathBuf,
        /// What is there.
        found: &'static str,
        /// What may be there.
        expected: &'static str,
    },
    /// A symbolic link inside a tenant's directory.
    #[error("{path} is, or passes through, a symbolic link; inside a volume or an image put the file itself there")]
    SymbolicLink {
        /// The path asked for.
        path: PathBuf,
    },
    /// The name leads out of its directory.
    #[error("{path} leads out of its directory; use a path that stays inside")]
    Escapes {
        /// The path asked for.
        path: PathBuf,
    },
    /// Permission.
    #[error("{path} may not be opened for {purpose}; give this user the permission, or mark the disk readonly")]
    Denied {
        /// The path asked for.
        path: PathBuf,
        /// Reading, or reading and writing.
        purpose: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A writable disk on a read-only file system.
    #[error("{path} is on a read-only file system; mark the disk readonly, or mount the file system writable")]
    ReadOnlyFileSystem {
        /// The path asked for.
        path: PathBuf,
    },
    /// `cache: none` on a file system without O_DIRECT.
    #[error("{path} is on a file system without direct I/O; leave `cache` unset or choose `writethrough`")]
    NoDirect {
        /// The path asked for.
        path: PathBuf,
    },
    /// A block device that another process writes.
    #[error(
        "{path} is in use by another running VM of this host, or by the host itself (mounted, RAID, LVM); stop that VM, or \
         release it there first"
    )]
    InUse {
        /// The path asked for.
        path: PathBuf,
    },
    /// Another file took the name while we looked.
    #[error("{path} was replaced while it was being opened; another process changes this directory, try again")]
    Replaced {
        /// The path asked for.
        path: PathBuf,
    },
    /// Creation met something.
    #[error("{path} exists already; remove it or choose another name")]
    Exists {
        /// The path asked for.
        path: PathBuf,
    },
    /// Full.
    #[error("no space is left for {path}; free some, or choose another directory")]
    NoSpace {
        /// The path asked for.
        path: PathBuf,
    },
    /// A kernel before 5.6, or a container runtime that hides the call.
    #[error("this kernel lacks openat2, needed to open {path} safely; use Linux 5.6 or newer")]
    NoOpenat2 {
        /// The path asked for.
        path: PathBuf,
    },
    /// A file longer than its reader allows.
    #[error("{path} is larger than the {most_bytes} bytes allowed here; make it smaller")]
    TooLarge {
        /// The path asked for.
        path: PathBuf,
        /// The limit in bytes.
        most_bytes: u64,
    },
    /// Everything else.
    #[error("could not {attempt} {path}; see the cause")]
    Io {
        /// The path asked for.
        path: PathBuf,
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The kernel's answer as a refusal.
#[expect(clippy::wildcard_enum_match_arm, reason = "the kernel has many errors, and these have a remedy")]
pub(super) fn refusal(errno: Errno, path: &Path, access: DiskAccess, attempt: &'static str) -> OpenError {
    let path = path.to_path_buf();
    match errno {
        Errno::ENOENT => OpenError::Missing { path },
        Errno::ELOOP => OpenError::SymbolicLink { path },
        Errno::EXDEV => OpenError::Escapes { path },
        Errno::EACCES | Errno::EPERM => {
            let purpose = match access {
                DiskAccess::ReadOnly => "reading",
                DiskAccess::ReadWrite => "reading and writing",
            };
            OpenError::Denied { path, purpose, source: errno.into() }
        }
        Errno::EROFS => OpenError::ReadOnlyFileSystem { path },
        Errno::EEXIST => OpenError::Exists { path },
        Errno::ENOSPC | Errno::EDQUOT => OpenError::NoSpace { path },
        Errno::ENOSYS => OpenError::NoOpenat2 { path },
        Errno::ENOTDIR => OpenError::Missing { path },
        other => OpenError::Io { path, attempt, source: other.into() },
    }
}
