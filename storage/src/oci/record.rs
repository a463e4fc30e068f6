//! The images of the cache: records, listing, pruning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::cache::{Cache, CacheError, allocated_bytes};
use super::digest::Digest;
use super::extract::{Found, Wanted};

/// Larger records are not ours.
const MOST_RECORD_BYTES: u64 = 1 << 20;

/// A file of an image, in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// SHA-256 of its content.
    pub digest: String,
    /// Its length.
    pub size_bytes: u64,
}

/// What is known of the image of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    /// Paths, and folders with a slash behind, that were looked for in all layers that could have them.
    pub(super) looked_for: BTreeSet<String>,
    /// What was found.
    pub(super) files: BTreeMap<String, FileRecord>,
    /// What was found and cannot be used: what it is.
    pub(super) unusable: BTreeMap<String, String>,
}

impl ImageRecord {
    pub(super) fn add(&mut self, wanted: &Wanted, found: BTreeMap<String, Found>) {
        self.looked_for.extend(wanted.keys());
        for (path, found) in found {
            match found {
                Found::File(record) => {
                    self.files.insert(path, record);
                }
                Found::Unusable(what) => {
                    self.unusable.insert(path, what.to_owned());
                }
            }
        }
    }
}

/// Which manifest a reference meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NameRecord {
    pub(super) reference: String,
    pub(super) architecture: String,
    pub(super) manifest: String,
    /// Seconds since 1970.
    pub(super) fetched_at: u64,
}

/// A line of `image list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSummary {
    /// The reference it was fetched by; an OCI layout or archive has its path here.
    pub reference: String,
    /// `amd64` and the like.
    pub architecture: String,
    /// Digest of its manifest.
    pub manifest: String,
    /// When it was last fetched or found unchanged, in seconds since 1970.
    pub fetched_at: u64,
    /// Its files in the cache, by path in the image.
    pub files: BTreeMap<String, FileRecord>,
    /// Bytes these take on disk; files shared with other images count in each.
    pub disk_bytes: u64,
}

/// What pruning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// References removed.
    pub images: usize,
    /// Files removed, unfinished downloads included.
    pub files: usize,
    /// Bytes given back.
    pub bytes: u64,
}

impl Cache {
    /// What is known of an image; its files are all there.
    pub(super) fn image(&self, manifest: &Digest) -> Option<ImageRecord> {
        let record: ImageRecord = read(&self.image_place(manifest))?;
        record.files.values().all(|file| self.has(file)).then_some(record)
    }

    /// Whether a file is there in full. Nothing renames half a file here, but a file system that lost power may have one.
    fn has(&self, file: &FileRecord) -> bool {
        let length = Digest::parse(&file.digest).ok().and_then(|digest| fs::metadata(self.file(&digest)).ok());
        length.is_some_and(|metadata| metadata.len() == file.size_bytes)
    }

    pub(super) fn keep_image(&self, manifest: &Digest, record: &ImageRecord) -> Result<(), CacheError> {
        self.write(&self.image_place(manifest), record)
    }

    fn image_place(&self, manifest: &Digest) -> PathBuf {
        self.join("images").join(format!("{}.json", manifest.file_name()))
    }

    /// Which manifest a reference meant the last time.
    pub(super) fn manifest_of(&self, reference: &str, architecture: &str) -> Option<Digest> {
        let record: NameRecord = read(&self.name_place(reference, architecture))?;
        let same = record.reference == reference && record.architecture == architecture;
        same.then(|| Digest::parse(&record.manifest).ok()).flatten()
    }

    pub(super) fn keep_name(&self, reference: &str, architecture: &str, manifest: &Digest) -> Result<(), CacheError> {
        let record = NameRecord {
            reference: reference.to_owned(),
            architecture: architecture.to_owned(),
            manifest: manifest.to_string(),
            fetched_at: now(),
        };
        self.write(&self.name_place(reference, architecture), &record)
    }

