//! The HTTPS server that API servers forward requests to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use axum::routing::any;
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::StreamExt;
use garboard_protocol::causes::ErrorChain;
use garboard_subresources::caller::RequestHeader;
use garboard_tunnel::controller::Nodes;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;

use super::admit::admit;
use super::answer::answer;
use super::leaving::Replica;
use super::peer::PeerAcceptor;
use super::trust;
use super::turns::Turns;
use crate::certificates::serving::{Certificate, follow, tls};
use crate::context::Context;
use crate::shutdown::Stages;
use crate::webhook::bounds::{Limits, bounded};
use crate::webhook::listener::{Listener, Places};

/// Requests of one user at once. Each waits for the API server a few times.
const REQUESTS_OF_A_USER: usize = 16;
/// Requests and new streams of one instance at once, at this replica.
const ASKS_OF_AN_INSTANCE: usize = 4;
/// Streams of one user at once, at this replica.
const STREAMS_OF_A_USER: usize = 128;
/// How long a replica is not ready because it does not know how API servers forward requests. Its webhooks need not know, and
/// a cluster may forward none.
const FIRST_TRUST: Duration = Duration::from_secs(10);

/// What every request is answered with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) context: Arc<Context>,
    /// How API servers forward users.
    pub(super) header: watch::Receiver<Arc<RequestHeader>>,
    pub(super) turns: Turns,
    /// What is asked of each instance at once: a launcher that does not answer holds back its own machine alone.
    pub(super) asks: Turns,
    /// Streams that users have open.
    pub(super) streams: Turns,
    /// The node agents that are connected.
    pub(super) nodes: Nodes,
    /// Where an address of a guest is dialled: there. Tests have no network of pods.
    pub(super) dialled: fn(SocketAddr) -> SocketAddr,
}

/// Serves until all is drained. A cluster that forwards no requests is served once it does.
/// `ready` is set when it listens, and where it cannot, after a while all the same.
///
/// # Errors
/// The address cannot be listened at.
pub async fn run(
    context: Context,
    address: SocketAddr,
    nodes: Nodes,
    ready: watch::Sender<bool>,
    mut stages: Stages,
) -> std::io::Result<()> {
    let mut certificates = std::pin::pin!(follow(context.clone()));
    let mut trusts = std::pin::pin!(trust::follow(context.client.clone()));
    let first = async {
        let certificate = certificates.next().await?;
        let trust = match tokio::time::timeout(FIRST_TRUST, trusts.next()).await {
            Ok(trust) => trust,
            Err(_) => {
                tracing::warn!(
                    "the subresource API is not served: no usable authority of request headers is known yet"
                );
                ready.send_replace(true);
                trusts.next().await
            }
        };
        Some((certificate, trust?))
    };
    let first = tokio::select! {
        first = first => first,
        () = stages.draining() => None,
    };
    let Some((mut certificate, mut trust)) = first else { return Ok(()) };
    let (known, header) = watch::channel(trust.header.clone());
    let Some(config) = config(&certificate, trust.verifier.clone()) else {
        return Err(std::io::Error::other("the first certificate cannot be used"));
    };
    let reloading = RustlsConfig::from_config(config);
    let (turns, streams) = (Turns::new(REQUESTS_OF_A_USER), Turns::new(STREAMS_OF_A_USER));
    let asks = Turns::new(ASKS_OF_AN_INSTANCE);
    let dialled = std::convert::identity;
    let serving = Serving { context: Arc::new(context), header, turns, asks, streams, nodes, dialled };
    let replica = Replica::new(stages.clone());
    let routes = stages.closing(routes(serving)).layer(Extension(replica.clone()));
    let tls = RustlsAcceptor::new(reloading.clone()).handshake_timeout(Places::USUAL.handshake);
    let acceptor = PeerAcceptor(tls.acceptor(Listener::new(Places::USUAL)));
    let handle = Handle::new();
    let server = axum_server::bind(address).handle(handle.clone()).acceptor(acceptor);
    let listening = handle.clone();
    let reload = async {
        ready.send_replace(listening.listening().await.is_some());
        loop {
            tokio::select! {
                Some(next) = certificates.next() => certificate = next,
                Some(next) = trusts.next() => trust = next,
                else => return,
            }
            known.send_replace(trust.header.clone());
            if let Some(next) = self::config(&certificate, trust.verifier.clone()) {
                reloading.reload_from_config(next);
            }
        }
    };
    let outcome = tokio::select! {
        outcome = server.serve(routes.into_make_service()) => outcome,
        () = reload => Ok(()),
        () = stages.drain(handle) => Ok(()),
    };
    replica.closed().await;
    outcome
}

/// Requests are admitted first; only then they are read, and take a turn.
pub(super) fn routes(serving: Serving) -> Router {
    let routes = Router::new().route("/", any(answer)).route("/{*path}", any(answer)).with_state(serving.clone());
    bounded(routes, Limits::SUBRESOURCES).route_layer(from_fn_with_state(serving, admit))
}

fn config(certificate: &Certificate, verifier: Arc<dyn ClientCertVerifier>) -> Option<Arc<rustls::ServerConfig>> {
    tls(&certificate.serving, Some(verifier))
        .inspect_err(
            |error| tracing::warn!(error = %ErrorChain(error), "the certificate of the subresource API cannot be used"),
        )
        .ok()
}
