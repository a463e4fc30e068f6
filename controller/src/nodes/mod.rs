//! The node agents' connections, and what is asked of supervisors through them.
//!
//! ```text
//!   node agent ─ TLS ─► server ─ token ─► review: which node's agent is this ─ 101 ─► Nodes (garboard-tunnel)
//!   subresources ─► control: one connection to a supervisor's control socket, through the agent of its node
//! ```
//!
//! Every replica has its own connections: whichever one an API server asks reaches every node.

pub(crate) mod change;
pub(crate) mod control;
pub(crate) mod handshakes;
mod review;
pub(crate) mod server;
mod size;
mod standing;

pub use server::run;

use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use futures::StreamExt;

use crate::certificates::serving::{Certificate, follow, tls};
use crate::context::Context;
use crate::webhook::listener::Places;

/// Connections of agents. Each node has one; behind an address that nodes share there may be several.
const PLACES: Places = Places {
    connections: 16 * 1024,
    of_an_address: 64,
    settled: Duration::from_secs(5),
    unproven: Duration::from_secs(30),
    handshake: Duration::from_secs(10),
};

/// The certificate that is shown now, and the stream of those to come.
async fn certificate(context: &Context) -> Option<(RustlsConfig, impl Future<Output = ()> + use<>)> {
    let usable = |certificate: Certificate| std::future::ready(usable(&certificate));
    let mut certificates = Box::pin(follow(context.clone()).filter_map(usable));
    let first = certificates.next().await?;
    let shown = RustlsConfig::from_config(first);
    let reloading = shown.clone();
    let reload = async move {
        while let Some(next) = certificates.next().await {
            reloading.reload_from_config(next);
        }
    };
    Some((shown, reload))
}

fn usable(certificate: &Certificate) -> Option<Arc<rustls::ServerConfig>> {
    let mut config = tls(&certificate.serving, None)
        .inspect_err(|error| tracing::warn!(%error, "the certificate for node agents cannot be used"))
        .ok()?;
    // An upgrade is HTTP/1.1's.
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(config)
}
