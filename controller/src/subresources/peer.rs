//! Who is at the other end of a connection: the common names of its certificate, beside every request of it.

use std::io;
use std::pin::Pin;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tower::Layer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::webhook::listener::{Bounded, Listener};

/// The common names of a client's certificate, whose signature TLS has checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    /// In the order of the certificate.
    pub(super) common_names: Vec<String>,
}

impl Peer {
    fn of(certificate: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::default() };
        let names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        Self { common_names: names.map(str::to_owned).collect() }
    }
}

/// Makes the TLS connection, and remembers whose it is.
#[derive(Clone)]
pub(super) struct PeerAcceptor(pub(super) RustlsAcceptor<Listener>);

impl<S: Send + 'static> Accept<TcpStream, S> for PeerAcceptor {
    type Stream = TlsStream<Bounded>;
    type Service = AddExtension<axum::middleware::AddExtension<S, crate::webhook::listener::RequestRead>, Peer>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepting = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepting.await?;
            let first = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let peer = first.map(|certificate| Peer::of(certificate)).unwrap_or_default();
            Ok((stream, Extension(peer).layer(service)))
        })
    }
}
