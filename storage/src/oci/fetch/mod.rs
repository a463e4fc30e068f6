//! Brings the files of an image into the cache and returns where they are: the one entry for all sources.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oci_client::Reference;

use super::ImageLimits;
use super::cache::{Cache, CacheError};
use super::credentials::Credentials;
use super::digest::Digest;
use super::extract::{ExtractError, Extraction, Wanted};
use super::layout::{Layout, LayoutError, LayoutImage};
use super::manifest::Part;
use super::pull::{PullError, Registry};
use super::record::ImageRecord;
use super::source::ImageSource;
use crate::beneath::BeneathPath;
use crate::open::{Dir, OpenError};
use crate::source::{SourceError as VolumeError, container_disk};

/// How often a lock that another holds is asked for.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Where container disks keep their disk.
const DISK_FOLDER: &str = "disk";

/// When a registry is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time; what has not changed is not downloaded again.
    Always,
    /// Only when the cache does not have the image.
    IfNotPresent,
    /// Never.
    Never,
}

/// Which files of the image are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedFiles {
    /// The disk of a container disk: at this path, or the only file in `/disk`.
    Disk(Option<BeneathPath>),
    /// Files at these paths: kernel and initial RAM disk.
    Files(Vec<BeneathPath>),
}

/// How an image is to be fetched.
pub struct Request<'a> {
    /// When to ask the registry.
    pub policy: PullPolicy,
    /// The guest's architecture as Go names it: `amd64`, `arm64`, `s390x`.
    pub architecture: &'a str,
    /// The credentials for registries.
    pub credentials: &'a Credentials,
    /// Registries (`host:port`) asked without TLS; those on loopback are anyway.
    pub plain_http: &'a [String],
    /// What an image may cost.
    pub limits: ImageLimits,
    /// How cut downloads are taken up again.
    pub retry: Retry,
    /// Receives progress. Called often, from several threads; must not block.
    pub progress: OnProgress,
}

/// Receives progress.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// How often a download is taken up again before it is given up; what is there stays for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in a row that bring nothing new.
    pub attempts: u32,
    /// The pause before the second attempt; each further one is three times as long.
    pub first_pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 4, first_pause: Duration::from_millis(300) }
    }
}

/// What a fetch is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The registry is asked for the manifest.
    Resolving {
        /// The image.
        reference: String,
    },
    /// Another command works on the same image.
    Waiting,
    /// A layer is coming.
    Downloading {
        /// Its digest.
        layer: String,
        /// Bytes here.
        have_bytes: u64,
        /// Bytes of it.
        of_bytes: u64,
    },
    /// Files are taken out of a layer.
    Unpacking {
        /// Its digest.
        layer: String,
        /// Its size as transferred, in bytes.
        of_bytes: u64,
    },
}

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// In the order of the need; one for a disk. Open them soon: pruning removes names.
    pub paths: Vec<PathBuf>,
    /// Digest of the manifest; none for an operator's file or directory.
    pub manifest: Option<String>,
}

/// Why an image's files are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The registry.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The layout or archive.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The layers.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The operator's file or directory, and which disk is meant.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Not there, and no registry may be asked.
    #[error("the image {reference} is not in the cache and imagePullPolicy is Never; pull it, or use IfNotPresent")]
    NotCached {
        /// The image.
        reference: String,
    },
    /// No such file in the image.
    #[error("the image {reference} has no file /{path}; check the path")]
    NoSuchFile {
        /// The image.
        reference: String,
        /// The path.
        path: String,
    },
    /// A file that is none.
    #[error("/{path} in the image {reference} is {what}; put the file itself there")]
    Unusable {
        /// The image.
        reference: String,
        /// The path.
        path: String,
        /// What it is.
        what: String,
    },
    /// Only a directory or image has several files.
    #[error(
        "{path} is a single disk image, and the kernel boot needs files of it; give a directory or an OCI layout instead of a file"
    )]
    OneFile {
        /// The operator's file.
        path: PathBuf,
    },
    /// A blocking part did not come to its end.
    #[error("fetching the image was stopped; try again")]
    Stopped,
}

/// Fetches what is needed of an image.
///
/// May be dropped at any time: threads that work for it end soon after, and what was downloaded serves the next call.
///
/// # Errors
/// [`FetchError`]; nothing half is ever left under a final name, and an interrupted download goes on at the next call.
pub async fn fetch(
    cache: &Cache,
    source: &ImageSource,
    need: &WantedFiles,
    request: &Request<'_>,
) -> Result<Fetched, FetchError> {
    match source {
        ImageSource::Registry(reference) => from_registry(cache, reference, need, request).await,
        ImageSource::Layout { .. } | ImageSource::Archive { .. } => from_layout(cache, source, need, request).await,
        ImageSource::File(path) => match need {
            WantedFiles::Disk(_) => Ok(Fetched { paths: vec![path.clone()], manifest: None }),
            WantedFiles::Files(_) => Err(FetchError::OneFile { path: path.clone() }),
        },
        ImageSource::Unpacked(path) => from_directory(path, need),
    }
}

