//! Copies the wanted files out of the layers of an image, topmost layer first.
//!
//! An image is what results when its layers are laid over each other: a file may be replaced or removed (by a *whiteout*,
//! `.wh.NAME`) by a layer above. Going downwards, whatever a layer has or removes hides what is below, so each file is
//! written once and no hidden file is written. Follows the OCI image specification 1.1, `layer.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ImageLimits;
use super::cache::{Cache, CacheError, NewFile, PIECE_BYTES};
use super::record::FileRecord;
use super::tar::{Entry, EntryKind, Skip, Stream, Tar, TarError};
use super::unpack::{UnpackedTooLarge, unpack};
use crate::beneath::BeneathPath;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// Paths remembered of upper layers, of those that matter to what is wanted.
const MOST_SHADOWS: usize = 10_000;

/// Which files of an image are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All files directly in this directory.
    pub(super) folder: Option<BeneathPath>,
    /// Files by path.
    pub(super) paths: BTreeSet<BeneathPath>,
}

impl Wanted {
    /// Files by their paths.
    pub fn files(paths: impl IntoIterator<Item = BeneathPath>) -> Self {
        Self { folder: None, paths: paths.into_iter().collect() }
    }

    /// All files directly in a directory.
    pub fn folder(folder: BeneathPath) -> Self {
        Self { folder: Some(folder), paths: BTreeSet::new() }
    }

    /// What the record of an image calls it: a folder with a slash behind.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let folder = self.folder.iter().map(|folder| format!("{folder}/"));
        folder.chain(self.paths.iter().map(ToString::to_string))
    }

    fn includes(&self, path: &str) -> bool {
        let in_folder =
            |folder: &BeneathPath| path.rsplit_once('/').is_some_and(|(parent, _)| parent == folder.as_str());
        self.folder.as_ref().is_some_and(in_folder) || self.paths.iter().any(|wanted| wanted.as_str() == path)
    }

    /// Whether what happens at `path` can hide or be something wanted.
    fn touches(&self, path: &str) -> bool {
        let above = |wanted: &BeneathPath| BeneathPath::parse(path).is_ok_and(|path| path.holds(wanted.as_str()));
        self.includes(path) || self.folder.as_ref().is_some_and(above) || self.paths.iter().any(above)
    }
}

/// Why files could not be taken out of an image.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// A layer that grows beyond all measure.
    #[error(
        "a layer of {packed_bytes} bytes unpacks to more than {most_bytes}; if the image is meant to be so, build it with a \
         qcow2 instead of a raw disk"
    )]
    UnpackedTooLarge {
        /// Size as transferred.
        packed_bytes: u64,
        /// Where unpacking was stopped.
        most_bytes: u64,
    },
    /// A layer that is no sound archive.
    #[error("a layer of the image cannot be read")]
    Layer(#[source] TarError),
    /// Too many files.
    #[error("the image has more than {most} files where disks are looked for; name the disk with `path`")]
    TooMany {
        /// The limit.
        most: usize,
    },
    /// Keeping it.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The caller does not wait any more.
    #[error("taking files out of the image was stopped; try again")]
    Stopped,
}

/// What was found under a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A file, in the cache now.
    File(FileRecord),
    /// Something that cannot serve as a disk or kernel.
    Unusable(&'static str),
}

/// The state of going down through the layers.
#[derive(Debug)]
pub(super) struct Extraction {
    cache: Cache,
    wanted: Wanted,
    limits: ImageLimits,
    /// Set from outside when the caller does not wait any more.
    stop: Arc<AtomicBool>,
    hidden: Shadows,
    found: BTreeMap<String, Found>,
    /// The present layer, until its digest was checked.
    pending: Pending,
}

/// What one layer brings.
#[derive(Debug, Default)]
struct Pending {
    shadows: Shadows,
    files: BTreeMap<String, NewFile>,
    unusable: BTreeMap<String, &'static str>,
}

/// What layers above have and remove.
#[derive(Debug, Default)]
struct Shadows {
    directories: BTreeSet<String>,
    others: BTreeSet<String>,
    removed: BTreeSet<String>,
    opaque: BTreeSet<String>,
}

impl Shadows {
    fn hide(&self, path: &str) -> bool {
        let taken = |path: &str| self.others.contains(path) || self.removed.contains(path);
        let parents = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        taken(path)
            || self.directories.contains(path)
            || self.opaque.contains("")
            || parents.into_iter().any(|parent| taken(parent) || self.opaque.contains(parent))
    }

    /// Whether nothing of a folder in lower layers can be seen.
    fn hide_inside(&self, folder: &str) -> bool {
        let taken =
            |path: &str| self.others.contains(path) || self.removed.contains(path) || self.opaque.contains(path);
        let parents = folder.match_indices('/').filter_map(|(at, _)| folder.get(..at));
        taken("") || taken(folder) || parents.into_iter().any(taken)
    }

    fn add(&mut self, more: Self) {
        self.directories.extend(more.directories);
        self.others.extend(more.others);
        self.removed.extend(more.removed);
        self.opaque.extend(more.opaque);
    }

    fn count(&self) -> usize {
        self.directories.len() + self.others.len() + self.removed.len() + self.opaque.len()
    }
}

impl Extraction {
    pub(super) fn new(cache: &Cache, wanted: &Wanted, limits: ImageLimits) -> Self {
        Self {
            cache: cache.clone(),
            wanted: wanted.clone(),
            limits,
            stop: Arc::default(),
            hidden: Shadows::default(),
            found: BTreeMap::new(),
            pending: Pending::default(),
        }
    }

