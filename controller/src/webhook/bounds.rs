//! What a client of the webhooks may take before it is known to be an API server: connections, time and bytes.
//!
//! ```text
//!   connection   few at a time of all and of one address; closed unless a request of it was read in time
//!   body         read within a time and a size of its own, before a turn; all bodies together have a size
//!   turn         few at a time are judged; only what is whole takes one
//! ```

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use axum_server::accept::Accept;
use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tower::Layer;

/// The largest object an API server stores, and the old one beside it (etcd's limit is 1.5 MiB for each).
pub(super) const LARGEST_REQUEST: usize = 8 << 20;

/// How much, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that are judged at once. Each is judged in milliseconds and may hold ten times its bytes meanwhile.
    pub(super) at_once: usize,
    /// Bytes of all bodies that are being read or wait for their turn.
    pub(super) bytes: usize,
    /// How long a body may take: API servers send it in one go.
    pub(super) reading: Duration,
    /// How long a request may take after it was read.
    pub(super) judging: Duration,
    /// Connections at once.
    pub(super) connections: usize,
    /// Connections of one address at once.
    pub(super) of_an_address: usize,
    /// How long a connection may be open before a request of it was read, from its first byte of TLS on.
    pub(super) unproven: Duration,
}

impl Limits {
    /// API servers wait ten seconds for an answer.
    pub(super) const USUAL: Self = Self {
        at_once: 8,
        bytes: 64 << 20,
        reading: Duration::from_secs(2),
        judging: Duration::from_secs(7),
        connections: 1024,
        of_an_address: 64,
        unproven: Duration::from_secs(5),
    };
    /// Evictions ask the API server, and wait for it: they have turns of their own, and take none of others'.
    pub(super) const EVICTIONS: Self = Self { at_once: 64, bytes: 4 << 20, ..Self::USUAL };
}

/// Only requests of a known path are read; each takes its turn when it was read.
pub(super) fn bounded(routes: Router, limits: Limits) -> Router {
    let turns =
        Turns { turn: Arc::new(Semaphore::new(limits.at_once)), bytes: Arc::new(Semaphore::new(limits.bytes)), limits };
    // Bodies are bounded here, and nowhere else.
    routes.layer(DefaultBodyLimit::disable()).route_layer(from_fn_with_state(turns, in_turn))
}

#[derive(Clone)]
struct Turns {
    turn: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    limits: Limits,
}

async fn in_turn(
    State(turns): State<Turns>,
    proof: Option<Extension<Proof>>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(turns.limits.reading, whole(body, &turns.bytes)).await;
    let (bytes, _room) = read.map_err(|_| StatusCode::REQUEST_TIMEOUT)??;
    if let Some(Extension(proof)) = proof {
        proof.0.store(true, Ordering::Relaxed);
    }
    let answer = async {
        // A semaphore that nothing closes.
        let _turn = turns.turn.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok(next.run(Request::from_parts(head, Body::from(bytes))).await)
    };
    tokio::time::timeout(turns.limits.judging, answer).await.unwrap_or(Err(StatusCode::SERVICE_UNAVAILABLE))
}

/// Reads a body. What arrives takes its part of the bytes there are for all; what is only promised takes none.
async fn whole(body: Body, room: &Arc<Semaphore>) -> Result<(Bytes, Option<OwnedSemaphorePermit>), StatusCode> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        if bytes.len() + frame.len() > LARGEST_REQUEST {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let part = u32::try_from(frame.len()).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let more = room.clone().acquire_many_owned(part).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&frame);
    }
    Ok((Bytes::from(bytes), held))
}

/// Whether a request of a connection was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof(Arc<AtomicBool>);

/// Accepts connections, below TLS.
#[derive(Clone)]
pub(super) struct Door {
    limits: Limits,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Door {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default() }
    }

    fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (open.values().sum::<usize>(), open.get(&address).copied().unwrap_or_default());
        if all >= self.limits.connections || own >= self.limits.of_an_address {
            return None;
        }
        *open.entry(address).or_default() += 1;
        Some(Place { address, open: self.open.clone() })
    }
}

impl<S> Accept<TcpStream, S> for Door {
    type Stream = Bounded;
    type Service = axum::middleware::AddExtension<S, Proof>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(stream.peer_addr().and_then(|peer| {
            let full = || io::Error::other("there are too many connections");
            let place = self.enter(peer.ip().to_canonical()).ok_or_else(full)?;
            let (proof, end) = (Proof::default(), Box::pin(tokio::time::sleep(self.limits.unproven)));
            let service = Extension(proof.clone()).layer(service);
            Ok((Bounded { stream, proof, end, _place: place }, service))
        }))
    }
}

/// One connection of those that may be open.
struct Place {
    address: IpAddr,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// A connection that ends unless a request of it was read in time.
pub(super) struct Bounded {
    stream: TcpStream,
    proof: Proof,
    end: Pin<Box<Sleep>>,
    _place: Place,
}

impl Bounded {
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        !self.proof.0.load(Ordering::Relaxed) && self.end.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    use super::*;

    /// For what has to come: nothing here takes a second, beside other tests a few.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// One turn, and no time that ends on a busy machine.
    const LIMITS: Limits = Limits {
        at_once: 1,
        reading: PATIENCE,
        judging: PATIENCE,
        connections: 30,
        of_an_address: 20,
        unproven: PATIENCE,
        ..Limits::USUAL
    };

