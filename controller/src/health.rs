//! What the kubelet asks: `/healthz` and `/readyz` answer 200 as long as the process serves at all.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(address: SocketAddr) -> std::io::Result<()> {
    let routes = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(|| async { "ok" }));
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await
}
