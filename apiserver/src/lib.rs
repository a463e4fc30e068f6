//! The way of controller and node agent to the API server.
//!
//! What `kube` offers by itself notices after five minutes that a watch is connected to nobody any more: whoever was cut off
//! for a while, or whose API server was, would act on what was true before. Here the kernel asks the other end.
#![forbid(unsafe_code)]

use std::time::Duration;

use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// How long a connection may be silent before the other end is asked (`TCP_KEEPIDLE`, tcp(7)).
const SILENCE: Duration = Duration::from_secs(10);
/// How long it has for each answer (`TCP_KEEPINTVL`).
const ANSWER: Duration = Duration::from_secs(5);
/// After so many answers that did not come the connection is closed (`TCP_KEEPCNT`).
const ATTEMPTS: u32 = 3;
/// How long what was sent may stay unconfirmed (`TCP_USER_TIMEOUT`).
const UNCONFIRMED: Duration = Duration::from_secs(25);

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    /// Neither a service account nor a kubeconfig says where it is.
    #[error("find out how to reach the API server")]
    Unknown(#[source] Box<kube::config::InferConfigError>),
    /// What they say cannot be used: a certificate, a proxy.
    #[error("prepare a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// A client as this process's service account, or its kubeconfig, says. Connections whose other end is gone are closed
/// after 25 s.
///
/// # Errors
/// [`ApiServerError`].
pub async fn client() -> Result<Client, ApiServerError> {
    let config = Config::infer().await.map_err(|error| ApiServerError::Unknown(Box::new(error)))?;
    of(config).map_err(|error| ApiServerError::Client(Box::new(error)))
}

/// As `kube` makes it, but for the connector.
fn of(config: Config) -> kube::Result<Client> {
    let https = config.rustls_https_connector_with_connector(connector(&config))?;
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

fn connector(config: &Config) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(SILENCE));
    connector.set_keepalive_interval(Some(ANSWER));
    connector.set_keepalive_retries(Some(ATTEMPTS));
    connector.set_tcp_user_timeout(Some(UNCONFIRMED));
    connector
}
