//! What the kubelet asks: `/healthz` answers 200 as long as the process serves at all, `/readyz` once the webhooks and the
//! subresource API do, until the process is asked to end. And `/debug/reconciles`, which has how long reconciliations took ([`crate::durations`]).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use crate::durations::Reconciles;
use crate::shutdown::{Stage, Stages};
use crate::webhook::Readiness;

/// What has to serve before this replica is asked.
#[derive(Clone)]
pub struct Servers {
    /// The webhooks.
    pub webhooks: Readiness,
    /// The subresource API.
    pub subresources: Readiness,
}

impl Servers {
    /// Whether all of them serve.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.webhooks.borrow() && *self.subresources.borrow()
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(
    address: SocketAddr,
    servers: Servers,
    stages: Stages,
    reconciles: Arc<Reconciles>,
) -> std::io::Result<()> {
    let ready = move || {
        let answer = readiness(*servers.webhooks.borrow(), *servers.subresources.borrow(), stages.now());
        async move { answer }
    };
    let durations = move || std::future::ready(Json(reconciles.to_json()));
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/debug/reconciles", get(durations));
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await
}

fn readiness(webhooks: bool, subresources: bool, stage: Stage) -> (StatusCode, &'static str) {
    match (stage, webhooks, subresources) {
        (Stage::Serving, true, true) => (StatusCode::OK, "ok"),
        (Stage::Serving, true, false) => (StatusCode::SERVICE_UNAVAILABLE, "the subresource API does not listen yet"),
        (Stage::Serving, false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the webhooks have no certificate yet"),
        (Stage::Leaving | Stage::Draining, ..) => (StatusCode::SERVICE_UNAVAILABLE, "the controller was asked to end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_ready_once_all_of_it_serves_and_until_it_is_asked_to_end() {
        let is_ready = |webhooks, subresources, stage| readiness(webhooks, subresources, stage).0 == StatusCode::OK;
        assert!(is_ready(true, true, Stage::Serving));
        assert!(!is_ready(false, true, Stage::Serving) && !is_ready(true, false, Stage::Serving));
        assert!(!is_ready(true, true, Stage::Leaving) && !is_ready(true, true, Stage::Draining));
    }
}
