//! What the kubelet asks: `/healthz` answers 200 as long as the process serves at all, `/readyz` once the webhooks do.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::webhook::Gate;

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(address: SocketAddr, webhooks: Gate) -> std::io::Result<()> {
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
    let routes = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready));
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await
}
