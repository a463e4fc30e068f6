//! What controller and node agent share: the way to the API server, and what both write of an instance ([`report`]).
//!
//! What `kube` offers by itself notices after five minutes that the other end of a watch is gone: a process that was cut off
//! for a while, or whose API server was, would act on what was true before. Here the kernel asks the other end.
//!
//! All requests of a process share one connection (HTTP/2), each has a time limit ([`deadline`]) and is counted ([`requests`]), and what
//! the API server answers is not logged ([`log`]).
#![forbid(unsafe_code)]

pub mod deadline;
pub mod log;
pub mod names;
pub mod report;
pub mod requests;
pub mod settings;

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use deadline::DeadlineLayer;
use requests::Requests;

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
    /// Neither a service account nor a kubeconfig has its address.
    #[error("find out how to reach the API server")]
    Unknown(#[source] Box<kube::config::InferConfigError>),
    /// What they contain cannot be used: a certificate, a proxy.
    #[error("prepare a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// How much of all answers together, and of one, may be on its way before it was read, bytes: a watch that is read slowly
/// must not hold up the others of its connection.
const WINDOWS: (u32, u32) = (16 << 20, 1 << 20);

/// A client by this process's service account, or its kubeconfig, whose requests are counted there. Connections whose other end is gone
/// are closed after 25 s; a request that is not answered within [`deadline::DEADLINE`] has failed.
///
/// # Errors
/// [`ApiServerError`].
pub async fn client(requests: &Requests) -> Result<Client, ApiServerError> {
    let config = Config::infer().await.map_err(|error| ApiServerError::Unknown(Box::new(error)))?;
    of(config, requests).map_err(|error| ApiServerError::Client(Box::new(error)))
}

/// The same kind of client, by the configuration of the caller, uncounted.
///
/// # Errors
/// [`ApiServerError::Client`].
pub fn client_of(config: Config) -> Result<Client, ApiServerError> {
    of(config, &Requests::default()).map_err(|error| ApiServerError::Client(Box::new(error)))
}

/// As `kube` makes it, but for the connection, the time limit and the count. What is refused for a moment is asked again for some
/// seconds, so that the last answer is still received within the limit.
fn of(config: Config, requests: &Requests) -> kube::Result<Client> {
    let (connection, stream) = WINDOWS;
    let http: Http<_, Body> = Http::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_initial_connection_window_size(connection)
        .http2_initial_stream_window_size(stream)
        .http2_keep_alive_interval(SILENCE)
        .http2_keep_alive_timeout(ANSWER * ATTEMPTS)
        .build(https(&config)?);
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer)
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::default())))
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .layer(requests.layer())
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// HTTP/2 where the server has it.
fn https(config: &Config) -> kube::Result<HttpsConnector<HttpConnector>> {
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(BoxError::from(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(connector(config)))
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
