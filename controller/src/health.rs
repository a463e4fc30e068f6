//! What the kubelet asks: `/healthz` answers 200 as long as the process serves at all, `/readyz` once the webhooks do. And
//! `/debug/reconciles`, which has how long reconciliations took ([`crate::durations`]).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use crate::durations::Reconciles;
use crate::webhook::Gate;

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(address: SocketAddr, webhooks: Gate, reconciles: Arc<Reconciles>) -> std::io::Result<()> {
    let ready = move || {
        let is_ready = *webhooks.borrow();
        async move {
            if is_ready {
                (StatusCode::OK, "ok")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "the webhooks have no certificate yet")
            }
        }
    };
    let durations = move || std::future::ready(Json(reconciles.to_json()));
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/debug/reconciles", get(durations));
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await
}