/// A directory of the operator's: the paths are resolved here and now, and found to stay inside.
fn from_directory(root: &Path, need: &WantedFiles) -> Result<Fetched, FetchError> {
    let dir = Dir::open(root).map_err(VolumeError::Open)?;
    let names = match need {
        WantedFiles::Disk(path) => vec![container_disk::find(&dir, path.as_ref())?],
        WantedFiles::Files(paths) => paths.clone(),
    };
    for name in &names {
        match dir.open_file(name, crate::open::Links::Refused) {
            Ok(_) => {}
            Err(OpenError::Missing { .. }) => {
                let (reference, path) = (root.display().to_string(), name.to_string());
                return Err(FetchError::NoSuchFile { reference, path });
            }
            Err(other) => return Err(VolumeError::Open(other).into()),
        }
    }
    Ok(Fetched { paths: names.iter().map(|name| root.join(name.as_path())).collect(), manifest: None })
}

async fn from_registry(
    cache: &Cache,
    reference: &Reference,
    need: &WantedFiles,
    request: &Request<'_>,
) -> Result<Fetched, FetchError> {
    let name = reference.to_string();
    let wanted = need.wanted();
    let _held = when_free(request, || cache.hold()).await?;
    if request.policy != PullPolicy::Always {
        let known = cache.manifest_of(&name, request.architecture);
        if let Some((manifest, record)) = known.and_then(|manifest| cached(cache, manifest, &wanted)) {
            return located(cache, &name, &manifest, &record, need);
        }
        if request.policy == PullPolicy::Never {
            return Err(FetchError::NotCached { reference: name });
        }
    }
    (request.progress)(Progress::Resolving { reference: name.clone() });
    let registry = Registry::connect(reference, request).await?;
    let (manifest, layers) = registry.image(request.architecture).await?;
    let _alone = when_free(request, || cache.hold_content(&manifest)).await?;
    let record = match cached(cache, manifest.clone(), &wanted) {
        Some((_, record)) => record,
        None => {
            let found = download_and_extract(cache, &registry, &layers, &wanted, request).await?;
            keep(cache, &manifest, &wanted, found)?
        }
    };
    cache.keep_name(&name, request.architecture, &manifest)?;
    located(cache, &name, &manifest, &record, need)
}

type FoundFiles = std::collections::BTreeMap<String, super::extract::Found>;

async fn download_and_extract(
    cache: &Cache,
    registry: &Registry,
    layers: &[Part],
    wanted: &Wanted,
    request: &Request<'_>,
) -> Result<FoundFiles, FetchError> {
    let dropped = SetOnDrop::default();
    let mut extraction = Extraction::new(cache, wanted, request.limits).stopped_by(Arc::clone(&dropped.0));
    for layer in layers {
        if extraction.complete() {
            break;
        }
        let _alone = when_free(request, || cache.hold_content(&layer.digest)).await?;
        let blob = registry.layer(layer, cache, request).await?;
        (request.progress)(Progress::Unpacking { layer: layer.digest.to_string(), of_bytes: layer.bytes });
        let file = std::fs::File::open(&blob).map_err(|source| cache.error("open", &blob, source))?;
        let packed_bytes = layer.bytes;
        let extracted = blocking(move || {
            extraction.layer(BufReader::with_capacity(1 << 16, file), packed_bytes)?;
            extraction.accept()?;
            Ok(extraction)
        })
        .await;
        // The files are kept; the packed layer would only take their space again. One that cannot be unpacked cannot
        // be the next time either; one for which there was no space can.
        if !matches!(extracted, Err(FetchError::Extract(ExtractError::Cache(_) | ExtractError::Stopped))) {
            let _ = std::fs::remove_file(&blob);
        }
        extraction = extracted?;
    }
    Ok(extraction.into_found())
}

