//! OCI layouts: a directory with `index.json` and blobs named by their digests, or a tar archive of one.
//!
//! Follows the OCI image specification 1.1, `image-layout.md`. `docker save` writes such archives too, since Docker 25.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::ImageLimits;
use super::digest::{Digest, HashingReader};
use super::extract::{ExtractError, Extraction};
use super::manifest::{Choice, Document, ManifestError, Part, by_name, for_platform, parse};
use super::tar::{EntryKind, Tar, TarError};
use crate::beneath::BeneathPath;
use crate::open::{Dir, Links, OpenError};

/// Indexes followed to other indexes.
const MOST_LEVELS: usize = 3;
/// Entries of an archive; a layout has a blob for each layer and a few more.
const MOST_ENTRIES: usize = 10_000;

/// Why a layout could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// No layout.
    #[error("{path} is not an OCI layout: it has no {missing}; make one with `skopeo copy … oci:DIRECTORY`")]
    NotALayout {
        /// The directory or archive.
        path: PathBuf,
        /// What is missing.
        missing: String,
    },
    /// A packed archive.
    #[error("{path} is packed; unpack it with gunzip or unzstd first")]
    Packed {
        /// The archive.
        path: PathBuf,
    },
    /// Its file or directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The archive.
    #[error("the archive {path} cannot be read")]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: TarError,
    },
    /// Its manifests.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Content that does not match its name.
    #[error("the layout's blob {promised} has the digest {actual}; copy the image again")]
    Digest {
        /// The name.
        promised: String,
        /// The content.
        actual: String,
    },
    /// Content that is longer or shorter than in its description.
    #[error("the layout's blob {digest} has {actual_bytes} bytes and not {promised_bytes}; copy the image again")]
    Size {
        /// The blob.
        digest: String,
        /// Its length in the manifest, in bytes.
        promised_bytes: u64,
        /// Its length, in bytes.
        actual_bytes: u64,
    },
    /// Its layers.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// Reading.
    #[error("could not read {path}; see the cause")]
    Read {
        /// The directory or archive.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// An open layout.
#[derive(Debug)]
pub(super) struct Layout {
    path: PathBuf,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Directory(Dir),
    /// Where each file of the archive is: offset and length.
    Archive(File, HashMap<String, (u64, u64)>),
}

/// An image of a layout: its manifest's digest and its layers, topmost first.
#[derive(Debug)]
pub(super) struct LayoutImage {
    pub(super) manifest: Digest,
    pub(super) layers: Vec<Part>,
}

impl Layout {
    pub(super) fn of_directory(path: &Path) -> Result<Self, LayoutError> {
        Ok(Self { path: path.to_path_buf(), content: Content::Directory(Dir::open(path)?) })
    }

    pub(super) fn of_archive(path: &Path) -> Result<Self, LayoutError> {
        let failed = |source| LayoutError::Archive { path: path.to_path_buf(), source };
        let opened = crate::open::open_disk(path, crate::open::Opening::BASE)?;
        let file = File::from(opened.fd);
        let mut start = [0; 4];
        let _ = file.read_at(&mut start, 0);
        if start.starts_with(&[0x1f, 0x8b]) || start == [0x28, 0xb5, 0x2f, 0xfd] {
            return Err(LayoutError::Packed { path: path.to_path_buf() });
        }
        let duplicate = file.try_clone().map_err(|source| failed(TarError::Read(source)))?;
        let mut tar = Tar::new(duplicate);
        let mut files = HashMap::new();
        while let Some(entry) = tar.next_entry().map_err(failed)? {
            if let (Some(name), EntryKind::File) = (entry.path, entry.kind) {
                files.insert(name, (entry.offset, entry.bytes));
            }
            if files.len() > MOST_ENTRIES {
                return Err(LayoutError::NotALayout { path: path.to_path_buf(), missing: "end".to_owned() });
            }
        }
        Ok(Self { path: path.to_path_buf(), content: Content::Archive(file, files) })
    }

    /// Finds the image of a name for an architecture.
    pub(super) fn image(
        &self,
        name: Option<&str>,
        architecture: &str,
        limits: &ImageLimits,
    ) -> Result<LayoutImage, LayoutError> {
        let index = self.small("index.json", limits.manifest_bytes)?;
        let mut part = match parse(&index, limits)? {
            Document::Index(choices) => by_name(&choices, name, architecture)?,
            Document::Image(_) => return Err(ManifestError::Kind.into()),
        };
        for _ in 0..MOST_LEVELS {
            let bytes = self.small(&format!("blobs/{}", part.digest.place()), limits.manifest_bytes)?;
            let mut hasher = part.digest.hasher();
            hasher.update(&bytes);
            checked(&part.digest, hasher.finish())?;
            match parse(&bytes, limits)? {
                Document::Image(layers) => return Ok(LayoutImage { manifest: part.digest, layers }),
                Document::Index(choices) => part = self.chosen(&choices, architecture)?,
            }
        }
        Err(ManifestError::TooDeep.into())
    }

    fn chosen(&self, choices: &[Choice], architecture: &str) -> Result<Part, LayoutError> {
        Ok(for_platform(choices, architecture)?)
    }

    /// Takes what is wanted out of a layer, whose content is checked on the way.
    pub(super) fn extract(&self, layer: &Part, extraction: &mut Extraction) -> Result<(), LayoutError> {
        let blob = self.open(&format!("blobs/{}", layer.digest.place()))?;
        let mut reader = HashingReader::new(blob, layer.digest.hasher());
        let extracted = extraction.layer(BufReader::with_capacity(1 << 16, &mut reader), layer.bytes);
        if let Err(ExtractError::Stopped) = extracted {
            return Ok(extracted?);
        }
        let (actual, bytes) =
            reader.finish().map_err(|source| LayoutError::Read { path: self.path.clone(), source })?;
        // First the digest: an archive with another digest needs no other error.
        checked(&layer.digest, actual)?;
        if bytes != layer.bytes {
            let (digest, promised_bytes) = (layer.digest.to_string(), layer.bytes);
            return Err(LayoutError::Size { digest, promised_bytes, actual_bytes: bytes });
        }
        extracted?;
        Ok(extraction.accept()?)
    }

    fn small(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>, LayoutError> {
        let mut content = Vec::new();
        let mut reader = self.open(name)?.take(most_bytes + 1);
        reader.read_to_end(&mut content).map_err(|source| LayoutError::Read { path: self.path.clone(), source })?;
        Ok(content)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, LayoutError> {
        let missing = || LayoutError::NotALayout { path: self.path.clone(), missing: name.to_owned() };
        match &self.content {
            Content::Directory(dir) => {
                let place = BeneathPath::parse(name).map_err(|_| missing())?;
                match dir.open_file(&place, Links::Inside) {
                    Ok(file) => Ok(Box::new(file)),
                    Err(OpenError::Missing { .. }) => Err(missing()),
                    Err(other) => Err(other.into()),
                }
            }
            Content::Archive(file, files) => {
                let (offset, bytes) = files.get(name).copied().ok_or_else(missing)?;
                Ok(Box::new(Slice { file, offset, left: bytes }))
            }
        }
    }
}

fn checked(promised: &Digest, actual: Digest) -> Result<(), LayoutError> {
    if *promised == actual {
        return Ok(());
    }
    Err(LayoutError::Digest { promised: promised.to_string(), actual: actual.to_string() })
}

/// A part of a file.
struct Slice<'a> {
    file: &'a File,
    offset: u64,
    left: u64,
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.offset)?;
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::Cache;
    use super::super::extract::{Found, Wanted};
    use super::super::testing::{TarEntry, gzip, layout_of, tar_of};
    use super::*;

    fn layers() -> Vec<Vec<u8>> {
        vec![gzip(&tar_of(&[TarEntry::file("disk/a.img", &[7; 100_000])]))]
    }

    fn extracted(layout: &Layout) -> Result<Vec<String>, LayoutError> {
        let room = tempfile::tempdir().unwrap();
        let cache = Cache::open(room.path()).unwrap();
        let wanted = Wanted::folder(BeneathPath::parse("disk").unwrap());
        let image = layout.image(None, "amd64", &ImageLimits::default())?;
        let mut extraction = Extraction::new(&cache, &wanted, ImageLimits::default());
        for layer in &image.layers {
            layout.extract(layer, &mut extraction)?;
        }
        let found = extraction.into_found();
        assert!(found.values().all(|found| matches!(found, Found::File(_))));
        Ok(found.into_keys().collect())
    }

    #[test]
    fn directories_and_archives_are_read_alike() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path().join("layout");
        layout_of(&root, "demo:1", &layers());
        assert_eq!(extracted(&Layout::of_directory(&root).unwrap()).unwrap(), ["disk/a.img"]);
        let archive = room.path().join("layout.tar");
        let out = std::process::Command::new("tar").arg("-cf").arg(&archive).args(["-C"]).arg(&root).arg(".").output();
        if !out.is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: no tar");
            return;
        }
        assert_eq!(extracted(&Layout::of_archive(&archive).unwrap()).unwrap(), ["disk/a.img"]);
        std::fs::write(&archive, gzip(b"x")).unwrap();
        assert!(matches!(Layout::of_archive(&archive), Err(LayoutError::Packed { .. })));
        std::fs::write(&archive, b"no archive at all, but long enough to be looked at").unwrap();
        assert!(matches!(Layout::of_archive(&archive), Err(LayoutError::Archive { .. })));
    }

    #[test]
    fn a_blob_that_does_not_match_its_name_is_refused() {
        let room = tempfile::tempdir().unwrap();
        let good = layers();
        layout_of(room.path(), "demo:1", &good);
        let layer = Digest::of(&good[0]);
        let other = gzip(&tar_of(&[TarEntry::file("disk/a.img", &[8; 100_000])]));
        std::fs::write(room.path().join("blobs").join(layer.place()), other).unwrap();
        let refused = extracted(&Layout::of_directory(room.path()).unwrap()).unwrap_err();
        assert!(matches!(refused, LayoutError::Digest { .. }), "{refused}");
        // Also where it is no archive at all: the digest is checked first.
        std::fs::write(room.path().join("blobs").join(layer.place()), "garbage").unwrap();
        let refused = extracted(&Layout::of_directory(room.path()).unwrap()).unwrap_err();
        assert!(matches!(refused, LayoutError::Digest { .. }), "{refused}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let room = tempfile::tempdir().unwrap();
        let missing = |room: &Path| match extracted(&Layout::of_directory(room).unwrap()) {
            Err(LayoutError::NotALayout { missing, .. }) => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(room.path()), "index.json");
        let manifest = layout_of(room.path(), "demo:1", &layers());
        std::fs::remove_file(room.path().join("blobs").join(manifest.place())).unwrap();
        assert_eq!(missing(room.path()), format!("blobs/{}", manifest.place()));
    }

    #[test]
    fn an_index_that_leads_in_a_circle_ends() {
        let room = tempfile::tempdir().unwrap();
        layout_of(room.path(), "demo:1", &layers());
        // Three levels of indexes, each with one entry: one more than is followed.
        let mut inner = std::fs::read(room.path().join("index.json")).unwrap();
        for _ in 0..4 {
            let digest = Digest::of(&inner);
            std::fs::write(room.path().join("blobs").join(digest.place()), &inner).unwrap();
            inner = serde_json::json!({
                "schemaVersion": 2,
                "manifests": [{
                    "mediaType": "application/vnd.oci.image.index.v1+json",
                    "digest": digest.to_string(),
                    "size": inner.len(),
                }],
            })
            .to_string()
            .into_bytes();
        }
        std::fs::write(room.path().join("index.json"), inner).unwrap();
        let refused = extracted(&Layout::of_directory(room.path()).unwrap()).unwrap_err();
        assert!(matches!(refused, LayoutError::Manifest(ManifestError::TooDeep)), "{refused}");
    }
}
