//! Who may have a connection to the webhooks, and for how long.
//!
//! An API server calls webhooks by HTTP/1.1, opens a connection for each call that finds none idle, keeps up to 25 idle
//! ones for 90 s (client-go's transport, net/http's `IdleConnTimeout`), and also keeps one that it opened and then did not
//! need. It does not repeat a call whose connection was closed meanwhile: what was being applied is refused. So nothing is
//! closed here that an API server might still use, except where connections run out, and then those that have shown least.
//!
//! ```text
//!   proven     a whole request of a known path was read from it: only API servers know these. Stays
//!   unproven   anything else. Ends when it gets old; ends earlier when a new connection needs its place
//! ```

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, Ready, poll_fn, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use tower::Layer;

/// How many connections, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Connections at once. With this many, a new one gets the place of an unproven one of the address that has most, and
    /// none if that has no more than its own address.
    pub(crate) connections: usize,
    /// Connections of one address at once. With this many, a new one gets the place of an unproven one that is `settled`.
    pub(crate) of_an_address: usize,
    /// How old an unproven connection is when another of its own address may take its place: by then an API server has
    /// used what it opened for a call.
    pub(crate) settled: Duration,
    /// How long a connection may be unproven, from its first byte of TLS on: longer than API servers keep one.
    pub(crate) unproven: Duration,
    /// How long the handshake of TLS may take: API servers wait for ten seconds, with the call.
    pub(crate) handshake: Duration,
}

impl Places {
    /// An API server judges 200 changes at once (`--max-mutating-requests-inflight`).
    pub(crate) const USUAL: Self = Self {
        connections: 768,
        of_an_address: 512,
        settled: Duration::from_secs(5),
        unproven: Duration::from_secs(120),
        handshake: Duration::from_secs(10),
    };
}

/// Whether a request of a connection was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRead(Arc<AtomicBool>);

impl RequestRead {
    /// A request was read, whole and of a known path.
    pub(crate) fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Accepts connections, below TLS.
#[derive(Clone)]
pub(crate) struct Listener {
    places: Places,
    open: Arc<Mutex<Open>>,
}

/// The connections that are open, oldest first.
#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    address: IpAddr,
    since: Instant,
    proof: RequestRead,
    /// Dropped with the entry, which ends the connection.
    _stays: oneshot::Sender<()>,
}

impl Open {
    /// Whether a connection from this address has a place now; one of before may have been ended for it.
    fn make_room(&mut self, address: IpAddr, now: Instant, places: Places) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.connections.values() {
            *counts.entry(connection.address).or_default() += 1;
        }
        let own = counts.get(&address).copied().unwrap_or_default();
        if own >= places.of_an_address {
            return self.end_oldest(|other| other.address == address && now - other.since >= places.settled);
        }
        if self.connections.len() < places.connections {
            return true;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.is_some_and(|(busiest, count)| count > own + 1 && self.end_oldest(|other| other.address == busiest))
    }

    /// Ends the oldest unproven connection of these, if there is one.
    fn end_oldest(&mut self, among: impl Fn(&Connection) -> bool) -> bool {
        let found = self.connections.iter().find(|(_, other)| !other.proof.is_given() && among(other));
        let number = found.map(|(number, _)| *number);
        number.is_some_and(|number| self.connections.remove(&number).is_some())
    }
}

impl Listener {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, open: Arc::default() }
    }

    fn enter(&self, address: IpAddr) -> Option<Entered> {
        let now = Instant::now();
        let mut open = lock(&self.open);
        if !open.make_room(address, now, self.places) {
            return None;
        }
        let (stays, leaves) = oneshot::channel();
        let (number, proof) = (open.next, RequestRead::default());
        open.next += 1;
        open.connections.insert(number, Connection { address, since: now, proof: proof.clone(), _stays: stays });
        Some(Entered { proof, leaves, place: Place { number, open: self.open.clone() } })
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Entered {
    proof: RequestRead,
    leaves: oneshot::Receiver<()>,
    place: Place,
}

impl<S> Accept<TcpStream, S> for Listener {
    type Stream = Bounded;
    type Service = axum::middleware::AddExtension<S, RequestRead>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // A keystroke's echo, or the answer on a new connection, would wait for the acknowledgement of what was sent before it: 40 ms.
        let peer = stream.set_nodelay(true).and_then(|()| stream.peer_addr());
        ready(peer.and_then(|peer| {
            let full = || io::Error::other("there are too many connections");
            let Entered { proof, leaves, place } = self.enter(peer.ip().to_canonical()).ok_or_else(full)?;
            let service = Extension(proof.clone()).layer(service);
            let end = Box::pin(tokio::time::sleep(self.places.unproven));
            Ok((Bounded { stream, proof, end, leaves, is_over: false, _place: place }, service))
        }))
    }
}

/// One connection of those that may be open.
struct Place {
    number: u64,
    open: Arc<Mutex<Open>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.open).connections.remove(&self.number);
    }
}

/// A connection that ends unless a request of it was read in time.
pub(crate) struct Bounded {
    stream: TcpStream,
    proof: RequestRead,
    end: Pin<Box<Sleep>>,
    leaves: oneshot::Receiver<()>,
    is_over: bool,
    _place: Place,
}

