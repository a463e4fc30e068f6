//! Fetches manifests and layers from a registry; layers into the cache, resumed where they were cut.
//!
//! Trust: nothing. A manifest is hashed here, and the registry's header is ignored; a layer becomes a blob of the cache
//! only after its digest was checked. Credentials go to the registry alone: the client drops them on redirects.
//!
//! One gap, of oci-client 0.18: it reads a manifest as a whole before we see its length, so a registry could make us
//! hold as much as it sends within [`MANIFEST_TIME`].

mod error;
mod part;

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};

use super::ImageLimits;
use super::cache::{Cache, CacheError};
use super::credentials::Credential;
use super::digest::{Digest, Hasher};
use super::fetch::{Progress, Request};
use super::manifest::{Document, ManifestError, Part, for_platform, parse};
pub use error::PullError;
use error::{broken_off, cause};
use part::PartFile;

/// How long a manifest may take.
const MANIFEST_TIME: Duration = Duration::from_secs(60);
/// How long a connection may take, and how long it may be silent.
const CONNECT_TIME: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(30);
/// Progress is reported after this many bytes.
const REPORT_BYTES: u64 = 1 << 20;
/// Manifests understood: images and indexes, OCI's and Docker's.
const KINDS: [&str; 4] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A registry, ready to be asked about one image.
pub(super) struct Registry {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    limits: ImageLimits,
}

impl Registry {
    /// Prepares and logs in.
    pub(super) async fn connect(reference: &Reference, request: &Request<'_>) -> Result<Self, PullError> {
        let auth = match request.credentials.find(reference.registry(), reference.repository())? {
            Credential::Anonymous => RegistryAuth::Anonymous,
            Credential::Password { user, password } => RegistryAuth::Basic(user, password),
            Credential::Token(token) => RegistryAuth::Bearer(token),
        };
        ensure_tls();
        let registry = reference.resolve_registry().to_owned();
        let plain = is_loopback(&registry) || request.plain_http.contains(&registry);
        let config = ClientConfig {
            protocol: if plain { ClientProtocol::HttpsExcept(vec![registry]) } else { ClientProtocol::Https },
            connect_timeout: Some(CONNECT_TIME),
            read_timeout: Some(SILENCE),
            user_agent: concat!("garboard/", env!("CARGO_PKG_VERSION")),
            platform_resolver: None,
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| PullError::Client(error.into()))?;
        let connected = Self { client, reference: reference.clone(), auth, limits: request.limits };
        let login = connected.client.auth(reference, &connected.auth, RegistryOperation::Pull);
        login.await.map_err(|error| connected.refusal(error))?;
        Ok(connected)
    }

    /// The manifest's digest and its layers, topmost first, for an architecture.
    pub(super) async fn image(&self, architecture: &str) -> Result<(Digest, Vec<Part>), PullError> {
        let (digest, document) = self.manifest(&self.reference).await?;
        let part = match document {
            Document::Image(layers) => return Ok((digest, layers)),
            Document::Index(choices) => for_platform(&choices, architecture)?,
        };
        let (digest, document) = self.manifest(&self.reference.clone_with_digest(part.digest.to_string())).await?;
        match document {
            Document::Image(layers) => Ok((digest, layers)),
            Document::Index(_) => Err(ManifestError::TooDeep.into()),
        }
    }

    async fn manifest(&self, reference: &Reference) -> Result<(Digest, Document), PullError> {
        let asked = self.client.pull_manifest_raw(reference, &self.auth, &KINDS);
        let (bytes, _) = match tokio::time::timeout(MANIFEST_TIME, asked).await {
            Ok(answer) => answer.map_err(|error| self.refusal(error))?,
            Err(elapsed) => return Err(PullError::Unreachable { registry: self.name(), source: elapsed.into() }),
        };
        let promised = reference.digest().map(Digest::parse).transpose().map_err(ManifestError::Digest)?;
        let mut hasher = promised.as_ref().map_or_else(Hasher::sha256, Digest::hasher);
        hasher.update(&bytes);
        let actual = hasher.finish();
        if let Some(promised) = promised.filter(|promised| *promised != actual) {
            return Err(self.lie(&promised, &actual));
        }
        Ok((actual, parse(&bytes, &self.limits)?))
    }

    /// Brings a layer into the cache, unless it is there. The caller holds its lock.
    pub(super) async fn layer(&self, layer: &Part, cache: &Cache, request: &Request<'_>) -> Result<PathBuf, PullError> {
        let place = cache.blob(&layer.digest);
        if tokio::fs::try_exists(&place).await.unwrap_or(false) {
            return Ok(place);
        }
        let mut part = PartFile::open(cache, layer).await?;
        let earlier = part.bytes;
        cache.room_for(layer.bytes.saturating_sub(part.bytes))?;
        self.download(&mut part, layer, request).await?;
        if let Err(lie) = self.check(&part, layer) {
            part.restart().await?;
            // What an earlier run left may have been of a registry that lied, or of a disk that lost power.
            if earlier == 0 {
                part.remove().await;
                return Err(lie);
            }
            self.download(&mut part, layer, request).await?;
            if let Err(lie) = self.check(&part, layer) {
                part.remove().await;
                return Err(lie);
            }
        }
        part.publish(&place).await?;
        Ok(place)
    }