    fn name_place(&self, reference: &str, architecture: &str) -> PathBuf {
        let name = Digest::of(format!("{reference}\n{architecture}").as_bytes());
        self.join("names").join(format!("{}.json", name.file_name()))
    }

    fn write(&self, place: &Path, record: &impl Serialize) -> Result<(), CacheError> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| self.error("write", place, error.into()))?;
        self.write_whole(place, &text)
    }

    /// The images of the cache, by reference.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn list(&self) -> Result<Vec<ImageSummary>, CacheError> {
        let mut images: Vec<ImageSummary> = Vec::new();
        for place in self.entries(&self.join("names"))? {
            let Some(name) = read::<NameRecord>(&place) else { continue };
            let record =
                Digest::parse(&name.manifest).ok().and_then(|manifest| self.image(&manifest)).unwrap_or_default();
            images.push(self.summary(name, record));
        }
        images.sort_by(|a, b| (&a.reference, &a.architecture).cmp(&(&b.reference, &b.architecture)));
        Ok(images)
    }

    /// One image of the cache, without a registry.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn inspect(&self, reference: &str) -> Result<Vec<ImageSummary>, CacheError> {
        Ok(self.list()?.into_iter().filter(|image| image.reference == reference).collect())
    }

    fn summary(&self, name: NameRecord, record: ImageRecord) -> ImageSummary {
        let places: BTreeSet<PathBuf> = record
            .files
            .values()
            .filter_map(|file| Digest::parse(&file.digest).ok())
            .map(|digest| self.file(&digest))
            .collect();
        ImageSummary {
            reference: name.reference,
            architecture: name.architecture,
            manifest: name.manifest,
            fetched_at: name.fetched_at,
            files: record.files,
            disk_bytes: places.iter().map(|place| allocated_bytes(place)).sum(),
        }
    }

    /// Removes references not fetched for `unused_for` (zero: all), and removes every file that no remaining reference
    /// leads to, unfinished downloads included. VMs that run keep what they have open.
    ///
    /// # Errors
    /// [`CacheError::Busy`] while another process fetches, and [`CacheError::Io`].
    pub fn prune(&self, unused_for: Duration) -> Result<Pruned, CacheError> {
        let _alone = self.hold_alone()?;
        let mut pruned = Pruned::default();
        let oldest = now().saturating_sub(unused_for.as_secs());
        let mut keep = BTreeSet::new();
        for place in self.entries(&self.join("names"))? {
            match read::<NameRecord>(&place) {
                Some(name) if !unused_for.is_zero() && name.fetched_at >= oldest => {
                    if let Ok(manifest) = Digest::parse(&name.manifest) {
                        keep.insert(self.image_place(&manifest));
                        keep.extend(self.places_of(&manifest));
                    }
                }
                _ => {
                    self.remove(&place)?;
                    pruned.images += 1;
                }
            }
        }
        for folder in ["images", "files/sha256", "blobs/sha256", "blobs/sha512", "unfinished", "locks"] {
            for place in self.entries(&self.join(folder))? {
                if keep.contains(&place) {
                    continue;
                }
                let bytes = allocated_bytes(&place);
                self.remove(&place)?;
                if !matches!(folder, "images" | "locks") {
                    pruned.files += 1;
                    pruned.bytes += bytes;
                }
            }
        }
        tracing::info!(cache = %self.root().display(), images = pruned.images, bytes = pruned.bytes, "images pruned");
        Ok(pruned)
    }

    fn places_of(&self, manifest: &Digest) -> Vec<PathBuf> {
        let record = self.image(manifest).unwrap_or_default();
        record
            .files
            .values()
            .filter_map(|file| Digest::parse(&file.digest).ok())
            .map(|digest| self.file(&digest))
            .collect()
    }

    fn entries(&self, folder: &Path) -> Result<Vec<PathBuf>, CacheError> {
        let failed = |source| self.error("list", folder, source);
        let entries = fs::read_dir(folder).map_err(failed)?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    }

    fn remove(&self, place: &Path) -> Result<(), CacheError> {
        match fs::remove_file(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.error("remove", place, error)),
            _ => Ok(()),
        }
    }
}

