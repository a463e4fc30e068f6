//! The agent's end: it dials a controller and answers what the controller asks for.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, UPGRADE as UPGRADE_HEADER};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsConnector;
use tracing::{Instrument, Span};

use crate::{
    CONNECTION_WINDOW, METRICS_PATH, PATH, PING_EVERY, PING_WITHIN, SPREAD_HEADER, STREAM_WINDOW, STREAMS, Stream,
    TOKEN_PATH, TRACE_HEADER, UPGRADE, redial,
};

/// How long a controller may take to answer.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
/// How long a supervisor may go on sending when the controller has ended its side: a stream that was given up is not kept.
const AFTER_END: Duration = Duration::from_secs(5);
/// The longest reason of a controller that is read, bytes.
const LONGEST_REASON: usize = 1024;

/// Why there is no connection to a controller.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing answers at its address.
    #[error("controller {address} cannot be reached")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The error of the kernel or of TLS.
        #[source]
        source: std::io::Error,
    },
    /// The connection ended before the answer.
    #[error("the connection to controller {address} broke")]
    Broken {
        /// The address.
        address: SocketAddr,
        /// What HTTP reports.
        #[source]
        source: hyper::Error,
    },
    /// It refused.
    #[error("controller {address} answered {status}: {reason}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// Its status.
        status: StatusCode,
        /// Its reason.
        reason: String,
    },
    /// The token has a character that no header may have.
    #[error("the token of the service account is not one")]
    Token,
    /// It does not answer.
    #[error("controller {address} did not answer within {} s", DIAL_WITHIN.as_secs())]
    Slow {
        /// The address.
        address: SocketAddr,
    },
}

/// A controller to be dialled.
#[derive(Clone)]
pub struct Controller {
    /// The address of the replica.
    pub address: SocketAddr,
    /// The name in its certificate.
    pub name: ServerName<'static>,
    /// Which authorities are trusted.
    pub tls: Arc<ClientConfig>,
}

/// Why a supervisor is not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No supervisor of this pod is connected to the agent.
    NoSupervisor,
    /// It has as many connections as it may have, or does not take one.
    Busy,
}

/// The supervisors of a node.
pub trait Supervisors: Send + Sync + 'static {
    /// A new connection to the control socket of the supervisor in a pod.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open(&self, pod_uid: &str) -> impl Future<Output = Result<Opened, Refusal>> + Send;

    /// What is done in a span belongs to a trace of the controller's ([`TRACE_HEADER`]); nothing where no spans are sent.
    fn follow(&self, span: &Span, trace: &str) {
        let _ = (span, trace);
    }

    /// The metrics of the node, at most [`LONGEST_METRICS`](crate::LONGEST_METRICS) bytes; nothing where none are collected.
    fn metrics(&self) -> impl Future<Output = Option<String>> + Send {
        std::future::ready(None)
    }
}

/// A connection to a supervisor, and the place that it takes among those of its pod.
pub struct Opened {
    /// The agent's end.
    pub socket: UnixStream,
    /// Given back when the connection ends.
    pub place: Option<OwnedSemaphorePermit>,
}

/// A connection to a controller.
pub struct Dialled {
    /// For [`serve`].
    pub connection: Stream,
    /// Over what time its agents spread their attempts ([`redial`]).
    pub spread: Duration,
}

/// Connects to a controller, as the service account that the token is of.
///
/// # Errors
/// [`DialError`].
pub async fn dial(controller: &Controller, token: &str) -> Result<Dialled, DialError> {
    let address = controller.address;
    match tokio::time::timeout(DIAL_WITHIN, connect(controller, token)).await {
        Ok(connected) => connected,
        Err(_) => Err(DialError::Slow { address }),
    }
}

async fn connect(controller: &Controller, token: &str) -> Result<Dialled, DialError> {
    let address = controller.address;
    let unreachable = |source| DialError::Unreachable { address, source };
    let socket = TcpStream::connect(address).await.map_err(unreachable)?;
    socket.set_nodelay(true).map_err(unreachable)?;
    let tls = TlsConnector::from(Arc::clone(&controller.tls)).connect(controller.name.clone(), socket);
    upgrade(address, tls.await.map_err(unreachable)?, token).await
}

