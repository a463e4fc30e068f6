//! The controller's end: the nodes that are connected, and connections to the supervisors of their pods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::{
    CONNECTION_WINDOW, LONGEST_METRICS, LONGEST_TOKEN, METRICS_PATH, METRICS_WITHIN, PING_EVERY, PING_WITHIN,
    STREAM_WINDOW, Stream, TOKEN_PATH, TRACE_HEADER,
};

/// How long an agent may take to reach a supervisor of its node.
const OPEN_WITHIN: Duration = Duration::from_secs(6);
/// The longest reason of an agent that is read, bytes.
const LONGEST_REASON: usize = 1024;

/// Why a supervisor is not reached.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No agent of this node is connected to this replica.
    #[error("the agent of node {node} is not connected")]
    NoAgent {
        /// The node.
        node: String,
    },
    /// The agent refused.
    #[error("the agent of node {node} answered {status}: {reason}")]
    Refused {
        /// The node.
        node: String,
        /// Its status: 404 for a pod whose supervisor is not connected to the agent.
        status: StatusCode,
        /// Its reason.
        reason: String,
    },
    /// The connection to the agent broke.
    #[error("the connection to the agent of node {node} broke")]
    Broken {
        /// The node.
        node: String,
        /// What HTTP/2 reports.
        #[source]
        source: hyper::Error,
    },
    /// The agent does not answer.
    #[error("the agent of node {node} did not answer within {} s", OPEN_WITHIN.as_secs())]
    Slow {
        /// The node.
        node: String,
    },
}

/// Why there are no metrics of a node.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// No agent of this node is connected to this replica.
    #[error("the agent of node {node} is not connected")]
    NoAgent {
        /// The node.
        node: String,
    },
    /// The agent refused: with 405, if it is of a version that collects none.
    #[error("the agent of node {node} answered {status} to a request for its metrics")]
    Refused {
        /// The node.
        node: String,
        /// Its status.
        status: StatusCode,
    },
    /// The connection to the agent broke, or it sent more than [`LONGEST_METRICS`].
    #[error("the metrics of node {node} could not be read")]
    Broken {
        /// The node.
        node: String,
        /// What HTTP/2 reports.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The agent does not answer.
    #[error("the agent of node {node} did not send its metrics within {} s", METRICS_WITHIN.as_secs())]
    Slow {
        /// The node.
        node: String,
    },
}

/// The nodes whose agents are connected to this replica.
#[derive(Clone, Default)]
pub struct Nodes(Arc<Mutex<Connected>>);

#[derive(Default)]
struct Connected {
    next: u64,
    /// The newest connection of a node comes last: it is the one that is used. Those before it are kept, for when it ends first.
    by_node: HashMap<String, Vec<Connection>>,
    /// How many there were at most.
    most: usize,
    /// How many there are to be.
    expected: usize,
}

struct Connection {
    number: u64,
    requests: SendRequest<Empty<Bytes>>,
}

impl Nodes {
    /// Uses the connection of a node's agent until it ends. The newest connection of a node gets what is opened from now on;
    /// streams of an earlier one go on, and where the newest one ends first, the one before it is used again.
    ///
    /// # Errors
    /// What HTTP/2 reports of the end.
    pub async fn serve(
        &self,
        node: &str,
        connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> hyper::Result<()> {
        self.serve_while(node, connection, |_| std::future::pending()).await
    }

    /// The same, but not for longer than `holds` goes on, which may ask the agent.
    ///
    /// # Errors
    /// What HTTP/2 reports of the end.
    pub async fn serve_while<F: Future<Output = ()>>(
        &self,
        node: &str,
        connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        holds: impl FnOnce(Agent) -> F,
    ) -> hyper::Result<()> {
        let mut settings = Builder::new(TokioExecutor::new());
        settings
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(STREAM_WINDOW as usize);
        let (requests, running) = settings.handshake(TokioIo::new(connection)).await?;
        let _entry = self.enter(node, requests.clone());
        tokio::select! {
            ended = running => ended,
            () = holds(Agent(requests)) => Ok(()),
        }
    }

    /// How many nodes there are, as far as this replica knows: as many as it expects, and as many as were connected at once. Those that are
    /// connected now are no measure: just after a restart they are few.
    #[must_use]
    pub fn known(&self) -> usize {
        let connected = self.lock();
        connected.expected.max(connected.most)
    }

    /// So many nodes are to have an agent.
    pub fn expect(&self, nodes: usize) {
        self.lock().expected = nodes;
    }

    /// Whether no node is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().by_node.is_empty()
    }