    fn check(&self, part: &PartFile<'_>, layer: &Part) -> Result<(), PullError> {
        let actual = part.hasher.clone().finish();
        if actual == layer.digest { Ok(()) } else { Err(self.lie(&layer.digest, &actual)) }
    }

    /// Fetches until the part has all its bytes, asking again where the stream was cut.
    async fn download(&self, part: &mut PartFile<'_>, layer: &Part, request: &Request<'_>) -> Result<(), PullError> {
        let mut attempts = 0;
        let mut failure = None;
        while part.bytes < layer.bytes {
            let before = part.bytes;
            match self.stream(part, layer, request).await {
                Ok(()) => failure = None,
                Err(Interruption::Final(error)) => return Err(error),
                Err(Interruption::Again(error)) => failure = Some(error),
                Err(Interruption::FromTheStart) => part.restart().await?,
            }
            attempts = if part.bytes > before { 0 } else { attempts + 1 };
            if attempts >= request.retry.attempts {
                part.flush().await?;
                return Err(PullError::Cut {
                    registry: self.name(),
                    attempts,
                    have_bytes: part.bytes,
                    wanted_bytes: layer.bytes,
                    source: failure,
                });
            }
            if part.bytes < layer.bytes {
                tracing::warn!(
                    registry = self.name(),
                    have = part.bytes,
                    of = layer.bytes,
                    "download interrupted; it is resumed"
                );
                let factor = 3_u32.saturating_pow(attempts.saturating_sub(1));
                tokio::time::sleep(request.retry.first_pause.saturating_mul(factor)).await;
            }
        }
        part.flush().await?;
        Ok(())
    }

    /// One attempt: from where the part ends.
    async fn stream(&self, part: &mut PartFile<'_>, layer: &Part, request: &Request<'_>) -> Result<(), Interruption> {
        use oci_client::client::BlobResponse;
        let digest = layer.digest.to_string();
        let asked = self.client.pull_blob_stream_partial(&self.reference, digest.as_str(), part.bytes, None);
        let mut stream = match asked.await {
            Ok(BlobResponse::Partial(stream)) => stream,
            // A registry that does not support ranges sends everything again.
            Ok(BlobResponse::Full(stream)) => {
                part.restart().await?;
                stream
            }
            Err(error) => return Err(self.interruption(error, part.bytes)),
        };
        let mut reported = 0;
        while part.bytes < layer.bytes {
            let Some(piece) = stream.next().await else { return Ok(()) };
            let piece = piece.map_err(|error| Interruption::Again(broken_off(error)))?;
            if piece.len() as u64 > layer.bytes - part.bytes {
                part.remove().await;
                let (registry, promised_bytes) = (self.name(), layer.bytes);
                return Err(Interruption::Final(PullError::TooLong { registry, digest, promised_bytes }));
            }
            part.append(&piece).await?;
            if part.bytes - reported >= REPORT_BYTES || part.bytes == layer.bytes {
                reported = part.bytes;
                (request.progress)(Progress::Downloading {
                    layer: digest.clone(),
                    have_bytes: part.bytes,
                    of_bytes: layer.bytes,
                });
            }
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever is not known to pass is final")]
    fn interruption(&self, error: OciDistributionError, have_bytes: u64) -> Interruption {
        match &error {
            OciDistributionError::RequestError(_) | OciDistributionError::IoError(_) => {
                Interruption::Again(cause(error))
            }
            OciDistributionError::ServerError { code: 429 | 500.., .. } => Interruption::Again(cause(error)),
            // 416: the range begins beyond the end, so what is here is not what the registry has.
            OciDistributionError::ServerError { code: 416, .. } if have_bytes > 0 => Interruption::FromTheStart,
            _ => Interruption::Final(self.refusal(error)),
        }
    }

    fn name(&self) -> String {
        self.reference.resolve_registry().to_owned()
    }

    fn lie(&self, promised: &Digest, actual: &Digest) -> PullError {
        PullError::Digest { registry: self.name(), promised: promised.to_string(), actual: actual.to_string() }
    }

    /// The client's error as ours.
    fn refusal(&self, error: OciDistributionError) -> PullError {
        error::refusal(error, &self.name(), &self.reference.to_string())
    }
}

/// Why one attempt ended early.
enum Interruption {
    /// Asking again may help.
    Again(Box<dyn std::error::Error + Send + Sync>),
    /// What is here is of no use.
    FromTheStart,
    /// Nothing helps.
    Final(PullError),
}

impl From<CacheError> for Interruption {
    fn from(error: CacheError) -> Self {
        Self::Final(error.into())
    }
}

/// Installs a TLS provider unless the program has one; the HTTP client panics without.
fn ensure_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Registries on this machine are asked without TLS, as other clients do.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => registry.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked_without_tls() {
        for registry in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.8.9.1", "[::1]:5000"] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in ["quay.io", "10.0.0.1:5000", "localhost.example", "127.0.0.1.example:80", ""] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }
}
