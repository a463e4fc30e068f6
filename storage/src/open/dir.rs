//! Directories held open, and everything that is done beneath them.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, ResolveFlag, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::error::refusal;
use super::{DiskAccess, OpenError, OpenedDisk, Opening, Place, kind_name, open_at};
use crate::beneath::BeneathPath;
use crate::direct;

/// A directory held open, so that its name cannot be exchanged under us.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// How symbolic links inside a [`Dir`] are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Any link is an error.
    Refused,
    /// Followed as long as they stay beneath the directory: the kubelet publishes ConfigMaps and Secrets this way.
    Inside,
}

impl Links {
    fn resolve(self) -> ResolveFlag {
        let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match self {
            Self::Refused => beneath | ResolveFlag::RESOLVE_NO_SYMLINKS,
            Self::Inside => beneath,
        }
    }
}

impl Dir {
    /// Opens a directory at a path of our own or the operator's.
    ///
    /// # Errors
    /// [`OpenError::Missing`], [`OpenError::WrongKind`] and the like.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty()).map_err(|errno| {
            if errno == Errno::ENOTDIR {
                return OpenError::WrongKind { path: path.to_path_buf(), found: "file", expected: "a directory" };
            }
            refusal(errno, path, DiskAccess::ReadOnly, "open")
        })?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    /// A directory beneath this one.
    ///
    /// # Errors
    /// As [`Dir::open_disk`].
    pub fn open_folder(&self, name: &BeneathPath, links: Links) -> Result<Self, OpenError> {
        let place = self.place(name, links);
        let fd = place.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty(), DiskAccess::ReadOnly)?;
        Ok(Self { fd, path: place.shown })
    }

    /// The path it was opened at, for messages; the descriptor is what counts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn place<'a>(&'a self, name: &'a BeneathPath, links: Links) -> Place<'a> {
        let shown = self.path.join(name.as_path());
        Place { dir: self.fd.as_fd(), name: name.as_path(), shown, resolve: links.resolve() }
    }

    /// Opens a disk beneath this directory; no symbolic links, no way out.
    ///
    /// # Errors
    /// [`OpenError`], naming the path and what to do.
    pub fn open_disk(&self, name: &BeneathPath, opening: Opening) -> Result<OpenedDisk, OpenError> {
        open_at(&self.place(name, Links::Refused), opening)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`Dir::open_disk`].
    pub fn open_file(&self, name: &BeneathPath, links: Links) -> Result<File, OpenError> {
        open_at(&self.place(name, links), Opening::BASE).map(|disk| File::from(disk.fd))
    }

    /// Reads a small regular file.
    ///
    /// # Errors
    /// As [`Dir::open_disk`], and [`OpenError::TooLarge`] beyond `most_bytes`.
    pub fn read_file(&self, name: &BeneathPath, links: Links, most_bytes: u64) -> Result<Vec<u8>, OpenError> {
        use std::io::Read;
        let place = self.place(name, links);
        let disk = open_at(&place, Opening::BASE)?;
        if disk.size_bytes > most_bytes {
            return Err(OpenError::TooLarge { path: place.shown, most_bytes });
        }
        let mut content = Vec::new();
        // One byte more than allowed, because the file may grow between fstat and read.
        File::from(disk.fd).take(most_bytes + 1).read_to_end(&mut content).map_err(|source| OpenError::Io {
            path: place.shown.clone(),
            attempt: "read",
            source,
        })?;
        if content.len() as u64 > most_bytes {
            return Err(OpenError::TooLarge { path: place.shown, most_bytes });
        }
        Ok(content)
    }

    /// Names of the entries, sorted, at most `most`.
    ///
    /// # Errors
    /// [`OpenError::Io`], also when there are more than `most`.
    pub fn names(&self, most: usize) -> Result<Vec<OsString>, OpenError> {
        use std::os::unix::ffi::OsStringExt;
        let failed = |source| OpenError::Io { path: self.path.clone(), attempt: "list", source };
        // A fresh description: reading a directory moves its offset, which a duplicate would share.
        let again =
            nix::fcntl::openat(&self.fd, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let mut listing = again.and_then(nix::dir::Dir::from_fd).map_err(|errno| failed(errno.into()))?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let name = entry.map_err(|errno| failed(errno.into()))?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                return Err(failed(io::Error::other(format!("more than {most} entries"))));
            }
            names.push(OsString::from_vec(name));
        }
        names.sort();
        Ok(names)
    }

    /// What is at `name` without following a link: `None` when nothing does.
    ///
    /// # Errors
    /// [`OpenError::Io`].
    pub fn look_at(&self, name: &BeneathPath) -> Result<Option<&'static str>, OpenError> {
        match nix::sys::stat::fstatat(&self.fd, name.as_path(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(kind_name(&stat))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(refusal(errno, &self.path.join(name.as_path()), DiskAccess::ReadOnly, "look at")),
        }
    }

    /// Creates a regular file that did not exist, readable and writable by its owner only; open for both.
    ///
    /// # Errors
    /// [`OpenError::Exists`] and the like.
    pub fn create_file(&self, name: &BeneathPath) -> Result<File, OpenError> {
        let place = self.place(name, Links::Refused);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        place.open(flags, Mode::from_bits_truncate(0o600), DiskAccess::ReadWrite).map(File::from)
    }

    /// Creates a regular file of a length, all of it a hole; `false` if something is at `name` already. It gets its
    /// name when it is whole: one that cannot be that long, or whose maker dies, is never taken for a disk.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing is left.
    pub fn create_sized(&self, name: &BeneathPath, bytes: u64, mode: u32) -> Result<bool, OpenError> {
        if self.look_at(name)?.is_some() {
            return Ok(false);
        }
        // Another name until then, and not none: network file systems have no files without.
        let fresh = fresh_name();
        let made = self.create_whole(&fresh, name, bytes, mode).and_then(|()| self.rename_new(&fresh, name));
        // It is not there any more if the file system has no second names.
        let _ = unlinkat(&self.fd, fresh.as_path(), UnlinkatFlags::NoRemoveDir);
        made
    }

    /// `name` is what it will be called, for messages.
    fn create_whole(&self, fresh: &Path, name: &BeneathPath, bytes: u64, mode: u32) -> Result<(), OpenError> {
        let place = Place { name: fresh, ..self.place(name, Links::Refused) };
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = place.open(flags, Mode::from_bits_truncate(mode), DiskAccess::ReadWrite).map(File::from)?;
        let sized = file.set_len(bytes).and_then(|()| file.sync_all());
        sized.map_err(|source| OpenError::Io { path: place.shown, attempt: "set the length of", source })
    }

    /// Whether the name was free; what has it keeps it.
    pub(super) fn rename_new(&self, fresh: &Path, name: &BeneathPath) -> Result<bool, OpenError> {
        let named = match linkat(&self.fd, fresh, &self.fd, name.as_path(), AtFlags::empty()) {
            // This file system has no second names for a file.
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                renameat2(&self.fd, fresh, &self.fd, name.as_path(), RenameFlags::RENAME_NOREPLACE)
            }
            other => other,
        };
        match named {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(refusal(errno, &self.path.join(name.as_path()), DiskAccess::ReadWrite, "create")),
        }
    }

    /// Creates a file without a name: it is gone with its last descriptor, whatever happens to us.
    ///
    /// # Errors
    /// [`OpenError::Io`] where the file system cannot (`O_TMPFILE`).
    pub fn create_nameless(&self) -> Result<File, OpenError> {
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
        nix::fcntl::openat(&self.fd, ".", flags, Mode::from_bits_truncate(0o600))
            .map(File::from)
            .map_err(|errno| refusal(errno, &self.path, DiskAccess::ReadWrite, "create a file without a name in"))
    }

    /// Gives a file from [`Dir::create_nameless`] a name; a name that another process made first is fine.
    ///
    /// # Errors
    /// [`OpenError::Io`].
    pub fn publish(&self, file: &File, name: &BeneathPath) -> Result<(), OpenError> {
        // By way of /proc, because AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH (open(2), O_TMPFILE).
        let nameless = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let linked = linkat(AT_FDCWD, &nameless, &self.fd, name.as_path(), AtFlags::AT_SYMLINK_FOLLOW);
        match linked {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(refusal(errno, &self.path.join(name.as_path()), DiskAccess::ReadWrite, "create")),
        }
    }

    /// Removes a file; that there is none is fine.
    ///
    /// # Errors
    /// [`OpenError::Io`], also when the name is a directory.
    pub fn remove_file(&self, name: &BeneathPath) -> Result<(), OpenError> {
        match unlinkat(&self.fd, name.as_path(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(refusal(errno, &self.path.join(name.as_path()), DiskAccess::ReadWrite, "remove")),
        }
    }

    /// Whether files in this directory can bypass the page cache; tried on a nameless file.
    ///
    /// # Errors
    /// As [`Dir::create_nameless`].
    pub fn supports_direct(&self) -> Result<bool, OpenError> {
        let probe = self.create_nameless()?;
        probe.set_len(4096).map_err(|source| OpenError::Io {
            path: self.path.clone(),
            attempt: "write a probe file in",
            source,
        })?;
        Ok(direct::enable(probe.as_fd()).is_ok())
    }
}

/// A name that nothing has: the standard library seeds its hash tables with an unpredictable number.
fn fresh_name() -> PathBuf {
    let number = RandomState::new().build_hasher().finish();
    PathBuf::from(format!(".garboard-{number:016x}"))
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
