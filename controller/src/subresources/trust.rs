//! Which clients are trusted: the cluster's ConfigMap of request headers, and what TLS makes of it.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use garboard_protocol::causes::ErrorChain;
use garboard_subresources::caller::RequestHeader;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::context::WatchPause;

/// How API servers of this cluster show that they are some.
#[derive(Clone)]
pub(super) struct Trust {
    /// Headers and names.
    pub(super) header: Arc<RequestHeader>,
    /// Checks the signature of a client's certificate.
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
}

/// Why certificates of API servers cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    /// The ConfigMap is not as API servers write it.
    #[error(
        "it names no authority of request headers, or no header for users; the API server needs --requestheader-client-ca-file"
    )]
    NoRequestHeader,
    /// An authority cannot be read.
    #[error("an authority of request headers cannot be read")]
    Authority(#[from] rustls::pki_types::pem::Error),
    /// TLS does not take an authority.
    #[error("an authority of request headers cannot be used")]
    Unusable(#[from] rustls::Error),
    /// No verifier can be made.
    #[error("certificates of API servers cannot be checked")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The trust, each time the ConfigMap has changed. One that cannot be used leaves the one before.
pub(super) fn follow(client: Client) -> impl Stream<Item = Trust> {
    let maps: Api<ConfigMap> = Api::namespaced(client, RequestHeader::NAMESPACE);
    let only = Config::default().fields(&format!("metadata.name={}", RequestHeader::CONFIG_MAP));
    watcher(maps, only).backoff(WatchPause::default()).filter_map(|event| async {
        match event {
            Ok(Event::Apply(map) | Event::InitApply(map)) => usable(&map),
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "watch of the authorities of request headers failed");
                None
            }
        }
    })
}

fn usable(map: &ConfigMap) -> Option<Trust> {
    let trust = map.data.as_ref().map_or(Err(TrustError::NoRequestHeader), |data| {
        trust(RequestHeader::read(data).ok_or(TrustError::NoRequestHeader)?)
    });
    trust
        .inspect_err(|error| {
            tracing::warn!(
                config_map = RequestHeader::CONFIG_MAP,
                error = %ErrorChain(error),
                "the authorities of request headers cannot be used"
            );
        })
        .ok()
}

pub(super) fn trust(header: RequestHeader) -> Result<Trust, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(header.authorities.as_bytes()) {
        roots.add(certificate?)?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
    Ok(Trust { header: Arc::new(header), verifier })
}
