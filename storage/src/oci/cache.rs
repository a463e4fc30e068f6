//! The image cache: files addressed by content, shared by all VMs of a host.
//!
//! ```text
//! CACHE/lock                       shared by downloads, exclusive for pruning
//! CACHE/locks/<digest>             one fetches an image or layer, the others wait for it
//! CACHE/blobs/sha256/<hex>[.part]  layers on their way: .part grows and is resumed; gone once unpacked
//! CACHE/files/sha256/<hex>         disks and kernels, mode 0644, named by their content
//! CACHE/images/<digest>.json       what was found in the image of that manifest
//! CACHE/names/<digest>.json        which manifest a reference meant, and when
//! CACHE/unfinished/                files being written; renamed when whole
//! ```
//!
//! A file has its final name only when it is whole and its digest was checked, so a reader needs no lock. Pruning removes
//! names, not content in use: a running VM holds descriptors.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::digest::{Digest, Hasher};
use super::record::FileRecord;
use crate::directory;

/// Content is written in pieces of this size, and pieces of zeros are left out.
pub(super) const PIECE_BYTES: usize = 64 << 10;

const FOLDERS: [&str; 7] = ["locks", "blobs", "blobs/sha256", "blobs/sha512", "files", "images", "names"];
const MORE_FOLDERS: [&str; 2] = ["files/sha256", "unfinished"];

/// Why the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Full.
    #[error("no space is left in the image cache {cache}; run `garboard image prune`, or use another directory")]
    NoSpace {
        /// The cache.
        cache: PathBuf,
    },
    /// Not enough for what is to come.
    #[error(
        "the image needs {wanted_bytes} bytes and the cache {cache} has {available_bytes} free; run `garboard image prune`, \
         or use another directory"
    )]
    TooSmall {
        /// The cache.
        cache: PathBuf,
        /// Bytes still to come.
        wanted_bytes: u64,
        /// Bytes free.
        available_bytes: u64,
    },
    /// Pruning beside a download, or the reverse.
    #[error("the image cache {cache} is in use by another command; try again when it has ended")]
    Busy {
        /// The cache.
        cache: PathBuf,
    },
    /// Everything else.
    #[error("could not {attempt} {path} in the image cache; check its permissions and the disk it is on")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A directory with images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// Held while something is done; released when dropped.
#[derive(Debug)]
pub(super) struct Held(#[expect(dead_code, reason = "held for its lock")] Flock<File>);

impl Cache {
    /// Opens a cache, making what is missing of it.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn open(root: &Path) -> Result<Self, CacheError> {
        let cache = Self { root: root.to_path_buf() };
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| CacheError::Io { attempt: "make the directory", path, source }
        };
        if let Some(parent) = root.parent() {
            directory::make_all(parent, 0o711).map_err(failed(parent))?;
        }
        for folder in [""].into_iter().chain(FOLDERS).chain(MORE_FOLDERS) {
            let path = root.join(folder);
            // A supervisor of another user reads here.
            directory::make(&path, 0o755).map_err(failed(&path))?;
        }
        cache.tidy();
        Ok(cache)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn join(&self, place: impl AsRef<Path>) -> PathBuf {
        self.root.join(place)
    }

    /// The final place of a file.
    pub(super) fn file(&self, digest: &Digest) -> PathBuf {
        self.join("files").join(digest.place())
    }

    /// The place of a layer that was downloaded and checked.
    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.join("blobs").join(digest.place())
    }

    /// The place of a layer while it is downloaded.
    pub(super) fn part(&self, digest: &Digest) -> PathBuf {
        self.join("blobs").join(format!("{}.part", digest.place()))
    }

    /// Keeps pruning away; [`CacheError::Busy`] while another process prunes.
    pub(super) fn hold(&self) -> Result<Held, CacheError> {
        self.lock(&self.join("lock"), FlockArg::LockSharedNonblock)
    }

    /// Excludes all others; [`CacheError::Busy`] while another process is here.
    pub(super) fn hold_alone(&self) -> Result<Held, CacheError> {
        self.lock(&self.join("lock"), FlockArg::LockExclusiveNonblock)
    }

    /// Keeps an image or layer to ourselves; [`CacheError::Busy`] while another works on it.
    pub(super) fn hold_content(&self, digest: &Digest) -> Result<Held, CacheError> {
        self.lock(&self.join("locks").join(digest.file_name()), FlockArg::LockExclusiveNonblock)
    }

    /// Removes what killed processes left half-written. Only when no other process is here, as it may be writing.
    fn tidy(&self) {
        let Ok(_alone) = self.hold_alone() else { return };
        let Ok(entries) = fs::read_dir(self.join("unfinished")) else { return };
        for entry in entries.flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }

    fn lock(&self, path: &Path, how: FlockArg) -> Result<Held, CacheError> {
        let failed = |source| CacheError::Io { attempt: "lock", path: path.to_path_buf(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
        let mut file = file.map_err(failed)?;
        loop {
            match Flock::lock(file, how) {
                Ok(held) => return Ok(Held(held)),
                Err((again, Errno::EINTR)) => file = again,
                Err((_, Errno::EWOULDBLOCK)) => return Err(CacheError::Busy { cache: self.root.clone() }),
                Err((_, errno)) => return Err(failed(errno.into())),
            }
        }
    }

    /// Refuses what will not fit, before it is downloaded.
    pub(super) fn room_for(&self, wanted_bytes: u64) -> Result<(), CacheError> {
        let measured = nix::sys::statvfs::statvfs(&self.root).map_err(|errno| CacheError::Io {
            attempt: "measure",
            path: self.root.clone(),
            source: errno.into(),
        })?;
        let available_bytes = measured.blocks_available().saturating_mul(measured.fragment_size());
        if available_bytes < wanted_bytes {
            return Err(CacheError::TooSmall { cache: self.root.clone(), wanted_bytes, available_bytes });
        }
        Ok(())
    }

    pub(super) fn error(&self, attempt: &'static str, path: &Path, source: io::Error) -> CacheError {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return CacheError::NoSpace { cache: self.root.clone() };
        }
        CacheError::Io { attempt, path: path.to_path_buf(), source }
    }

    /// An unused name.
    fn unfinished(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.join("unfinished").join(format!("{}-{number}", std::process::id()))
    }

    /// Begins a file whose name will be its digest.
    pub(super) fn new_file(&self) -> Result<NewFile, CacheError> {
        let path = self.unfinished();
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&path);
        let file = file.map_err(|source| self.error("create", &path, source))?;
        Ok(NewFile { cache: self.clone(), file, path, hasher: Hasher::sha256(), bytes: 0 })
    }

    /// Writes a small file atomically.
    pub(super) fn write_whole(&self, place: &Path, content: &[u8]) -> Result<(), CacheError> {
        let unfinished = self.unfinished();
        let written = fs::write(&unfinished, content)
            .and_then(|()| fs::set_permissions(&unfinished, Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&unfinished, place));
        written.map_err(|source| {
            let _ = fs::remove_file(&unfinished);
            self.error("write", place, source)
        })
    }
}

