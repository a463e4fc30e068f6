//! A client of the API server that is just enough to ask a question: one connection each, HTTP/1.0, no library.
//! Starting `kubectl` for each look would take more processor than the control plane has to spare.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::{Error, Result};
use crate::layout::{API_PORT, HOST_ADDRESS, Layout};
use crate::pki::AUTHORITY;

/// For a connection, and for each piece of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The administrator, as a client.
#[derive(Clone)]
pub struct Api(Arc<ClientConfig>);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's.
    pub status: u16,
    /// JSON, mostly.
    pub body: String,
}

impl Answer {
    /// Whether it was done.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Api {
    /// The administrator of a cluster whose certificates are there.
    ///
    /// # Errors
    /// They are missing, or were changed.
    pub fn of_administrator(layout: &Layout) -> Result<Self> {
        let load = || -> std::result::Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(layout.certificate(AUTHORITY))?)?;
            let own = vec![CertificateDer::from_pem_file(layout.certificate("admin"))?];
            let key = PrivateKeyDer::from_pem_file(layout.key("admin"))?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            Ok(builder.with_root_certificates(roots).with_client_auth_cert(own, key)?)
        };
        let unusable = |source| Error::File {
            action: "use the certificates in",
            path: layout.state.join("pki"),
            source: io::Error::other(source),
        };
        load().map(|config| Self(Arc::new(config))).map_err(unusable)
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// The server does not answer. A refusal is an [`Answer`].
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path, "")
    }

    /// Sends a JSON object to a path.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn post(&self, path: &str, object: &serde_json::Value) -> Result<Answer> {
        self.request("POST", path, &object.to_string())
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let exchange = || -> io::Result<Answer> {
            let mut stream = self.connect()?;
            write!(
                stream,
                "{method} {path} HTTP/1.0\r\nHost: {HOST_ADDRESS}\r\nAccept: application/json\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = Vec::new();
            match stream.read_to_end(&mut answer) {
                // The server closed without `close_notify`; its answer is parsed as it is.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                other => drop(other?),
            }
            parse(&String::from_utf8_lossy(&answer))
        };
        exchange().map_err(|source| Error::Api { path: path.to_owned(), source })
    }

    fn connect(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect_timeout(&SocketAddr::from((HOST_ADDRESS, API_PORT)), PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let server = ServerName::IpAddress(std::net::IpAddr::from(HOST_ADDRESS).into());
        let session = ClientConnection::new(Arc::clone(&self.0), server).map_err(io::Error::other)?;
        Ok(StreamOwned::new(session, socket))
    }
}

/// Status and body of an HTTP/1 answer.
fn parse(answer: &str) -> io::Result<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = parse("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}").unwrap();
        assert_eq!(answer, Answer { status: 200, body: "{}".to_owned() });
        assert!(answer.is_success());
        assert!(!parse("HTTP/1.0 403 Forbidden\r\n\r\n").unwrap().is_success());
        assert!(parse("").is_err());
        assert!(parse("nonsense\r\n\r\n").is_err());
    }
}
