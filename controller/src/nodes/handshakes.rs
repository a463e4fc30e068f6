//! TLS handshakes of agents: so many at once, so that all agents of a large cluster together take no more than that of this process.
//!
//! A turn is for the arithmetic of a handshake. A peer that says nothing, or stops in the middle, has none: otherwise a few pods that only
//! connect would hold all turns, and agents would wait for longer than they try.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::PLACES;
use crate::webhook::listener::{Bounded, Listener, RequestRead};

/// Handshakes at once. More than the connections of an address.
pub(crate) const AT_ONCE: usize = 256;
const _: () = assert!(AT_ONCE > PLACES.of_an_address);
/// How long a handshake may have its turn. It goes on without one: by then it waits for its peer.
const TURN: Duration = Duration::from_secs(1);

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
            let (mut stream, service) = accepted.await?;
            let slow = |_| io::Error::from(io::ErrorKind::TimedOut);
            timeout(PLACES.handshake, stream.readable()).await.map_err(slow)??;
            // An agent has given up after the same time.
            let turn = timeout(PLACES.handshake, turns.acquire()).await.map_err(slow)?.map_err(io::Error::other)?;
            let mut shaking = pin!(timeout(PLACES.handshake, TlsAcceptor::from(shown).accept(stream)));
            let shaken = match timeout(TURN, &mut shaking).await {
                Ok(shaken) => shaken,
                Err(_) => {
                    drop(turn);
                    shaking.await
                }
            };
            Ok((shaken.map_err(slow)??, service))
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::certificates::CertifiedKey;
    use crate::certificates::serving::tls;
    use crate::webhook::testing::PATIENCE;

    const NAME: &str = "garboard-controller";
    /// How a TLS peer begins: the head of a record, and too little of what follows.
    const HALF_A_RECORD: &[u8] = b"\x16\x03\x01\x02\x00\x01";

    /// A server that has one turn, and a client that trusts it.
    fn pair() -> (Handshakes, TlsConnector) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
        let serving = CertifiedKey {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            subject: NAME.to_owned(),
            issuer: NAME.to_owned(),
            from: jiff::Timestamp::UNIX_EPOCH,
            to: jiff::Timestamp::MAX,
        };
        let shown = RustlsConfig::from_config(tls(&serving, None).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let trusting = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        (Handshakes::new(Listener::new(PLACES), shown, 1), TlsConnector::from(Arc::new(trusting)))
    }

    #[tokio::test]
    async fn peers_that_say_nothing_and_peers_that_stop_hold_no_turn() {
        let (handshakes, connector) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(handshakes.accept(stream, ()));
            }
        });
        let mut held = Vec::new();
        for beginning in [b"".as_slice(), HALF_A_RECORD] {
            for _ in 0..3 {
                let mut peer = TcpStream::connect(address).await.unwrap();
                peer.write_all(beginning).await.unwrap();
                held.push(peer);
            }
        }
        // After one turn of each that stopped, and not after the time that a handshake may take.
        let agent = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let begun = tokio::time::Instant::now();
        tokio::time::timeout(PATIENCE, connector.connect(name, agent)).await.expect("it has a turn").unwrap();
        assert!(begun.elapsed() < PLACES.handshake, "{:?}", begun.elapsed());
        serving.abort();
    }
}