/// A file being written: sparse, hashed on the way, gone again unless published.
#[derive(Debug)]
pub(super) struct NewFile {
    cache: Cache,
    file: File,
    path: PathBuf,
    hasher: Hasher,
    bytes: u64,
}

impl NewFile {
    /// Appends a piece; one of zeros becomes a hole.
    pub(super) fn append(&mut self, piece: &[u8]) -> Result<(), CacheError> {
        self.hasher.update(piece);
        if piece.iter().any(|byte| *byte != 0) {
            let written = self.file.write_all_at(piece, self.bytes);
            written.map_err(|source| self.cache.error("write", &self.path, source))?;
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Gives it its name. The same content may be there already; then that stays.
    pub(super) fn publish(self) -> Result<FileRecord, CacheError> {
        let digest = self.hasher.clone().finish();
        let place = self.cache.file(&digest);
        let done = self
            .file
            .set_len(self.bytes)
            .and_then(|()| self.file.set_permissions(Permissions::from_mode(0o644)))
            .and_then(|()| self.file.sync_data())
            .and_then(|()| fs::rename(&self.path, &place));
        done.map_err(|source| self.cache.error("finish", &place, source))?;
        Ok(FileRecord { digest: digest.to_string(), size_bytes: self.bytes })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After publishing there is no such name any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Bytes on disk of a file, holes not counted; 0 when it is gone.
pub(super) fn allocated_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use super::super::testing::when_free;
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let room = tempfile::tempdir().unwrap();
        let cache = Cache::open(&room.path().join("deep/images")).unwrap();
        (room, cache)
    }

    #[test]
    fn content_gets_its_name_when_it_is_whole() {
        let (_room, cache) = cache();
        let mut content = vec![0; 3 * PIECE_BYTES];
        content[PIECE_BYTES] = 1;
        let mut file = cache.new_file().unwrap();
        for piece in content.chunks(PIECE_BYTES) {
            file.append(piece).unwrap();
        }
        let record = file.publish().unwrap();
        assert_eq!(record.digest, Digest::of(&content).to_string());
        let path = cache.file(&Digest::of(&content));
        assert!(fs::read(&path).unwrap() == content);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(allocated_bytes(&path) < 2 * PIECE_BYTES as u64, "zeros are holes");
        assert_eq!(fs::read_dir(cache.join("unfinished")).unwrap().count(), 0);
    }

    #[test]
    fn an_abandoned_file_leaves_nothing() {
        let (_room, cache) = cache();
        cache.new_file().unwrap().append(b"half").unwrap();
        assert_eq!(fs::read_dir(cache.join("unfinished")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_unless_another_works() {
        let (_room, cache) = cache();
        fs::write(cache.join("unfinished/4711-0"), "half").unwrap();
        let working = when_free(|| cache.hold());
        Cache::open(cache.root()).unwrap();
        assert_eq!(fs::read_dir(cache.join("unfinished")).unwrap().count(), 1);
        drop(working);
        // As for `when_free`: another process may seem to work a moment longer.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            Cache::open(cache.root()).unwrap();
            if fs::read_dir(cache.join("unfinished")).unwrap().count() == 0 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "what was left is there still");
        }
    }

    #[test]
    fn two_may_fetch_and_none_may_prune_meanwhile() {
        let (_room, cache) = cache();
        let one = when_free(|| cache.hold());
        let two = when_free(|| cache.hold());
        assert!(matches!(cache.hold_alone(), Err(CacheError::Busy { .. })));
        drop((one, two));
        drop(when_free(|| cache.hold_alone()));
    }

    #[test]
    fn room_is_asked_for_beforehand() {
        let (_room, cache) = cache();
        assert!(cache.room_for(1).is_ok());
        assert!(matches!(cache.room_for(u64::MAX), Err(CacheError::TooSmall { .. })));
    }

    #[test]
    fn opening_again_changes_nothing() {
        let (_room, cache) = cache();
        fs::set_permissions(cache.root(), Permissions::from_mode(0o750)).unwrap();
        Cache::open(cache.root()).unwrap();
        assert_eq!(fs::metadata(cache.root()).unwrap().permissions().mode() & 0o777, 0o750);
    }
}
