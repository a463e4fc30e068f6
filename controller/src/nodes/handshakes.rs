//! TLS handshakes of agents: so many at once, so that all agents of a large cluster together take no more than that of this process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::PLACES;
use crate::webhook::listener::{Bounded, Listener, RequestRead};

/// Handshakes at once. More than the connections of an address: one peer that says nothing does not hold back all others.
pub(crate) const AT_ONCE: usize = 256;
const _: () = assert!(AT_ONCE > PLACES.of_an_address);

/// Accepts connections, each with its handshake.
#[derive(Clone)]
pub(crate) struct Handshakes {
    listener: Listener,
    shown: RustlsConfig,
    turns: Arc<Semaphore>,
}

impl Handshakes {
    /// With the certificate that is shown.
    pub(crate) fn new(listener: Listener, shown: RustlsConfig, at_once: usize) -> Self {
        Self { listener, shown, turns: Arc::new(Semaphore::new(at_once)) }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Handshakes {
    type Stream = TlsStream<Bounded>;
    type Service = axum::middleware::AddExtension<S, RequestRead>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // It takes its place among the connections first: how many wait here is bounded.
        let accepted = self.listener.accept(stream, service);
        let (shown, turns) = (self.shown.get_inner(), Arc::clone(&self.turns));
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let slow = |_| io::Error::from(io::ErrorKind::TimedOut);
            // An agent has given up after the same time.
            let _turn = timeout(PLACES.handshake, turns.acquire()).await.map_err(slow)?.map_err(io::Error::other)?;
            let stream = timeout(PLACES.handshake, TlsAcceptor::from(shown).accept(stream)).await.map_err(slow)??;
            Ok((stream, service))
        })
    }
}
