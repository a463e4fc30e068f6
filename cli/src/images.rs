//! Container images on this host: where they come from, and progress while they come.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use garboard_shim_client::places::Places;
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_storage::beneath::BeneathPath;
use garboard_storage::oci::{
    Cache, Credentials, ImageLimits, ImageSource, OnProgress, Progress, PullPolicy, Request, Retry, WantedFiles, fetch,
};
use garboard_storage::open::Direct;
use garboard_storage::source::container_disk;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{BAD_INPUT, exit_error};
use crate::output::note;

/// The guest's architecture, the only one this version supports.
const ARCHITECTURE: &str = "amd64";

/// Where images come from.
pub(crate) struct Images {
    given: BTreeMap<String, PathBuf>,
    cache: PathBuf,
}

impl Images {
    /// Images of the command line, then registries.
    pub(crate) fn new(places: &Places, given: &[(String, PathBuf)]) -> Self {
        Self { given: given.iter().cloned().collect(), cache: places.cache.join("images") }
    }

    /// The cache of this host.
    pub(crate) fn cache(&self) -> anyhow::Result<Cache> {
        Cache::open(&self.cache).with_context(|| format!("open the image cache {}", self.cache.display()))
    }

    /// The disk of a container disk.
    pub(crate) fn disk(
        &self,
        reference: &str,
        path: Option<&str>,
        policy: Option<&str>,
    ) -> anyhow::Result<HostVolumeSource> {
        let path = path.map(BeneathPath::parse).transpose()?;
        let paths = self.fetch(reference, &WantedFiles::Disk(path), policy)?;
        let path = paths.into_iter().next().context("the image has no disk")?;
        // The supervisor looks again at what it opens; here a damaged image is refused before anything is started.
        container_disk::open_file(&path, Direct::Off)
            .map_err(|error| exit_error(BAD_INPUT, format!("image {reference}: {:#}", anyhow::Error::from(error))))?;
        Ok(HostVolumeSource::File { path })
    }

    /// Kernel and initial RAM disk of `kernelBoot`.
    pub(crate) fn files(&self, reference: &str, files: &[&str], policy: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
        let files = files.iter().map(|file| BeneathPath::parse(file)).collect::<Result<Vec<_>, _>>()?;
        self.fetch(reference, &WantedFiles::Files(files), policy)
    }

    /// Has an image's files in the cache.
    pub(crate) fn fetch(
        &self,
        reference: &str,
        need: &WantedFiles,
        policy: Option<&str>,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let source = match self.given.get(reference) {
            Some(path) => ImageSource::of_operator(&path.display().to_string())?,
            None => ImageSource::parse(reference)?,
        };
        let meant = match self.given.get(reference) {
            Some(path) => format!("{reference} ({})", path.display()),
            None => reference.to_owned(),
        };
        install_crypto();
        let cache = self.cache()?;
        let credentials = credentials()?;
        let request = Request {
            policy: policy_of(policy),
            architecture: ARCHITECTURE,
            credentials: &credentials,
            plain_http: &[],
            limits: ImageLimits::default(),
            retry: Retry::default(),
            progress: progress(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let fetched = runtime.block_on(fetch(&cache, &source, need, &request));
        let fetched = fetched
            .map_err(|error| exit_error(BAD_INPUT, format!("image {meant}: {:#}", anyhow::Error::from(error))))?;
        Ok(fetched.paths)
    }
}

fn policy_of(text: Option<&str>) -> PullPolicy {
    match text {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}

/// One provider for the whole process; a second call finds it installed, which is fine.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// `docker login`'s file, if there is one.
fn credentials() -> anyhow::Result<Credentials> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker"));
    match directory.or_else(home).map(|directory| directory.join("config.json")) {
        Some(path) if path.exists() => Ok(Credentials::load(&path)?),
        _ => Ok(Credentials::none()),
    }
}

/// A bar on a terminal, nothing elsewhere.
fn progress() -> OnProgress {
    if !std::io::stderr().is_terminal() {
        return Arc::new(|_| {});
    }
    let bar: Arc<Mutex<Option<ProgressBar>>> = Arc::default();
    Arc::new(move |progress| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Waiting => note!("garboard: another pull has the image cache; waiting for it"),
            Progress::Resolving { reference } => note!("garboard: looking for {reference}"),
            Progress::Downloading { have_bytes, of_bytes, .. } => {
                let bar = bar.get_or_insert_with(|| new_bar(of_bytes));
                bar.set_length(of_bytes);
                bar.set_position(have_bytes);
            }
            Progress::Unpacking { .. } => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    })
}

fn new_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