    /// Serves `/read`, and `/hang`, which tells that it is judged, at an address.
    fn serve_telling(limits: Limits) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
        let (tell, told) = mpsc::unbounded_channel();
        let hang = async move || {
            let _ = tell.send(());
            std::future::pending::<()>().await;
        };
        let routes = Router::new()
            .route("/read", post(|body: Bytes| async move { body.len().to_string() }))
            .route("/hang", post(hang));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum_server::from_tcp(listener).unwrap().acceptor(Door::new(limits));
        tokio::spawn(server.serve(bounded(routes, limits).into_make_service()));
        (address, told)
    }

    fn serve(limits: Limits) -> SocketAddr {
        serve_telling(limits).0
    }

    /// A connection that has sent the head of a request, and so many bytes of its body.
    async fn begin(address: SocketAddr, path: &str, promised: usize, sent: usize) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {promised}\r\n\r\n");
        let request = [head.into_bytes(), vec![b' '; sent]].concat();
        // One that is refused may be closed before it was sent.
        let _ = stream.write_all(&request).await;
        stream
    }

    /// The status of the answer; nothing if the connection ends without one.
    async fn status(stream: &mut TcpStream) -> Option<u16> {
        let mut start = [0; 12];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut start)).await.unwrap();
        read.ok()?;
        std::str::from_utf8(&start[9..]).unwrap().parse().ok()
    }

    /// A connection whose body is being read: the server asks for it, and gets a part.
    async fn begin_slowly(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = b"POST /read HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let asked = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut answer = [0; 25];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("its turn to be read").unwrap();
        assert_eq!(&answer, asked);
        stream.write_all(b" ").await.unwrap();
        stream
    }

    #[tokio::test]
    async fn slow_bodies_take_no_turn() {
        let address = serve(LIMITS);
        let mut slow = Vec::new();
        for _ in 0..10 {
            slow.push(begin_slowly(address).await);
        }
        assert_eq!(status(&mut begin(address, "/read", 3, 3).await).await, Some(200));
        for stream in &mut slow {
            assert!(stream.try_read(&mut [0]).is_err(), "it has an answer, and was no slow one");
        }
    }

    #[tokio::test]
    async fn slow_bodies_are_given_up() {
        let address = serve(Limits { reading: Duration::from_millis(100), ..LIMITS });
        assert_eq!(status(&mut begin(address, "/read", 1000, 1).await).await, Some(408));
    }

    #[tokio::test]
    async fn what_is_judged_has_its_turn_until_its_time_is_over() {
        let limits = Limits { judging: Duration::from_millis(600), ..LIMITS };
        let (address, mut judged) = serve_telling(limits);
        let began = Instant::now();
        let mut hanging = begin(address, "/hang", 0, 0).await;
        tokio::time::timeout(PATIENCE, judged.recv()).await.expect("it is judged");
        // One that comes late enough has a turn after it; one of before may wait for longer than it is allowed to.
        let answered = async { while status(&mut begin(address, "/read", 1, 1).await).await != Some(200) {} };
        assert!(tokio::time::timeout(PATIENCE, answered).await.is_ok(), "its turn never ends");
        assert!(began.elapsed() >= limits.judging, "both had the only turn");
        assert_eq!(status(&mut hanging).await, Some(503));
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_not_read_to_its_end() {
        let address = serve(LIMITS);
        assert_eq!(status(&mut begin(address, "/read", LARGEST_REQUEST, LARGEST_REQUEST).await).await, Some(200));
        let answer = status(&mut begin(address, "/read", LARGEST_REQUEST + 1, LARGEST_REQUEST + 1).await).await;
        assert!(answer.is_none() || answer == Some(413), "{answer:?}");
    }

    #[tokio::test]
    async fn connections_of_an_address_are_few() {
        let address = serve(LIMITS);
        let mut known = begin(address, "/read", 1, 1).await;
        assert_eq!(status(&mut known).await, Some(200));
        let mut idle = Vec::new();
        for _ in 1..LIMITS.of_an_address {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        idle[0].write_all(b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        assert_eq!(status(&mut idle[0]).await, Some(404));
        assert_eq!(status(&mut begin(address, "/read", 1, 1).await).await, None, "there is no place for it");
        idle.pop();
        let free = async { while status(&mut begin(address, "/read", 1, 1).await).await != Some(200) {} };
        assert!(tokio::time::timeout(PATIENCE, free).await.is_ok(), "its place is free again");
    }

    #[tokio::test]
    async fn connections_without_a_request_are_short() {
        let address = serve(Limits { unproven: Duration::from_millis(300), ..LIMITS });
        // On a busy machine its time may be over before its request was read.
        let mut known = loop {
            let mut stream = begin(address, "/read", 1, 1).await;
            if status(&mut stream).await == Some(200) {
                break stream;
            }
        };
        for request in [&b""[..], b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"] {
            let mut idle = TcpStream::connect(address).await.unwrap();
            let _ = idle.write_all(request).await;
            let mut rest = Vec::new();
            let ends = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut rest)).await;
            assert!(ends.is_ok(), "it is open still");
        }
        known.write_all(b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let mut more = vec![0; 4096];
        let mut text = String::new();
        while text.matches("HTTP/1.1 200").count() < 1 {
            let read = tokio::time::timeout(PATIENCE, known.read(&mut more)).await.unwrap().unwrap();
            assert_ne!(read, 0, "the connection that was known was closed");
            text.push_str(std::str::from_utf8(&more[..read]).unwrap());
        }
    }
}
