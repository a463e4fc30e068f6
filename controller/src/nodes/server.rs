//! Where node agents connect.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, HeaderMap, UPGRADE as UPGRADE_HEADER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use garboard_protocol::causes::ErrorChain;
use garboard_tunnel::controller::{Agent, Nodes};
use garboard_tunnel::{PATH, SPREAD_HEADER, UPGRADE, redial};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;

use super::handshakes::Handshakes;
use super::review::{NotAnAgent, node_of};
use super::standing::ConnectedAgent;
use super::{PLACES, certificate, handshakes, size, standing};
use crate::context::Context;
use crate::webhook::listener::{Listener, RequestRead};

/// Tokens that are reviewed at once: a flood of false ones is no flood of the API server.
const REVIEWS: usize = 16;

#[derive(Clone)]
struct Serving {
    context: Arc<Context>,
    nodes: Nodes,
    reviews: Arc<Semaphore>,
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn run(context: Context, address: SocketAddr, nodes: Nodes) -> std::io::Result<()> {
    let Some((shown, reload)) = certificate(&context).await else { return Ok(()) };
    let (counting, counted) = (context.clone(), nodes.clone());
    let routes = routes(context, nodes);
    let handshakes = Handshakes::new(Listener::new(PLACES), shown, handshakes::AT_ONCE);
    let server = axum_server::bind(address).acceptor(handshakes);
    tokio::select! {
        outcome = server.serve(routes.into_make_service()) => outcome,
        () = reload => Ok(()),
        () = size::follow(&counting, &counted) => Ok(()),
    }
}

/// What is served.
pub(crate) fn routes(context: Context, nodes: Nodes) -> Router {
    let reviews = Arc::new(Semaphore::new(REVIEWS));
    let serving = Serving { context: Arc::new(context), nodes, reviews };
    Router::new().route(PATH, get(connect)).with_state(serving)
}

/// An agent connects: who it is, is asked of the API server; then the connection is used the other way round.
async fn connect(
    State(serving): State<Serving>,
    Extension(read): Extension<RequestRead>,
    mut request: Request,
) -> Response {
    if request.headers().get(UPGRADE_HEADER).map(HeaderValue::as_bytes) != Some(UPGRADE.as_bytes()) {
        let header = [(UPGRADE_HEADER, UPGRADE), (CONNECTION, "upgrade")];
        return (StatusCode::UPGRADE_REQUIRED, header, format!("write `upgrade: {UPGRADE}`")).into_response();
    }
    let Some(token) = bearer(request.headers()) else {
        return (StatusCode::UNAUTHORIZED, "a token is required").into_response();
    };
    let token = token.to_owned();
    let node = match serving.review(&token).await {
        Ok(node) => node,
        Err(error @ NotAnAgent::Unknown(_)) => {
            tracing::warn!(error = %ErrorChain(&error), "a node agent could not be reviewed");
            return (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked whose token this is")
                .into_response();
        }
        Err(error) => {
            tracing::info!(error = %ErrorChain(&error), "a connection to the port of node agents was rejected");
            return (StatusCode::UNAUTHORIZED, [(CONNECTION, "close")], error.to_string()).into_response();
        }
    };
    // Only now it stays.
    read.give();
    let upgrade = hyper::upgrade::on(&mut request);
    let spread = redial::spread(serving.nodes.known().saturating_add(1)).as_millis().to_string();
    drop(tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        tracing::info!(node, "the node's agent is connected");
        let stands = |agent| serving.until_over(&node, token, agent);
        let ended = serving.nodes.serve_while(&node, TokioIo::new(connection), stands).await;
        let error = ended.err().map(|error| ErrorChain(&error).to_string());
        tracing::info!(node, error, "the connection of the node's agent ended");
    }));
    let headers = [("upgrade", UPGRADE), ("connection", "upgrade"), (SPREAD_HEADER, spread.as_str())];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

impl Serving {
    /// Whose token it is, when it is its turn to be asked for.
    async fn review(&self, token: &str) -> Result<String, NotAnAgent> {
        // A semaphore that is never closed.
        let _turn = self.reviews.acquire().await;
        node_of(&self.context, token).await
    }

    /// Goes on as long as the agent is one.
    async fn until_over(&self, node: &str, token: String, agent: Agent) {
        let over = standing::over(node, token, Reviewed { serving: self, agent }).await;
        tracing::info!(node, error = %ErrorChain(&over), "the connection of the node's agent is ended");
    }
}

/// An agent whose tokens the API server reviews.
struct Reviewed<'a> {
    serving: &'a Serving,
    agent: Agent,
}

impl ConnectedAgent for Reviewed<'_> {
    async fn token(&mut self) -> Option<String> {
        self.agent.token().await
    }

    async fn review(&self, token: &str) -> Result<String, NotAnAgent> {
        self.serving.review(token).await
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
