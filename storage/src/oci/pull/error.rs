//! Why an image could not be fetched.

use oci_client::errors::{DigestError as ClientDigestError, OciDistributionError, OciErrorCode};

use super::super::cache::CacheError;
use super::super::credentials::CredentialsError;
use super::super::manifest::ManifestError;
use crate::beneath::shown;

/// Why an image could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No such image.
    #[error("the registry has no image {reference}; check its name and tag")]
    NotFound {
        /// The image.
        reference: String,
    },
    /// Not without, or not with these, credentials.
    #[error(
        "the registry {registry} denied access to {reference}; log in (`docker login {registry}`) or check the name"
    )]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The image.
        reference: String,
    },
    /// No answer.
    #[error("the registry {registry} does not answer; check its name and the network")]
    Unreachable {
        /// The registry.
        registry: String,
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Asked too often.
    #[error("the registry {registry} limits requests (too many requests); try later or log in")]
    TooManyRequests {
        /// The registry.
        registry: String,
    },
    /// An answer that is none.
    #[error("the answer of the registry {registry} could not be parsed")]
    Answer {
        /// The registry.
        registry: String,
        /// What it was.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Content with another digest.
    #[error(
        "the registry {registry} sent {actual} for {promised}; nothing of it is kept, report it to the registry's administrator"
    )]
    Digest {
        /// The registry.
        registry: String,
        /// The digest asked for.
        promised: String,
        /// The digest of what came.
        actual: String,
    },
    /// More than was announced.
    #[error(
        "the registry {registry} sends more than the {promised_bytes} bytes that {digest} has; nothing of it is kept"
    )]
    TooLong {
        /// The registry.
        registry: String,
        /// The layer.
        digest: String,
        /// Its size.
        promised_bytes: u64,
    },
    /// The connection ends again and again.
    #[error(
        "the download from {registry} was cut {attempts} times at {have_bytes} of {wanted_bytes} bytes; run the command again, it goes on from there"
    )]
    Cut {
        /// The registry.
        registry: String,
        /// Attempts without progress.
        attempts: u32,
        /// Bytes here.
        have_bytes: u64,
        /// Bytes of the layer.
        wanted_bytes: u64,
        /// The last failure.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A client that cannot even begin.
    #[error("no connection to registries can be made; check the system's certificates (package ca-certificates)")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The client's error as ours.
#[expect(clippy::wildcard_enum_match_arm, reason = "what has no remedy of its own is passed on")]
pub(super) fn refusal(error: OciDistributionError, registry: &str, reference: &str) -> PullError {
    let (registry, reference) = (registry.to_owned(), reference.to_owned());
    match error {
        OciDistributionError::UnauthorizedError { .. }
        | OciDistributionError::AuthenticationFailure(_)
        | OciDistributionError::ServerError { code: 401 | 403, .. } => PullError::Unauthorized { registry, reference },
        OciDistributionError::ServerError { code: 404, .. } | OciDistributionError::ImageManifestNotFoundError(_) => {
            PullError::NotFound { reference }
        }
        OciDistributionError::ServerError { code: 429, .. } => PullError::TooManyRequests { registry },
        OciDistributionError::RegistryError { envelope, url } => {
            let has_code = |codes: &[OciErrorCode]| envelope.errors.iter().any(|error| codes.contains(&error.code));
            if has_code(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                PullError::Unauthorized { registry, reference }
            } else if has_code(&[OciErrorCode::Toomanyrequests]) {
                PullError::TooManyRequests { registry }
            } else if has_code(&NOT_THERE) {
                PullError::NotFound { reference }
            } else {
                let source = cause(OciDistributionError::RegistryError { envelope, url });
                PullError::Answer { registry, source }
            }
        }
        OciDistributionError::DigestError(ClientDigestError::VerificationError { expected, actual }) => {
            PullError::Digest { registry, promised: shown(&expected), actual: shown(&actual) }
        }
        request @ OciDistributionError::RequestError(_) => PullError::Unreachable { registry, source: cause(request) },
        other => PullError::Answer { registry, source: cause(other) },
    }
}

/// A registry's codes for what it does not have.
const NOT_THERE: [OciErrorCode; 4] =
    [OciErrorCode::ManifestUnknown, OciErrorCode::NameUnknown, OciErrorCode::NotFound, OciErrorCode::BlobUnknown];

/// The client's error as a cause. Bodies of answers are in its messages: escaped and cut. Addresses are left out,
/// because a registry may have sent us elsewhere by one that carries a signature.
pub(super) fn cause(error: OciDistributionError) -> Box<dyn std::error::Error + Send + Sync> {
    if let OciDistributionError::RequestError(error) = error {
        return error.without_url().into();
    }
    shown(&error.to_string()).into()
}

/// What broke a stream off, without the addresses that the errors above it carry.
pub(super) fn broken_off(error: std::io::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let mut root: &dyn std::error::Error = &error;
    while let Some(deeper) = root.source() {
        root = deeper;
    }
    shown(&root.to_string()).into()
}
