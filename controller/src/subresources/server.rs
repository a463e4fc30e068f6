//! The HTTPS server that API servers forward requests to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use futures::StreamExt;
use garboard_protocol::causes::ErrorChain;
use garboard_subresources::caller::RequestHeader;
use garboard_subresources::refusal::Refusal;
use garboard_tunnel::controller::Nodes;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tokio::time::Instant;

use super::admit::admit;
use super::answer::answer;
use super::health::Health;
use super::leaving::Replica;
use super::limits::{
    ASKS_OF_AN_INSTANCE, INSTANCE_WITHIN, LIMITS, PLACES, REQUESTS_OF_A_CONNECTION, STREAMS, WAITING_OF_AN_INSTANCE,
    WINDOW_OF_A_CONNECTION, WINDOW_OF_A_REQUEST,
};
use super::lines::Lines;
use super::peer::PeerAcceptor;
use super::shares::{Most, Rates, Requests, Streams};
use super::trust;
use super::turns::{Turn, Turns};
use crate::certificates::serving::{Certificate, follow, tls};
use crate::context::Context;
use crate::shutdown::Stages;
use crate::webhook::bounds::bounded;
use crate::webhook::listener::Listener;

/// How long a replica is not ready because it does not know how API servers forward requests. Its webhooks need not know, and
/// a cluster may forward none.
const FIRST_TRUST: Duration = Duration::from_secs(10);

/// What every request is answered with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) context: Arc<Context>,
    /// How API servers forward users.
    pub(super) header: watch::Receiver<Arc<RequestHeader>>,
    /// The shares of users and namespaces in requests.
    pub(super) requests: Requests,
    /// How often they may ask.
    pub(super) rates: Rates,
    /// How often they cause a log line by what they ask of QEMU.
    pub(super) qmp_lines: Lines,
    /// What is asked of each instance at once: a launcher that does not answer holds back its own machine alone.
    asks: Turns,
    /// The shares of users and namespaces in streams.
    pub(super) streams: Streams,
    /// Whether the API server answers.
    pub(super) health: Health,
    /// The node agents that are connected.
    pub(super) nodes: Nodes,
    /// What streams know of this process.
    pub(super) replica: Replica,
    /// Where an address of a guest is dialled: there. Tests have no network of pods.
    pub(super) dialled: fn(SocketAddr) -> SocketAddr,
}

impl Serving {
    /// One that has nothing under way, with at most so many streams.
    pub(super) fn new(
        context: Context,
        header: watch::Receiver<Arc<RequestHeader>>,
        nodes: Nodes,
        streams: Most,
        replica: Replica,
    ) -> Self {
        Self {
            health: Health::new(context.client.clone(), context.settings.clone()),
            context: Arc::new(context),
            header,
            requests: Requests::usual(),
            rates: Rates::usual(),
            qmp_lines: Lines::usual(),
            asks: Turns::new(ASKS_OF_AN_INSTANCE, WAITING_OF_AN_INSTANCE),
            streams: Streams::new(streams),
            nodes,
            replica,
            dialled: std::convert::identity,
        }
    }

    /// A turn to ask an instance.
    pub(super) async fn turn_to_ask(&self, pod_uid: &str) -> Result<Turn, Refusal> {
        let turn = self.asks.wait(pod_uid, Instant::now() + INSTANCE_WITHIN).await;
        turn.ok_or(Refusal::TooManyRequests)
    }
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
    let replica = Replica::new(stages.clone());
    let serving = Serving::new(context, header, nodes, STREAMS, replica.clone());
    let routes = stages.closing(routes(serving));
    let tls = RustlsAcceptor::new(reloading.clone()).handshake_timeout(PLACES.handshake);
    let acceptor = PeerAcceptor(tls.acceptor(Listener::new(PLACES)));
    let handle = Handle::new();
    let server = fair(axum_server::bind(address)).handle(handle.clone()).acceptor(acceptor);
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

/// A server whose connections of HTTP/2 have room for the bodies of all their requests, also while none of them is read.
pub(super) fn fair(mut server: Server<SocketAddr>) -> Server<SocketAddr> {
    server
        .http_builder()
        .http2()
        .max_concurrent_streams(REQUESTS_OF_A_CONNECTION)
        .initial_stream_window_size(WINDOW_OF_A_REQUEST)
        .initial_connection_window_size(WINDOW_OF_A_CONNECTION);
    server
}

/// Requests are admitted first; only then they are read.
pub(super) fn routes(serving: Serving) -> Router {
    let routes = Router::new().route("/", any(answer)).route("/{*path}", any(answer)).with_state(serving.clone());
    bounded(routes, LIMITS).route_layer(from_fn_with_state(serving, admit))
}

fn config(certificate: &Certificate, verifier: Arc<dyn ClientCertVerifier>) -> Option<Arc<rustls::ServerConfig>> {
    tls(&certificate.serving, Some(verifier))
        .inspect_err(
            |error| tracing::warn!(error = %ErrorChain(error), "the certificate of the subresource API cannot be used"),
        )
        .ok()
}