async fn upgrade(
    address: SocketAddr,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    token: &str,
) -> Result<Dialled, DialError> {
    let broken = |source| DialError::Broken { address, source };
    let (mut requests, running) =
        hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.map_err(broken)?;
    drop(tokio::spawn(running.with_upgrades()));
    let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| DialError::Token)?;
    bearer.set_sensitive(true);
    let request = Request::get(PATH)
        .header(HOST, "garboard-controller")
        .header(CONNECTION, "upgrade")
        .header(UPGRADE_HEADER, UPGRADE)
        .header(AUTHORIZATION, bearer)
        .body(Empty::<Bytes>::new())
        .map_err(|_| DialError::Token)?;
    let answer = requests.send_request(request).await.map_err(broken)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let reason = match Limited::new(answer.into_body(), LONGEST_REASON).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(_) => "no reason was sent".to_owned(),
        };
        return Err(DialError::Refused { address, status, reason });
    }
    let spread = redial::spread_of_header(answer.headers().get(SPREAD_HEADER).and_then(|value| value.to_str().ok()));
    let connection = hyper::upgrade::on(answer).await.map(TokioIo::new).map_err(broken)?;
    Ok(Dialled { connection, spread })
}

/// Answers a controller until the connection ends.
///
/// # Errors
/// What HTTP/2 reports of the end.
pub async fn serve(
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    supervisors: Arc<impl Supervisors>,
) -> hyper::Result<()> {
    serve_with_token(connection, supervisors, || None).await
}

/// The same; `token` is the one that this agent would show now, for a controller that asks ([`TOKEN_PATH`]).
///
/// # Errors
/// What HTTP/2 reports of the end.
pub async fn serve_with_token(
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    supervisors: Arc<impl Supervisors>,
    token: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
) -> hyper::Result<()> {
    let service = service_fn(move |request| answer(request, Arc::clone(&supervisors), token.clone()));
    let mut settings = Builder::new(TokioExecutor::new());
    settings
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_WINDOW as usize)
        .max_concurrent_streams(STREAMS);
    settings.serve_connection(TokioIo::new(connection), service).await
}

async fn answer(
    request: Request<Incoming>,
    supervisors: Arc<impl Supervisors>,
    token: impl Fn() -> Option<String>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET && request.uri().path() == TOKEN_PATH {
        let shown = token().map(|token| Response::new(Full::from(token)));
        return Ok(shown.unwrap_or_else(|| refused(StatusCode::NOT_FOUND, "there is no token now")));
    }
    if request.method() == Method::GET && request.uri().path() == METRICS_PATH {
        let collected = supervisors.metrics().await.map(|text| Response::new(Full::from(text)));
        return Ok(collected.unwrap_or_else(|| refused(StatusCode::NOT_FOUND, "no metrics are collected here")));
    }
    let pod = match (request.method(), request.uri().authority()) {
        (&Method::CONNECT, Some(authority)) => authority.as_str().to_owned(),
        _ => return Ok(refused(StatusCode::METHOD_NOT_ALLOWED, "only CONNECT to a pod's UID is answered here")),
    };
    let span = tracing::info_span!("connection", pod_uid = pod);
    if let Some(trace) = request.headers().get(TRACE_HEADER).and_then(|value| value.to_str().ok()) {
        supervisors.follow(&span, trace);
    }
    match supervisors.open(&pod).instrument(span).await {
        Ok(Opened { socket, place }) => {
            drop(tokio::spawn(async move {
                if let Ok(stream) = hyper::upgrade::on(request).await {
                    copy(TokioIo::new(stream), socket).await;
                }
                drop(place);
                tracing::debug!(pod, "a connection to a supervisor ended");
            }));
            Ok(Response::new(Full::default()))
        }
        Err(Refusal::NoSupervisor) => Ok(refused(StatusCode::NOT_FOUND, "no supervisor of this pod is connected")),
        Err(Refusal::Busy) => Ok(refused(StatusCode::SERVICE_UNAVAILABLE, "the supervisor takes no more connections")),
    }
}

/// Copies both ways until the supervisor has ended its side, or for a while after the controller has.
async fn copy(stream: Stream, socket: UnixStream) {
    let (mut from_controller, mut to_controller) = tokio::io::split(stream);
    let (mut from_supervisor, mut to_supervisor) = socket.into_split();
    let down = async {
        let _ = tokio::io::copy(&mut from_controller, &mut to_supervisor).await;
        let _ = to_supervisor.shutdown().await;
        tokio::time::sleep(AFTER_END).await;
    };
    let up = async {
        let _ = tokio::io::copy(&mut from_supervisor, &mut to_controller).await;
        let _ = to_controller.shutdown().await;
    };
    tokio::select! {
        () = down => {}
        () = up => {}
    }
}

fn refused(status: StatusCode, reason: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(reason));
    *answer.status_mut() = status;
    answer
}
