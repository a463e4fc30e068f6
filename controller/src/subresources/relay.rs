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
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
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
use tokio::time::{Instant, interval_at, sleep_until};

use super::leaving::{OpenStream, Replica};
use super::shares::StreamTurn;

/// The subprotocol of KubeVirt's clients: binary frames of bytes, and nothing else unless it was asked for.
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
/// How long nothing may come from a client, which answers each ping: KubeVirt's limit. One whose computer is gone would have its
/// session for as long as the kernels on the way try to reach it, some 15 minutes.
const SILENCE: Duration = Duration::from_secs(60);
/// What a client reads that is there all the same.
const SILENT: &str = "nothing came from this client for 60 s";
/// What a client reads whose replica ends, with [`close_code::RESTART`].
const REPLACED: &str = "this controller ends; connect again, and another one answers";
/// How long the other side may take to end when one side has.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// The longest reason of a close frame, bytes: the whole frame has 125, and two are the code (RFC 6455, 5.5).
const LONGEST_REASON: usize = 123;

/// What comes next from the machine's side.
#[derive(Debug)]
pub(super) enum Next {
    /// One message for the client.
    Bytes(Bytes),
    /// A message that is none of the stream's bytes, for a client that asked for it.
    Text(String),
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

/// A websocket that a request asks for.
pub(super) struct Socket {
    upgrade: WebSocketUpgrade,
    replica: Replica,
}

/// The websocket that a request to this replica asks for.
///
/// # Errors
/// It asks for none.
pub(super) async fn websocket(head: &mut Parts, replica: &Replica) -> Result<Socket, Refusal> {
    let socket = WebSocketUpgrade::from_request_parts(head, &()).await;
    let socket = socket.map_err(|rejection| Refusal::BadRequest(format!("this is a websocket: {rejection}")))?;
    let bounded = socket.max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
    let upgrade = bounded.read_buffer_size(READ_OF_CLIENT).protocols([PLAIN]);
    Ok(Socket { upgrade, replica: replica.clone() })
}

/// Answers with 101, and copies both ways from then on. The turn ends with the stream.
pub(super) fn answer(socket: Socket, source: impl Source, sink: impl Sink, turn: StreamTurn) -> Response {
    let mut open = socket.replica.opened();
    socket.upgrade.on_upgrade(move |socket| async move {
        relay(socket, source, sink, &mut open).await;
        drop(open);
        drop(turn);
    })
}

/// When a client gave its last sign of life; nothing while it is not listened to, because the machine's side does not take what it
/// has sent.
struct Contact(Mutex<Option<Instant>>);

impl Contact {
    fn begin() -> Self {
        Self(Mutex::new(Some(Instant::now())))
    }

    /// It has sent something, or is listened to again.
    fn listen(&self) {
        *self.lock() = Some(Instant::now());
    }

    fn pause(&self) {
        *self.lock() = None;
    }

    /// Waits for what is sent. A client that made room for it first is there, however far it is behind.
    async fn sent<T>(&self, sending: impl Future<Output = T>) -> T {
        let mut sending = pin!(sending);
        if let Poll::Ready(sent) = futures::poll!(sending.as_mut()) {
            return sent;
        }
        let sent = sending.await;
        if let Some(last) = self.lock().as_mut() {
            *last = Instant::now();
        }
        sent
    }

    /// Returns when there was none for too long.
    async fn silence(&self) {
        loop {
            let last = *self.lock();
            if last.is_some_and(|last| last.elapsed() >= SILENCE) {
                return;
            }
            sleep_until(last.unwrap_or_else(Instant::now) + SILENCE).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which side has ended.
enum Ended {
    Client,
    /// The machine's side, or the stream is given up: how the client's is closed.
    Machine(CloseFrame),
}

async fn relay(socket: WebSocket, mut source: impl Source, mut sink: impl Sink, open: &mut OpenStream) {
    let (mut to_client, mut from_client) = socket.split();
    let contact = Contact::begin();
    let ended = tokio::select! {
        ended = send(&mut source, &mut to_client, &contact) => ended,
        ended = receive(&mut from_client, &mut sink, &contact) => ended,
        () = contact.silence() => Ended::Machine(close(close_code::ERROR, SILENT)),
        () = open.is_to_end() => Ended::Machine(close(close_code::RESTART, REPLACED)),
    };
    let last = async {
        match ended {
            Ended::Client => {
                // The answer to its close frame.
                let _ = to_client.flush().await;
                if sink.finish().await == Then::Drain {
                    while let Next::Bytes(_) | Next::Text(_) = source.next().await {}
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

async fn send(source: &mut impl Source, client: &mut SplitSink<WebSocket, Message>, contact: &Contact) -> Ended {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let sent = tokio::select! {
            next = source.next() => match next {
                Next::Bytes(bytes) => contact.sent(client.send(Message::Binary(bytes))).await,
                Next::Text(text) => client.send(Message::Text(text.into())).await,
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
async fn receive(client: &mut SplitStream<WebSocket>, sink: &mut impl Sink, contact: &Contact) -> Ended {
    while let Some(Ok(message)) = client.next().await {
        contact.pause();
        let put = match message {
            Message::Binary(bytes) => sink.put(bytes).await,
            Message::Text(text) => sink.put(text.into()).await,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => return Ended::Client,
        };
        contact.listen();
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

    #[tokio::test(start_paused = true)]
    async fn a_client_is_silent_that_sends_nothing_and_takes_nothing() {
        let begun = Instant::now();
        Contact::begin().silence().await;
        assert!(begun.elapsed() >= SILENCE && begun.elapsed() < SILENCE * 2, "{:?}", begun.elapsed());
    }

    /// Whether it is silent after nearly three times that long, in which something happened twice.
    async fn is_silent_although<F: Future<Output = ()>>(happens: impl Fn(Contact) -> F) -> bool {
        tokio::time::timeout(SILENCE * 3 - Duration::from_secs(3), happens(Contact::begin())).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_there_that_sends_or_makes_room_and_none_is_judged_that_is_not_listened_to() {
        let pause = || tokio::time::sleep(SILENCE - Duration::from_secs(1));
        let silent = is_silent_although(|contact| async move {
            let sends = async {
                contact.sent(pause()).await;
                pause().await;
                contact.listen();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = sends => {}
                () = contact.silence() => {}
            }
        });
        assert!(!silent.await, "it made room, and then sent something");
        let silent = is_silent_although(|contact| async move {
            contact.pause();
            contact.sent(pause()).await;
            contact.silence().await;
        });
        assert!(!silent.await, "its messages are not read");
        let silent = is_silent_although(|contact| async move {
            contact.sent(std::future::ready(())).await;
            contact.silence().await;
        });
        assert!(silent.await, "what the kernel takes at once is no sign of it");
    }
}