impl Bounded {
    /// Waits until something has arrived.
    ///
    /// # Errors
    /// The connection is over, or broke.
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            if self.is_over(context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.stream.poll_read_ready(context)
        })
        .await
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if !self.is_over && !self.proof.is_given() {
            self.is_over =
                Pin::new(&mut self.leaves).poll(context).is_ready() || self.end.as_mut().poll(context).is_ready();
        }
        self.is_over
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

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpSocket;

    use super::*;
    use crate::webhook::bounds::Limits;
    use crate::webhook::testing::{PATIENCE, begin, post_on, serve, status};

    /// No time that ends on a busy machine.
    const PLACES: Places =
        Places { connections: 8, of_an_address: 5, settled: PATIENCE, unproven: PATIENCE, handshake: PATIENCE };

    fn serve_places(places: Places) -> SocketAddr {
        serve(Limits::USUAL, places)
    }

    /// A connection from an address of the loopback interface, `127.0.0.host`.
    async fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
        socket.connect(address).await.unwrap()
    }

    async fn is_answered(stream: &mut TcpStream) -> bool {
        post_on(stream, "/read", 1, 1).await;
        status(stream).await == Some(200)
    }

    async fn ends(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
    }

    #[tokio::test]
    async fn small_writes_do_not_wait_for_each_other() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (stream, _) = Listener::new(PLACES).accept(stream, ()).await.unwrap();
        assert!(stream.stream.nodelay().unwrap());
    }

    /// An API server keeps a connection that it opened and did not need, and makes a call on it up to 90 s later.
    #[tokio::test]
    async fn a_connection_that_was_not_used_at_once_is_good_for_a_call_later() {
        let address = serve_places(Places::USUAL);
        let mut unused = TcpStream::connect(address).await.unwrap();
        assert!(is_answered(&mut connect_from(2, address).await).await, "what came first has been accepted then");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(91)).await;
        tokio::time::resume();
        assert!(is_answered(&mut unused).await);
    }

    /// As many calls at once as an API server makes with its defaults, each on a connection of its own.
    #[tokio::test]
    async fn two_hundred_calls_at_once_of_one_address_are_answered() {
        let address = serve_places(Places::USUAL);
        let mut calls = Vec::new();
        for _ in 0..200 {
            calls.push(TcpStream::connect(address).await.unwrap());
        }
        for call in &mut calls {
            post_on(call, "/read", 1, 1).await;
        }
        for call in &mut calls {
            assert_eq!(status(call).await, Some(200));
        }
    }

    #[tokio::test]
    async fn connections_of_an_address_are_few() {
        let address = serve_places(PLACES);
        let mut known = begin(address, "/read", 1, 1).await;
        assert_eq!(status(&mut known).await, Some(200));
        let mut idle = Vec::new();
        for _ in 1..PLACES.of_an_address {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        post_on(&mut idle[0], "/elsewhere", 0, 0).await;
        assert_eq!(status(&mut idle[0]).await, Some(404));
        assert_eq!(status(&mut begin(address, "/read", 1, 1).await).await, None, "there is no place for it");
        idle.pop();
        let free = async { while status(&mut begin(address, "/read", 1, 1).await).await != Some(200) {} };
        assert!(tokio::time::timeout(PATIENCE, free).await.is_ok(), "its place is free again");
    }

    #[tokio::test]
    async fn where_an_address_has_all_of_its_own_the_oldest_unused_one_gives_way() {
        let address = serve_places(Places { settled: Duration::ZERO, ..PLACES });
        let mut known = connect_from(1, address).await;
        assert!(is_answered(&mut known).await);
        let mut idle = Vec::new();
        for _ in 1..PLACES.of_an_address {
            idle.push(connect_from(1, address).await);
        }
        assert!(is_answered(&mut connect_from(1, address).await).await);
        assert!(ends(&mut idle[0]).await, "the oldest has its place still");
        for stream in &mut idle[1..] {
            assert!(is_answered(stream).await, "another gave way too");
        }
        assert!(is_answered(&mut known).await, "one that was known gave way");
    }

    #[tokio::test]
    async fn where_all_places_are_taken_the_address_with_most_gives_one() {
        let address = serve_places(PLACES);
        let mut many = Vec::new();
        for _ in 0..PLACES.of_an_address {
            many.push(connect_from(2, address).await);
        }
        let mut few = Vec::new();
        for _ in PLACES.of_an_address..PLACES.connections {
            few.push(connect_from(3, address).await);
        }
        let mut first = connect_from(4, address).await;
        assert!(is_answered(&mut first).await);
        assert!(ends(&mut many[0]).await, "the oldest of the address with most has its place still");
        let mut second = connect_from(4, address).await;
        assert!(is_answered(&mut second).await);
        // Now three addresses have 3, 3 and 2: one more of the last would only take from its equals.
        assert!(!is_answered(&mut connect_from(4, address).await).await, "it took the place of others");
        for stream in few.iter_mut().chain(&mut many[2..]).chain([&mut first, &mut second]) {
            assert!(is_answered(stream).await);
        }
    }

    #[tokio::test]
    async fn connections_without_a_request_end() {
        let address = serve_places(Places { unproven: Duration::from_millis(300), ..PLACES });
        // On a busy machine its time may be over before its request was read.
        let mut known = loop {
            let mut stream = begin(address, "/read", 1, 1).await;
            if status(&mut stream).await == Some(200) {
                break stream;
            }
        };
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert!(ends(&mut silent).await, "it is open still");
        assert!(ends(&mut begin(address, "/elsewhere", 0, 0).await).await, "it is open still");
        assert!(is_answered(&mut known).await, "the connection that was known was closed");
    }
}
