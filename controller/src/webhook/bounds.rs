//! What a request to the webhooks, or to the subresource API, may take: time and bytes. What connections may take is in
//! [`super::listener`].
//!
//! ```text
//!   body         read within a time and a size of its own, before a turn; all bodies together have a size
//!   turn         few at a time are judged; only what is whole takes one
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::listener::RequestRead;

/// The largest object an API server stores, and the old one beside it (etcd's limit is 1.5 MiB for each).
pub(crate) const LARGEST_REQUEST: usize = 8 << 20;

/// How much, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests that are judged at once. Each is judged in milliseconds and may hold ten times its bytes meanwhile.
    pub(crate) at_once: usize,
    /// Bytes of all bodies that are being read or wait for their turn.
    pub(crate) bytes: usize,
    /// Bytes of one body. A request with [`Longest`] has less.
    pub(crate) largest: usize,
    /// How long a body may take: API servers send it in one go.
    pub(crate) reading: Duration,
    /// How long a request may take after it was read.
    pub(crate) judging: Duration,
    /// The answer to a request that exceeds them.
    pub(crate) exceeded: fn(Exceeded) -> Response,
}

/// What a request has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// Its body ended before its end.
    Broken,
    /// Its body is larger.
    Size {
        /// Than this, bytes.
        largest: usize,
    },
    /// Its body was not there in time.
    Reading {
        /// The time.
        within: Duration,
    },
    /// It was not answered in time.
    Judging {
        /// The time.
        within: Duration,
    },
}

/// The most bytes of a request's body, where a layer around this one knows what it is for: an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest(pub(crate) usize);

/// An answer without a body: what API servers make of it does not depend on one.
fn code_alone(exceeded: Exceeded) -> Response {
    let code = match exceeded {
        Exceeded::Broken => StatusCode::BAD_REQUEST,
        Exceeded::Size { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Exceeded::Reading { .. } => StatusCode::REQUEST_TIMEOUT,
        Exceeded::Judging { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    code.into_response()
}

impl Limits {
    /// API servers wait ten seconds for an answer.
    pub(crate) const USUAL: Self = Self {
        at_once: 8,
        bytes: 64 << 20,
        largest: LARGEST_REQUEST,
        reading: Duration::from_secs(2),
        judging: Duration::from_secs(7),
        exceeded: code_alone,
    };
    /// Evictions ask the API server, and wait for it: they have turns of their own, and take none of others'.
    pub(crate) const EVICTIONS: Self = Self { at_once: 64, bytes: 4 << 20, ..Self::USUAL };
    /// A page of a list is converted at once, 500 objects where the client asks for pages. API servers wait half a minute for it.
    pub(crate) const CONVERSIONS: Self = Self {
        at_once: 2,
        largest: 32 << 20,
        reading: Duration::from_secs(10),
        judging: Duration::from_secs(15),
        ..Self::USUAL
    };
}

/// Only requests of a known path are read; each takes its turn when it was read.
pub(crate) fn bounded(routes: Router, limits: Limits) -> Router {
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
    proof: Option<Extension<RequestRead>>,
    request: Request,
    next: Next,
) -> Response {
    let answered = judged(&turns, proof, request, next).await;
    answered.unwrap_or_else(turns.limits.exceeded)
}

async fn judged(
    turns: &Turns,
    proof: Option<Extension<RequestRead>>,
    request: Request,
    next: Next,
) -> Result<Response, Exceeded> {
    let Limits { reading, judging, largest, .. } = turns.limits;
    let (head, body) = request.into_parts();
    let largest = head.extensions.get::<Longest>().map_or(largest, |longest| longest.0.min(largest));
    let read = tokio::time::timeout(reading, whole(body, largest, &turns.bytes)).await;
    let (bytes, _room) = read.map_err(|_| Exceeded::Reading { within: reading })??;
    if let Some(Extension(proof)) = proof {
        proof.give();
    }
    let late = Exceeded::Judging { within: judging };
    let answer = async {
        // A semaphore that nothing closes.
        let _turn = turns.turn.acquire().await.map_err(|_| late)?;
        Ok(next.run(Request::from_parts(head, Body::from(bytes))).await)
    };
    tokio::time::timeout(judging, answer).await.unwrap_or(Err(late))
}

/// Reads a body. What arrives takes its part of the bytes there are for all; what is only promised takes none.
async fn whole(
    body: Body,
    largest: usize,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Exceeded> {
    let too_large = Exceeded::Size { largest };
    // Its head says so: nothing of it is read.
    if u64::try_from(largest).is_ok_and(|largest| body.size_hint().lower() > largest) {
        return Err(too_large);
    }
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|_| Exceeded::Broken)?;
        if bytes.len() + frame.len() > largest {
            return Err(too_large);
        }
        let part = u32::try_from(frame.len()).map_err(|_| too_large)?;
        // A semaphore that nothing closes.
        let more = room.clone().acquire_many_owned(part).await.map_err(|_| Exceeded::Broken)?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&frame);
    }
    Ok((Bytes::from(bytes), held))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::webhook::listener::Places;
    use crate::webhook::testing::{PATIENCE, begin, serve, serve_telling, status};

    /// One turn, and no time that ends on a busy machine.
    const LIMITS: Limits = Limits { at_once: 1, reading: PATIENCE, judging: PATIENCE, ..Limits::USUAL };

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
        let address = serve(LIMITS, Places::USUAL);
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
        let address = serve(Limits { reading: Duration::from_millis(100), ..LIMITS }, Places::USUAL);
        assert_eq!(status(&mut begin(address, "/read", 1000, 1).await).await, Some(408));
    }

    #[tokio::test]
    async fn what_is_judged_has_its_turn_until_its_time_is_over() {
        let limits = Limits { judging: Duration::from_millis(600), ..LIMITS };
        let (address, mut judged) = serve_telling(limits, Places::USUAL);
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
        let address = serve(LIMITS, Places::USUAL);
        assert_eq!(status(&mut begin(address, "/read", LARGEST_REQUEST, LARGEST_REQUEST).await).await, Some(200));
        let answer = status(&mut begin(address, "/read", LARGEST_REQUEST + 1, LARGEST_REQUEST + 1).await).await;
        assert!(answer.is_none() || answer == Some(413), "{answer:?}");
    }

    #[tokio::test]
    async fn a_body_that_is_promised_too_large_is_refused_before_it_is_sent() {
        let address = serve(Limits { largest: 1000, ..LIMITS }, Places::USUAL);
        assert_eq!(status(&mut begin(address, "/read", 1000, 1000).await).await, Some(200));
        assert_eq!(status(&mut begin(address, "/read", 1001, 0).await).await, Some(413));
    }
}