/// A record, or nothing when it is missing or damaged: then it is made again.
fn read<T: for<'a> Deserialize<'a>>(place: &Path) -> Option<T> {
    let metadata = fs::metadata(place).ok()?;
    if metadata.len() > MOST_RECORD_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(place).ok()?).ok()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::testing::when_free;
    use super::*;
    use crate::beneath::BeneathPath;

    fn cache() -> (tempfile::TempDir, Cache) {
        let room = tempfile::tempdir().unwrap();
        let cache = Cache::open(&room.path().join("images")).unwrap();
        (room, cache)
    }

    fn add(cache: &Cache, reference: &str, content: &[u8]) -> Digest {
        let mut file = cache.new_file().unwrap();
        file.append(content).unwrap();
        let record = file.publish().unwrap();
        let manifest = Digest::of(reference.as_bytes());
        let mut image = ImageRecord::default();
        let wanted = Wanted::folder(BeneathPath::parse("disk").unwrap());
        image.add(&wanted, BTreeMap::from([("disk/a".to_owned(), Found::File(record))]));
        cache.keep_image(&manifest, &image).unwrap();
        cache.keep_name(reference, "amd64", &manifest).unwrap();
        manifest
    }

    #[test]
    fn what_was_kept_is_known_and_listed() {
        let (_room, cache) = cache();
        let manifest = add(&cache, "quay.io/a:1", b"disk one");
        add(&cache, "quay.io/b:1", b"disk two");
        assert_eq!(cache.manifest_of("quay.io/a:1", "amd64"), Some(manifest));
        assert_eq!(cache.manifest_of("quay.io/a:1", "arm64"), None);
        let images = cache.list().unwrap();
        assert_eq!(
            images.iter().map(|image| image.reference.as_str()).collect::<Vec<_>>(),
            ["quay.io/a:1", "quay.io/b:1"]
        );
        assert_eq!(images[0].files["disk/a"].size_bytes, 8);
        assert_eq!(cache.inspect("quay.io/b:1").unwrap(), images[1..]);
    }

    #[test]
    fn a_record_whose_file_is_gone_or_cut_is_no_record() {
        let (_room, cache) = cache();
        let manifest = add(&cache, "a", b"disk");
        assert!(cache.image(&manifest).is_some());
        fs::write(cache.file(&Digest::of(b"disk")), "di").unwrap();
        assert!(cache.image(&manifest).is_none());
        fs::write(cache.image_place(&manifest), "{ half").unwrap();
        assert!(cache.image(&manifest).is_none());
    }

    #[test]
    fn pruning_removes_unreferenced_files() {
        let (_room, cache) = cache();
        add(&cache, "a", b"disk a");
        fs::write(cache.part(&Digest::of(b"x")), "half a download").unwrap();
        fs::write(cache.join("unfinished/1-1"), "half a file").unwrap();
        let mut orphan = cache.new_file().unwrap();
        orphan.append(b"orphan").unwrap();
        orphan.publish().unwrap();
        let pruned = when_free(|| cache.prune(Duration::from_secs(3600)));
        assert_eq!((pruned.images, pruned.files), (0, 3));
        assert_eq!(cache.list().unwrap()[0].files.len(), 1, "what is in use stays");
        let pruned = when_free(|| cache.prune(Duration::ZERO));
        assert_eq!((pruned.images, pruned.files), (1, 1));
        assert!(cache.list().unwrap().is_empty());
    }

    #[test]
    fn pruning_leaves_an_open_file_readable() {
        let (_room, cache) = cache();
        add(&cache, "a", b"disk a");
        let open = fs::File::open(cache.file(&Digest::of(b"disk a"))).unwrap();
        when_free(|| cache.prune(Duration::ZERO));
        assert_eq!(std::io::read_to_string(open).unwrap(), "disk a");
    }
}
