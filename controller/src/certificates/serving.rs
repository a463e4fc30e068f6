//! What is shown to API servers: the serving certificate, each time it has changed.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;

use super::{CertificateError, CertifiedKey, Chain, SECRET};
use crate::context::Context;
use crate::webhook::paths::Paths;

/// What the Secret has for a server.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate with its key.
    pub serving: CertifiedKey,
    /// Where the webhooks answer.
    pub paths: Option<Paths>,
}

/// The certificate, each time the Secret has changed. What cannot be read leaves the one before.
pub fn follow(context: Context) -> impl Stream<Item = Certificate> {
    let secrets: Api<Secret> = Api::namespaced(context.client, &context.namespace);
    let only = Config::default().fields(&format!("metadata.name={SECRET}"));
    watcher(secrets, only).default_backoff().filter_map(|event| async {
        match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret)) => usable(&secret),
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "the Secret of the webhooks' certificates cannot be read");
                None
            }
        }
    })
}

fn usable(secret: &Secret) -> Option<Certificate> {
    match secret.data.as_ref().map(Chain::read)? {
        Ok(chain) => Some(Certificate { serving: chain.serving?, paths: chain.paths }),
        Err(error) => {
            tracing::warn!(%error, "the webhooks' certificate cannot be used");
            None
        }
    }
}

/// TLS with a certificate. Clients show none, or one that the verifier takes.
///
/// # Errors
/// Certificate or key cannot be read, or do not belong together.
pub fn tls(
    serving: &CertifiedKey,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<rustls::ServerConfig>, CertificateError> {
    let unreadable = |error: rustls::pki_types::pem::Error| CertificateError::Unreadable {
        what: SECRET,
        problem: error.to_string(),
    };
    let certificate = CertificateDer::from_pem_slice(serving.certificate.as_bytes()).map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes()).map_err(unreadable)?;
    let builder = rustls::ServerConfig::builder();
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