    /// Ends with [`ExtractError::Stopped`] soon after the flag is set.
    pub(super) fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Whether further layers can add nothing.
    pub(super) fn complete(&self) -> bool {
        let settled = |path: &BeneathPath| self.hidden.hide(path.as_str());
        let folder_settled = |folder: &BeneathPath| self.hidden.hide_inside(folder.as_str());
        self.wanted.folder.as_ref().is_none_or(folder_settled) && self.wanted.paths.iter().all(settled)
    }

    /// What was found, by path.
    pub(super) fn into_found(self) -> BTreeMap<String, Found> {
        self.found
    }

    /// Goes through the next layer below. `packed_bytes` is its size as transferred. Nothing of it counts, or gets a name
    /// in the cache, before [`Extraction::accept`].
    pub(super) fn layer(&mut self, packed: impl BufRead, packed_bytes: u64) -> Result<(), ExtractError> {
        let by_ratio = packed_bytes.saturating_mul(self.limits.ratio).max(self.limits.ratio_free_bytes);
        let most_bytes = by_ratio.min(self.limits.unpacked_bytes);
        let packed = Stoppable { packed, stop: Arc::clone(&self.stop) };
        let plain = unpack(packed, most_bytes).map_err(|error| refusal(error.into(), packed_bytes))?;
        let mut tar = Tar::new(Stream(plain));
        self.pending = Pending::default();
        while let Some(entry) = tar.next_entry().map_err(|error| refusal(error, packed_bytes))? {
            self.entry(&entry, &mut tar, packed_bytes)?;
        }
        Ok(())
    }

    /// Takes what the last layer brought: its content was found to match its digest.
    pub(super) fn accept(&mut self) -> Result<(), ExtractError> {
        let Pending { shadows, files, unusable } = std::mem::take(&mut self.pending);
        for (path, file) in files {
            self.found.insert(path, Found::File(file.publish()?));
        }
        for (path, what) in unusable {
            self.found.insert(path, Found::Unusable(what));
        }
        self.hidden.add(shadows);
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, tar: &mut Tar<impl Skip>, packed_bytes: u64) -> Result<(), ExtractError> {
        let Some(path) = entry.path.as_deref() else { return Ok(()) };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some(removed) = name.strip_prefix(WHITEOUT) {
            self.whiteout(parent, name, removed);
            return self.bounded();
        }
        if !self.wanted.touches(path) {
            return Ok(());
        }
        // Within a layer the last entry of a name counts.
        self.pending.files.remove(path);
        self.pending.unusable.remove(path);
        if entry.kind == EntryKind::Directory {
            self.pending.shadows.directories.insert(path.to_owned());
        } else {
            self.pending.shadows.others.insert(path.to_owned());
        }
        self.bounded()?;
        if self.hidden.hide(path) || !self.wanted.includes(path) {
            return Ok(());
        }
        let unusable = match entry.kind {
            EntryKind::File => {
                let file = self.copy(tar, packed_bytes)?;
                self.pending.files.insert(path.to_owned(), file);
                return self.bounded();
            }
            EntryKind::Directory => "a directory",
            EntryKind::HardLink => "a hard link",
            EntryKind::SymbolicLink => "a symbolic link",
            EntryKind::Sparse => "a sparse file in a form that few tools write",
            EntryKind::Other => "a device or another special file",
        };
        self.pending.unusable.insert(path.to_owned(), unusable);
        self.bounded()
    }

    fn whiteout(&mut self, parent: &str, name: &str, removed: &str) {
        if name == OPAQUE {
            if parent.is_empty() || self.wanted.touches(parent) {
                self.pending.shadows.opaque.insert(parent.to_owned());
            }
            return;
        }
        let removed = if parent.is_empty() { removed.to_owned() } else { format!("{parent}/{removed}") };
        if self.wanted.touches(&removed) {
            self.pending.shadows.removed.insert(removed);
        }
    }

    fn bounded(&self) -> Result<(), ExtractError> {
        if self.hidden.count() + self.pending.shadows.count() > MOST_SHADOWS {
            return Err(ExtractError::TooMany { most: MOST_SHADOWS });
        }
        let found = self.found.len() + self.pending.files.len() + self.pending.unusable.len();
        if found > self.limits.files {
            return Err(ExtractError::TooMany { most: self.limits.files });
        }
        Ok(())
    }

    fn copy(&self, content: &mut impl Read, packed_bytes: u64) -> Result<NewFile, ExtractError> {
        let mut file = self.cache.new_file()?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let filled = fill(content, &mut piece).map_err(|error| refusal(error.into(), packed_bytes))?;
            file.append(piece.get(..filled).unwrap_or_default())?;
            if filled < PIECE_BYTES {
                return Ok(file);
            }
        }
    }
}

/// The error inside an [`io::Error`] when the flag was set.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stop;

/// Fails once the flag is set: reading is what takes the time.
struct Stoppable<R> {
    packed: R,
    stop: Arc<AtomicBool>,
}

impl<R: BufRead> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let read = available.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..read), available.get(..read)) {
            to.copy_from_slice(from);
        }
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Stoppable<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other(Stop));
        }
        self.packed.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.packed.consume(amount);
    }
}

/// Reads until the buffer is full or the content ends.
fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match content.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn refusal(error: TarError, packed_bytes: u64) -> ExtractError {
    if let TarError::Read(cause) = &error
        && let Some(UnpackedTooLarge { most_bytes }) = cause.get_ref().and_then(|cause| cause.downcast_ref())
    {
        return ExtractError::UnpackedTooLarge { packed_bytes, most_bytes: *most_bytes };
    }
    if matches!(&error, TarError::Read(cause) if cause.get_ref().is_some_and(|cause| cause.is::<Stop>())) {
        return ExtractError::Stopped;
    }
    ExtractError::Layer(error)
}

#[cfg(test)]
mod tests;
