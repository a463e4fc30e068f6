//! What the kubelet asks: `/healthz` answers 200 as long as the process serves at all, `/readyz` once the webhooks do, until the
//! process is asked to end. And `/debug/reconciles`, which has how long reconciliations took ([`crate::durations`]).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use crate::durations::Reconciles;
use crate::shutdown::{Stage, Stages};
use crate::webhook::Gate;

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(
    address: SocketAddr,
    webhooks: Gate,
    stages: Stages,
    reconciles: Arc<Reconciles>,
) -> std::io::Result<()> {
    let ready = move || {
        let answer = readiness(*webhooks.borrow(), stages.now());
        async move { answer }
    };
    let durations = move || std::future::ready(Json(reconciles.to_json()));
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/debug/reconciles", get(durations));
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await
}

fn readiness(webhooks: bool, stage: Stage) -> (StatusCode, &'static str) {
    match (stage, webhooks) {
        (Stage::Serving, true) => (StatusCode::OK, "ok"),
        (Stage::Serving, false) => (StatusCode::SERVICE_UNAVAILABLE, "the webhooks have no certificate yet"),
        (Stage::Leaving | Stage::Draining, _) => (StatusCode::SERVICE_UNAVAILABLE, "the controller was asked to end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_ready_once_its_webhooks_serve_and_until_it_is_asked_to_end() {
        let is_ready = |webhooks, stage| readiness(webhooks, stage).0 == StatusCode::OK;
        assert!(is_ready(true, Stage::Serving));
        assert!(!is_ready(false, Stage::Serving));
        assert!(!is_ready(true, Stage::Leaving) && !is_ready(true, Stage::Draining));
    }
}
