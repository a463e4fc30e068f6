//! The certificates of the webhooks and of the subresource API: made, published and renewed by ourselves.
//!
//! ```text
//!   Secret garboard-webhook   authorities (newest first) with their keys, and what the webhooks show
//!        │                           and the random segments of the webhooks' paths
//!        │ watched by every replica ──► TLS and paths of the webhook server
//!        ├ authorities' certificates, paths ──► both webhook configurations
//!        ├ authorities' certificates ──► APIServices of subresources.kubevirt.io and subresources.garboard.dev
//!        └ authorities' certificates ──► ConfigMap garboard-authorities, for node agents
//!
//!   Secret garboard-dashboard  what the dashboard shows to browsers, if it is installed; signed by an authority of the first
//! ```
//!
//! One replica, the leader, renews. A new authority is published first and signs only after every API server has had
//! time to learn of it, so that every API server trusts each certificate that it meets.

mod dashboard;
pub mod decide;
mod definitions;
mod keep;
mod make;
mod publish;
pub mod serving;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use x509_parser::pem::Pem;

use crate::webhook::paths::Paths;

pub use keep::{API_SERVICES, SECRET, WEBHOOKS, run};

/// Keys of the Secret's data.
mod field {
    pub(super) const AUTHORITIES: &str = "authorities.crt";
    pub(super) const AUTHORITY_KEYS: &str = "authorities.key";
    pub(super) const CERTIFICATE: &str = "tls.crt";
    pub(super) const KEY: &str = "tls.key";
}

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedKey {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its key, PEM (PKCS #8).
    pub key: String,
    /// Whose it is.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// From when it is valid.
    pub from: Timestamp,
    /// Until when it is valid.
    pub to: Timestamp,
}

/// Everything in the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Authorities, newest first.
    pub authorities: Vec<CertifiedKey>,
    /// What the webhooks show.
    pub serving: Option<CertifiedKey>,
    /// Where they answer.
    pub paths: Option<Paths>,
}

/// Why certificates cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// What stands in the Secret is not what was put there.
    #[error("{what} in the Secret cannot be read: {problem}")]
    Unreadable {
        /// Which entry.
        what: &'static str,
        /// The error of the parser.
        problem: String,
    },
    /// A certificate could not be made.
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// TLS cannot be set up with it.
    #[error("TLS cannot be set up with the certificate")]
    Tls(#[from] rustls::Error),
    /// A time beyond the calendar.
    #[error("a certificate would end beyond the calendar; write a shorter duration")]
    Time(#[from] jiff::Error),
}

impl Chain {
    /// Reads the data of the Secret. An empty Secret is an empty chain.
    ///
    /// # Errors
    /// Another client wrote something else into it.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, CertificateError> {
        let text = |what: &'static str| -> Result<&str, CertificateError> {
            let Some(bytes) = data.get(what) else { return Ok("") };
            let problem =
                |error: std::str::Utf8Error| CertificateError::Unreadable { what, problem: error.to_string() };
            std::str::from_utf8(&bytes.0).map_err(problem)
        };
        let certificates = documents(text(field::AUTHORITIES)?);
        let keys = documents(text(field::AUTHORITY_KEYS)?);
        if certificates.len() != keys.len() {
            let problem = format!("there are {} certificates and {} keys", certificates.len(), keys.len());
            return Err(CertificateError::Unreadable { what: field::AUTHORITY_KEYS, problem });
        }
        let authorities =
            certificates.iter().zip(&keys).map(|(certificate, key)| pair(field::AUTHORITIES, certificate, key));
        let serving = match (text(field::CERTIFICATE)?, text(field::KEY)?) {
            ("", _) | (_, "") => None,
            (certificate, key) => Some(pair(field::CERTIFICATE, certificate, key)?),
        };
        Ok(Self { authorities: authorities.collect::<Result<_, _>>()?, serving, paths: Paths::read(data) })
    }

    /// The data of the Secret.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, ByteString> {
        let joined = |part: fn(&CertifiedKey) -> &str| self.authorities.iter().map(part).collect::<String>();
        let mut data =
            BTreeMap::from([(field::AUTHORITIES, self.bundle()), (field::AUTHORITY_KEYS, joined(|pair| &pair.key))]);
        if let Some(serving) = &self.serving {
            data.insert(field::CERTIFICATE, serving.certificate.clone());
            data.insert(field::KEY, serving.key.clone());
        }
        let data = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
        data.chain(self.paths.iter().flat_map(Paths::write)).collect()
    }

    /// The authority of that subject.
    fn authority(&self, subject: &str) -> Option<&CertifiedKey> {
        self.authorities.iter().find(|authority| authority.subject == subject)
    }

    /// What an API server is to trust: the certificates of all authorities, PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|pair| pair.certificate.as_str()).collect()
    }
}

/// The names by which a Service is asked in its cluster.
fn names_of(service: &str, namespace: &str) -> [String; 2] {
    [format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")]
}

/// A text of several PEM documents, cut into them.
fn documents(text: &str) -> Vec<String> {
    const END: &str = "-----END ";
    let mut found = Vec::new();
    let mut open = String::new();
    for line in text.lines() {
        open.push_str(line);
        open.push('\n');
        if line.starts_with(END) {
            found.push(std::mem::take(&mut open));
        }
    }
    found
}

/// Reads whose a certificate is and how long it lives.
fn pair(what: &'static str, certificate: &str, key: &str) -> Result<CertifiedKey, CertificateError> {
    let unreadable = |problem: String| CertificateError::Unreadable { what, problem };
    let document = Pem::iter_from_buffer(certificate.as_bytes())
        .next()
        .ok_or_else(|| unreadable("there is no certificate".to_owned()))?
        .map_err(|error| unreadable(error.to_string()))?;
    let parsed = document.parse_x509().map_err(|error| unreadable(error.to_string()))?;
    let instant = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
    Ok(CertifiedKey {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        from: instant(parsed.validity().not_before)?,
        to: instant(parsed.validity().not_after)?,
    })
}
