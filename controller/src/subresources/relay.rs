//! What goes between a client's websocket and the other end of its stream: a supervisor, or a port of the guest.
//!
//! ```text
//!   client ─ binary frames ─► receive ─► Sink      neither side is read further than the other one takes:
//!          ◄─────────────────── send ◄── Source    what is slow holds back its own stream
//! ```
//!
//! A websocket has no half-close. The end of the machine's side closes the stream, once what came before was sent; a client
//! that closes has its last bytes written, and then the machine's side is closed for writing.

use std::io;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use garboard_protocol::text::printable;
use garboard_subresources::refusal::Refusal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, interval_at};

use super::shares::StreamTurn;

/// The subprotocol of KubeVirt's clients: binary frames of bytes, and nothing else.
const PLAIN: &str = "plain.kubevirt.io";
/// The largest frame of a client, and of us, bytes. What a person types is short; VNC pastes and datagrams are not.
pub(super) const LARGEST_FRAME: usize = 64 * 1024;
/// What is read at once from a machine's side, and from a client, bytes. Each stream keeps both buffers, also while it is idle, and
/// tungstenite writes zeros to all of its own (128 KiB by default) before each read.
pub(super) const READ_AT_ONCE: usize = 16 * 1024;
const READ_OF_CLIENT: usize = 8 * 1024;
/// How often a client is sent a ping, so that proxies keep the connection, and a pong that it did not ask for: the clients of
/// KubeVirt give up after a minute without one, and theirs waits behind what a slow guest does not read (RFC 6455, 5.5.3).
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long the other side may take to end when one side has.
const LINGER: Duration = Duration::from_secs(5);
/// The longest reason of a close frame, bytes: the whole frame has 125, and two are the code (RFC 6455, 5.5).
const LONGEST_REASON: usize = 123;

/// What comes next from the machine's side.
#[derive(Debug)]
pub(super) enum Next {
    /// One message for the client.
    Bytes(Bytes),
    /// Nothing more: how the client's side is closed.
    End(CloseFrame),
}

/// What is read from the machine's side.
pub(super) trait Source: Send + 'static {
    /// Waits for it. A call that is given up loses nothing.
    fn next(&mut self) -> impl Future<Output = Next> + Send;
}

/// What is written to the machine's side.
pub(super) trait Sink: Send + 'static {
    /// Writes one message of the client.
    fn put(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// The client sends nothing more.
    fn finish(&mut self) -> impl Future<Output = Then> + Send;
}

/// What follows when the client sends nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The machine's side is read until it ends, for a while: a connection that is closed before is reset, and what it has
    /// not read is lost.
    Drain,
    /// Nothing.
    Close,
}

/// How a client's side is closed. What is escaped gets longer, and a frame that is too long would be none.
pub(super) fn close(code: u16, reason: &str) -> CloseFrame {
    let mut reason = printable(reason, LONGEST_REASON);
    let ends = reason.char_indices().map(|(start, letter)| start + letter.len_utf8());
    let end = ends.take_while(|end| *end <= LONGEST_REASON).last().unwrap_or_default();
    reason.truncate(end);
    CloseFrame { code, reason: reason.into() }
}

/// The same where the machine's side broke.
pub(super) fn broken(error: &io::Error) -> CloseFrame {
    close(close_code::ERROR, &error.to_string())
}

/// A side of bytes without borders, to read.
pub(super) struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: vec![0; READ_AT_ONCE] }
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> Source for Reader<R> {
    async fn next(&mut self) -> Next {
        match self.from.read(&mut self.buffer).await {
            Ok(0) => Next::End(close(close_code::NORMAL, "")),
            Ok(count) => Next::Bytes(Bytes::copy_from_slice(&self.buffer[..count])),
            Err(error) => Next::End(broken(&error)),
        }
    }
}

/// A side of bytes without borders, to write.
pub(super) struct Writer<W> {
    to: W,
    then: Then,
}

impl<W> Writer<W> {
    pub(super) const fn new(to: W, then: Then) -> Self {
        Self { to, then }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Sink for Writer<W> {
    async fn put(&mut self, bytes: Bytes) -> io::Result<()> {
        self.to.write_all(&bytes).await
    }

    async fn finish(&mut self) -> Then {
        match self.to.shutdown().await {
            Ok(()) => self.then,
            Err(_) => Then::Close,
        }
    }
}

/// The websocket that a request asks for.
///
/// # Errors
/// It asks for none.
pub(super) async fn websocket(head: &mut Parts) -> Result<WebSocketUpgrade, Refusal> {
    let socket = WebSocketUpgrade::from_request_parts(head, &()).await;
    let socket = socket.map_err(|rejection| Refusal::BadRequest(format!("this is a websocket: {rejection}")))?;
    let bounded = socket.max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
    Ok(bounded.read_buffer_size(READ_OF_CLIENT).protocols([PLAIN]))
}

/// Answers with 101, and copies both ways from then on. The turn ends with the stream.
pub(super) fn answer(socket: WebSocketUpgrade, source: impl Source, sink: impl Sink, turn: StreamTurn) -> Response {
    socket.on_upgrade(move |socket| async move {
        relay(socket, source, sink).await;
        drop(turn);
    })
}

/// Which side has ended.
enum Ended {
    Client,
    Machine(CloseFrame),
}

async fn relay(socket: WebSocket, mut source: impl Source, mut sink: impl Sink) {
    let (mut to_client, mut from_client) = socket.split();
    let ended = tokio::select! {
        ended = send(&mut source, &mut to_client) => ended,
        ended = receive(&mut from_client, &mut sink) => ended,
    };
    let last = async {
        match ended {
            Ended::Client => {
                // The answer to its close frame.
                let _ = to_client.flush().await;
                if sink.finish().await == Then::Drain {
                    while let Next::Bytes(_) = source.next().await {}
                }
            }
            Ended::Machine(frame) => {
                if to_client.send(Message::Close(Some(frame))).await.is_ok() {
                    while let Some(Ok(_)) = from_client.next().await {}
                }
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, last).await;
}

async fn send(source: &mut impl Source, client: &mut SplitSink<WebSocket, Message>) -> Ended {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let sent = tokio::select! {
            next = source.next() => match next {
                Next::Bytes(bytes) => client.send(Message::Binary(bytes)).await,
                Next::End(frame) => return Ended::Machine(frame),
            },
            _ = pings.tick() => match client.feed(Message::Pong(Bytes::new())).await {
                Ok(()) => client.send(Message::Ping(Bytes::new())).await,
                Err(error) => Err(error),
            },
        };
        if sent.is_err() {
            return Ended::Client;
        }
    }
}

/// Reading a ping sends its pong.
async fn receive(client: &mut SplitStream<WebSocket>, sink: &mut impl Sink) -> Ended {
    while let Some(Ok(message)) = client.next().await {
        let put = match message {
            Message::Binary(bytes) => sink.put(bytes).await,
            Message::Text(text) => sink.put(text.into()).await,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => return Ended::Client,
        };
        if let Err(error) = put {
            return Ended::Machine(broken(&error));
        }
    }
    Ended::Client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_into_its_frame_whatever_a_launcher_wrote() {
        for (reason, expected) in [
            ("another client".to_owned(), "another client"),
            (String::new(), ""),
            ("\u{1b}[2J".repeat(1000), "\\u{1b}[2J\\u{1b}[2J"),
            ("\u{4f60}".repeat(1000), "\u{4f60}"),
        ] {
            let frame = close(close_code::AWAY, &reason);
            let shown = frame.reason.as_str();
            assert!(shown.starts_with(expected) && shown.len() <= LONGEST_REASON, "{shown:?}");
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }
}