async fn from_layout(
    cache: &Cache,
    source: &ImageSource,
    need: &WantedFiles,
    request: &Request<'_>,
) -> Result<Fetched, FetchError> {
    let reference = source.to_string();
    let wanted = need.wanted();
    let _held = when_free(request, || cache.hold()).await?;
    let found = {
        let (source, architecture, limits) = (source.clone(), request.architecture.to_owned(), request.limits);
        blocking(move || open_layout(&source, &architecture, &limits)).await?
    };
    let Some((layout, image)) = found else { return Err(FetchError::Stopped) };
    let manifest = image.manifest.clone();
    let _alone = when_free(request, || cache.hold_content(&manifest)).await?;
    let record = match cached(cache, manifest.clone(), &wanted) {
        Some((_, record)) => record,
        None => {
            let dropped = SetOnDrop::default();
            let mut extraction = Extraction::new(cache, &wanted, request.limits).stopped_by(Arc::clone(&dropped.0));
            let progress = Arc::clone(&request.progress);
            let found = blocking(move || {
                for layer in &image.layers {
                    if extraction.complete() {
                        break;
                    }
                    progress(Progress::Unpacking { layer: layer.digest.to_string(), of_bytes: layer.bytes });
                    layout.extract(layer, &mut extraction)?;
                }
                Ok(extraction.into_found())
            });
            keep(cache, &manifest, &wanted, found.await?)?
        }
    };
    cache.keep_name(&reference, request.architecture, &manifest)?;
    located(cache, &reference, &manifest, &record, need)
}

/// The layout and the image meant; nothing for other sources.
fn open_layout(
    source: &ImageSource,
    architecture: &str,
    limits: &ImageLimits,
) -> Result<Option<(Layout, LayoutImage)>, FetchError> {
    let (layout, name) = match source {
        ImageSource::Archive { path, name } => (Layout::of_archive(path)?, name.as_deref()),
        ImageSource::Layout { path, name } => (Layout::of_directory(path)?, name.as_deref()),
        ImageSource::Registry(_) | ImageSource::File(_) | ImageSource::Unpacked(_) => return Ok(None),
    };
    let image = layout.image(name, architecture, limits)?;
    Ok(Some((layout, image)))
}

impl WantedFiles {
    fn wanted(&self) -> Wanted {
        match self {
            Self::Disk(None) => BeneathPath::parse(DISK_FOLDER).map(Wanted::folder).unwrap_or_default(),
            Self::Disk(Some(path)) => Wanted::files([path.clone()]),
            Self::Files(paths) => Wanted::files(paths.iter().cloned()),
        }
    }
}

/// The record of an image in which everything wanted was looked for.
fn cached(cache: &Cache, manifest: Digest, wanted: &Wanted) -> Option<(Digest, ImageRecord)> {
    let record = cache.image(&manifest)?;
    wanted.keys().all(|key| record.looked_for.contains(&key)).then_some((manifest, record))
}

fn keep(cache: &Cache, manifest: &Digest, wanted: &Wanted, found: FoundFiles) -> Result<ImageRecord, CacheError> {
    let mut record = cache.image(manifest).unwrap_or_default();
    record.add(wanted, found);
    cache.keep_image(manifest, &record)?;
    Ok(record)
}

fn located(
    cache: &Cache,
    reference: &str,
    manifest: &Digest,
    record: &ImageRecord,
    need: &WantedFiles,
) -> Result<Fetched, FetchError> {
    let names = match need {
        WantedFiles::Disk(None) => vec![only_disk(record)?],
        WantedFiles::Disk(Some(path)) => vec![path.clone()],
        WantedFiles::Files(paths) => paths.clone(),
    };
    let place = |name: &BeneathPath| {
        let (reference, path) = (reference.to_owned(), name.to_string());
        if let Some(what) = record.unusable.get(name.as_str()) {
            return Err(FetchError::Unusable { reference, path, what: what.clone() });
        }
        let digest = record.files.get(name.as_str()).and_then(|file| Digest::parse(&file.digest).ok());
        digest.map(|digest| cache.file(&digest)).ok_or(FetchError::NoSuchFile { reference, path })
    };
    let paths = names.iter().map(place).collect::<Result<_, _>>()?;
    Ok(Fetched { paths, manifest: Some(manifest.to_string()) })
}

fn only_disk(record: &ImageRecord) -> Result<BeneathPath, VolumeError> {
    let in_folder = |path: &&String| path.rsplit_once('/').is_some_and(|(parent, _)| parent == DISK_FOLDER);
    let names = record.files.keys().chain(record.unusable.keys()).filter(in_folder);
    let names: Vec<String> = names.filter_map(|path| path.rsplit_once('/').map(|(_, name)| name.to_owned())).collect();
    container_disk::only(&names)
}

/// Takes a lock when it is free. There is no waiting for a file lock that could be given up, so it is asked for again.
async fn when_free(
    request: &Request<'_>,
    lock: impl Fn() -> Result<super::cache::Held, CacheError>,
) -> Result<super::cache::Held, FetchError> {
    let mut is_reported = false;
    loop {
        match lock() {
            Err(CacheError::Busy { .. }) => {
                if !is_reported {
                    (request.progress)(Progress::Waiting);
                    is_reported = true;
                }
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            done => return Ok(done?),
        }
    }
}

/// Signals a thread that works for a future that the future was dropped.
#[derive(Default)]
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FetchError::Stopped)?
}

#[cfg(test)]
mod tests;