    /// Whether a node is connected.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        self.lock().by_node.contains_key(node)
    }

    /// A connection to the supervisor in a launcher pod, by the pod's UID. What the agent does for it is in a trace, if there is a value of
    /// [`TRACE_HEADER`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, node: &str, pod_uid: &str, trace: Option<&str>) -> Result<Stream, OpenError> {
        let name = || node.to_owned();
        let mut requests = {
            let nodes = self.lock();
            let newest = nodes.by_node.get(node).and_then(|connections| connections.last());
            newest.ok_or_else(|| OpenError::NoAgent { node: name() })?.requests.clone()
        };
        let broken = |source| OpenError::Broken { node: name(), source };
        let unreadable = |error: http::Error| OpenError::Refused {
            node: name(),
            status: StatusCode::BAD_REQUEST,
            reason: error.to_string(),
        };
        let mut request = Request::builder().method(Method::CONNECT).uri(pod_uid);
        if let Some(trace) = trace {
            request = request.header(TRACE_HEADER, trace);
        }
        let request = request.body(Empty::new()).map_err(unreadable)?;
        let answer = tokio::time::timeout(OPEN_WITHIN, requests.send_request(request)).await;
        let answer = answer.map_err(|_| OpenError::Slow { node: name() })?.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(OpenError::Refused { node: name(), status: answer.status(), reason: reason(answer).await });
        }
        hyper::upgrade::on(answer).await.map(TokioIo::new).map_err(broken)
    }

    /// The metrics of a node, in Prometheus' text format. A turn of `reading` is taken while they are read, and not while the agent
    /// collects them: agents that do not answer keep no other node's from being read.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub async fn metrics(&self, node: &str, reading: &Semaphore) -> Result<Bytes, MetricsError> {
        let name = || node.to_owned();
        let mut requests = {
            let nodes = self.lock();
            let newest = nodes.by_node.get(node).and_then(|connections| connections.last());
            newest.ok_or_else(|| MetricsError::NoAgent { node: name() })?.requests.clone()
        };
        let request = Request::get(format!("http://agent{METRICS_PATH}")).body(Empty::new());
        let request = request.map_err(|error| MetricsError::Broken { node: name(), source: error.into() })?;
        let asking = async {
            let broken = |error: hyper::Error| MetricsError::Broken { node: name(), source: error.into() };
            let answer = requests.send_request(request).await.map_err(broken)?;
            if answer.status() != StatusCode::OK {
                return Err(MetricsError::Refused { node: name(), status: answer.status() });
            }
            // Without a turn only once nobody gives turns any more.
            let _turn = reading.acquire().await;
            let body = Limited::new(answer.into_body(), LONGEST_METRICS).collect().await;
            Ok(body.map_err(|source| MetricsError::Broken { node: name(), source })?.to_bytes())
        };
        tokio::time::timeout(METRICS_WITHIN, asking).await.unwrap_or_else(|_| Err(MetricsError::Slow { node: name() }))
    }

    /// How many nodes are connected now.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.lock().by_node.len()
    }

    fn enter(&self, node: &str, requests: SendRequest<Empty<Bytes>>) -> Entry {
        let mut connected = self.lock();
        let number = connected.next;
        connected.next += 1;
        connected.by_node.entry(node.to_owned()).or_default().push(Connection { number, requests });
        connected.most = connected.most.max(connected.by_node.len());
        Entry { nodes: self.clone(), node: node.to_owned(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent at the other end of a connection.
pub struct Agent(SendRequest<Empty<Bytes>>);

impl Agent {
    /// The token that it would show now. Nothing from an agent of a version before, and from one that does not answer.
    pub async fn token(&mut self) -> Option<String> {
        let request = Request::get(format!("http://agent{TOKEN_PATH}")).body(Empty::new()).ok()?;
        let asking = async {
            let answer = self.0.send_request(request).await.ok()?;
            if answer.status() != StatusCode::OK {
                return None;
            }
            let body = Limited::new(answer.into_body(), LONGEST_TOKEN).collect().await.ok()?.to_bytes();
            String::from_utf8(body.to_vec()).ok()
        };
        tokio::time::timeout(OPEN_WITHIN, asking).await.ok()?
    }
}

/// A connection's place among those of its node.
struct Entry {
    nodes: Nodes,
    node: String,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut connected = self.nodes.lock();
        let Some(connections) = connected.by_node.get_mut(&self.node) else { return };
        connections.retain(|each| each.number != self.number);
        if connections.is_empty() {
            connected.by_node.remove(&self.node);
        }
    }
}

/// The text of a refusal, bounded.
async fn reason(answer: Response<Incoming>) -> String {
    let read = Limited::new(answer.into_body(), LONGEST_REASON).collect();
    match tokio::time::timeout(OPEN_WITHIN, read).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        _ => "no reason was sent".to_owned(),
    }
}
