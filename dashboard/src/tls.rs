//! The certificate that is shown to browsers, and the authorities by which the API server is known: both are files that a kubelet keeps,
//! and are read again when they have changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::sync::watch;

/// How often the files are looked at; certificates are renewed hours before they end.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The only protocol: a websocket is an upgrade of HTTP/1.1.
const HTTP: &[u8] = b"http/1.1";
/// The files of a certificate, as Secrets of the type `kubernetes.io/tls` have them.
const CERTIFICATE: [&str; 2] = ["tls.crt", "tls.key"];

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there.
    #[error("{path} cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// It is no PEM, or has not what it should have.
    #[error("a file is not PEM with a certificate or a key")]
    Pem(#[from] pem::Error),
    /// There is no certificate in it.
    #[error("there is no certificate in the file")]
    Empty,
    /// Certificate and key cannot be used.
    #[error("TLS cannot be set up with the certificate")]
    Tls(#[from] rustls::Error),
}

/// What is shown to browsers, each time `tls.crt` and `tls.key` of a directory have changed.
///
/// # Errors
/// [`TlsError`], of the first time. What cannot be used later leaves what was before.
pub fn shown(directory: &Path) -> Result<watch::Receiver<Arc<ServerConfig>>, TlsError> {
    let files = CERTIFICATE.map(|name| directory.join(name)).to_vec();
    follow(files, |contents| {
        let [certificate, key] = contents else { return Err(TlsError::Empty) };
        server(certificate, key)
    })
}

/// What the API server is known by, each time the file has changed.
///
/// # Errors
/// [`TlsError`], of the first time.
pub fn trusted(authority: &Path) -> Result<watch::Receiver<Arc<ClientConfig>>, TlsError> {
    follow(vec![authority.to_owned()], |contents| {
        let [authorities] = contents else { return Err(TlsError::Empty) };
        client(authorities)
    })
}

fn follow<T: Send + Sync + 'static>(
    files: Vec<PathBuf>,
    make: fn(&[Vec<u8>]) -> Result<T, TlsError>,
) -> Result<watch::Receiver<Arc<T>>, TlsError> {
    let mut known = contents(&files)?;
    let (sender, receiver) = watch::channel(Arc::new(make(&known)?));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A kubelet exchanges all files of a volume at once, by a link to their directory; one that reads meanwhile may get one of each.
            let changed = contents(&files).and_then(|next| {
                if next == known {
                    return Ok(None);
                }
                let made = make(&next)?;
                known = next;
                Ok(Some(made))
            });
            match changed {
                Ok(Some(made)) => {
                    sender.send_replace(Arc::new(made));
                    tracing::info!(?files, "the certificate was read again");
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(?files, error = %ErrorChain(&error), "the certificate cannot be used; what was before goes on");
                }
            }
        }
    });
    Ok(receiver)
}

fn contents(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, TlsError> {
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.clone(), source });
    files.iter().map(read).collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() { Err(TlsError::Empty) } else { Ok(all) }
}

fn server(certificate: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let mut config = builder.with_no_client_auth().with_single_cert(certificates(certificate)?, key)?;
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok(config)
}

fn client(authorities: &[u8]) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate)?;
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    // No certificate of a client: the token that came is all by which the API server knows who asks.
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![HTTP.to_vec()];
    Ok(config)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A certificate for `localhost` that is its own authority, as both sides have it.
    pub(crate) struct Pair {
        pub(crate) certificate: String,
        pub(crate) key: String,
    }

    pub(crate) fn pair() -> Pair {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    pub(crate) fn both(pair: &Pair) -> (ServerConfig, ClientConfig) {
        let server = server(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
        (server, client(pair.certificate.as_bytes()).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_certificate_that_has_changed_is_read_again_and_one_that_is_broken_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let put = |pair: &testing::Pair| {
            std::fs::write(directory.path().join("tls.crt"), &pair.certificate).unwrap();
            std::fs::write(directory.path().join("tls.key"), &pair.key).unwrap();
        };
        assert!(matches!(shown(directory.path()), Err(TlsError::Unreadable { .. })));
        put(&testing::pair());
        tokio::time::pause();
        let mut known = shown(directory.path()).unwrap();
        std::fs::write(directory.path().join("tls.crt"), "").unwrap();
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert!(!known.has_changed().unwrap());
        put(&testing::pair());
        known.changed().await.unwrap();
    }

    #[test]
    fn what_has_no_certificate_is_refused() {
        let pair = testing::pair();
        assert!(matches!(client(b""), Err(TlsError::Empty)));
        assert!(server(pair.certificate.as_bytes(), b"").is_err());
        assert!(server(pair.certificate.as_bytes(), testing::pair().key.as_bytes()).is_err(), "another one's key");
    }
}
