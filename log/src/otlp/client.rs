//! The way to the collector: HTTP/1.1 by hyper, TLS by rustls where the endpoint is `https`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::settings::Settings;

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The file with authorities.
    #[error("the authorities of the collector, {path}, cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// It is no PEM.
    #[error("the authorities of the collector, {path}, are not PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// There are none.
    #[error("{path} has no certificate; it is to have the authorities of the collector")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// They cannot be used.
    #[error("a certificate in {path} cannot be used")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::Error,
    },
    /// TLS.
    #[error("TLS to the collector cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The exporter.
    #[error("the exporter of spans cannot be made")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// One that sends to this collector. It needs tokio's runtime once it sends, and not before.
pub(super) fn exporter(settings: &Settings) -> Result<SpanExporter, ExporterError> {
    let tls = tls(settings.certificate.as_deref())?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(HyperClient::new(connector, settings.timeout, None))
        .with_endpoint(settings.endpoint.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(settings.timeout)
        .build()?;
    Ok(exporter)
}

/// Without a file nobody is trusted, which plain HTTP does not ask for.
fn tls(authorities: Option<&Path>) -> Result<ClientConfig, ExporterError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = authorities {
        let path = || file.to_owned();
        let text = std::fs::read(file).map_err(|source| ExporterError::Unreadable { path: path(), source })?;
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|source| ExporterError::Pem { path: path(), source })?;
            roots.add(certificate).map_err(|source| ExporterError::Certificate { path: path(), source })?;
        }
        if roots.is_empty() {
            return Err(ExporterError::NoCertificate { path: path() });
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(ExporterError::Tls)?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exporter_is_made_without_a_runtime_and_a_wrong_authority_is_named() {
        let settings = |certificate: Option<&str>| Settings {
            endpoint: "http://127.0.0.1:4318/v1/traces".parse().unwrap(),
            timeout: std::time::Duration::from_secs(1),
            certificate: certificate.map(PathBuf::from),
        };
        exporter(&settings(None)).unwrap();
        let error = exporter(&settings(Some("/nowhere/ca.crt"))).unwrap_err();
        assert!(matches!(error, ExporterError::Unreadable { .. }), "{error}");
        let empty = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error = exporter(&settings(Some(empty))).unwrap_err();
        assert!(matches!(error, ExporterError::NoCertificate { .. }), "{error}");
    }
}
