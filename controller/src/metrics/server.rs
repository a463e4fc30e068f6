//! Where Prometheus asks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::StreamExt;
use garboard_protocol::causes::ErrorChain;
use garboard_tunnel::controller::{MetricsError, Nodes};
use tokio::sync::{Semaphore, watch};

use super::access::{Access, Refused};
use super::exposed;
use crate::certificates::serving::{Certificate, follow, tls};
use crate::context::Context;
use crate::health::Servers;
use crate::webhook::listener::{Listener, Places, RequestRead};

/// A few that scrape, with a few connections each.
const PLACES: Places = Places {
    connections: 64,
    of_an_address: 32,
    settled: Duration::from_secs(5),
    unproven: Duration::from_secs(30),
    handshake: Duration::from_secs(10),
};
/// Metrics of nodes that are read at once, and texts of this replica: each may have some megabytes.
const NODES_AT_ONCE: usize = 8;
const OWN_AT_ONCE: usize = 2;

/// What a request is answered with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) context: Arc<Context>,
    pub(super) nodes: Nodes,
    pub(super) ready: Servers,
    /// When the certificate that is shown ends, seconds since 1970.
    pub(super) expires: watch::Receiver<f64>,
    pub(super) refusals: Arc<Refusals>,
    access: Arc<Access>,
    of_nodes: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// How often who was refused.
#[derive(Default)]
pub(super) struct Refusals([AtomicU64; Refused::REASONS.len()]);

impl Refusals {
    fn count(&self, refused: &Refused) {
        let place = Refused::REASONS.iter().position(|reason| *reason == refused.reason());
        if let Some(count) = place.and_then(|place| self.0.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counted(&self) -> BTreeMap<&'static str, u64> {
        Refused::REASONS.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn run(context: Context, address: SocketAddr, nodes: Nodes, ready: Servers) -> std::io::Result<()> {
    let mut certificates = Box::pin(follow(context.clone()).filter_map(|each| std::future::ready(usable(&each))));
    let Some((first, ends)) = certificates.next().await else { return Ok(()) };
    let shown = RustlsConfig::from_config(first);
    let (renewed, expires) = watch::channel(ends);
    let reloading = shown.clone();
    let reload = async {
        while let Some((next, ends)) = certificates.next().await {
            reloading.reload_from_config(next);
            renewed.send_replace(ends);
        }
    };
    let serving = Serving::new(context, nodes, ready, expires);
    let tls = RustlsAcceptor::new(shown).handshake_timeout(PLACES.handshake);
    let server = axum_server::bind(address).acceptor(tls.acceptor(Listener::new(PLACES)));
    tokio::select! {
        outcome = server.serve(routes(serving).into_make_service()) => outcome,
        () = reload => Ok(()),
    }
}

impl Serving {
    /// One that has nothing under way.
    pub(super) fn new(context: Context, nodes: Nodes, ready: Servers, expires: watch::Receiver<f64>) -> Self {
        Self {
            access: Arc::new(Access::new(context.client.clone())),
            context: Arc::new(context),
            nodes,
            ready,
            expires,
            refusals: Arc::default(),
            of_nodes: Arc::new(Semaphore::new(NODES_AT_ONCE)),
            own: Arc::new(Semaphore::new(OWN_AT_ONCE)),
        }
    }
}

/// What is served. Who has no right reaches none of it.
pub(super) fn routes(serving: Serving) -> Router {
    Router::new()
        .route("/metrics", get(own))
        .route("/metrics/nodes/{node}", get(of_node))
        .with_state(serving.clone())
        .layer(from_fn_with_state(serving, admit))
}

async fn admit(State(serving): State<Serving>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let Err(refused) = serving.access.admit(&headers).await else {
        // Its connection stays: Prometheus uses it again.
        if let Some(read) = request.extensions().get::<RequestRead>() {
            read.give();
        }
        return next.run(request).await;
    };
    serving.refusals.count(&refused);
    let status = match refused {
        Refused::NoToken | Refused::Invalid => StatusCode::UNAUTHORIZED,
        Refused::Forbidden { .. } => StatusCode::FORBIDDEN,
        Refused::Unknown(_) | Refused::Slow => StatusCode::SERVICE_UNAVAILABLE,
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        tracing::warn!(error = %ErrorChain(&refused), "a request for metrics could not be judged");
    }
    let mut answer = (status, refused.to_string()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

async fn own(State(serving): State<Serving>) -> Response {
    // A semaphore that is never closed.
    let _turn = Arc::clone(&serving.own).acquire_owned().await;
    let made = tokio::task::spawn_blocking(move || exposed::text(&serving)).await;
    match made {
        Ok(text) => exposition(text).into_response(),
        // It panicked, which the panic itself has logged.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn of_node(State(serving): State<Serving>, Path(node): Path<String>) -> Response {
    match serving.nodes.metrics(&node, &serving.of_nodes).await {
        Ok(text) => exposition(text).into_response(),
        Err(error) => {
            let status = match error {
                MetricsError::NoAgent { .. } => StatusCode::NOT_FOUND,
                MetricsError::Refused { .. } | MetricsError::Broken { .. } => StatusCode::BAD_GATEWAY,
                MetricsError::Slow { .. } => StatusCode::GATEWAY_TIMEOUT,
            };
            tracing::info!(node, error = %ErrorChain(&error), "there are no metrics of a node");
            (status, error.to_string()).into_response()
        }
    }
}

fn exposition<T: IntoResponse>(text: T) -> impl IntoResponse {
    ([(CONTENT_TYPE, garboard_metrics::CONTENT_TYPE)], text)
}

/// What is shown, and until when it is good.
#[expect(clippy::cast_precision_loss, reason = "times of the next hundred million years are exact")]
fn usable(certificate: &Certificate) -> Option<(Arc<rustls::ServerConfig>, f64)> {
    let mut config = tls(&certificate.serving, None)
        .inspect_err(|error| tracing::warn!(%error, "the certificate for metrics cannot be used"))
        .ok()?;
    // One request at a time on a connection, so that their number bounds that of answers.
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    Some((config, certificate.serving.to.as_second() as f64))
}
