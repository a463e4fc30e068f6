//! Streams: a websocket of a client on one side, a connection to the supervisor on the other.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use garboard_protocol::control::{ConsoleAccess, ControlReply, ControlRequest};
use garboard_protocol::text::printable;
use garboard_subresources::instance;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Stream as Which;
use garboard_tunnel::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, Interval, interval_at};

use super::instance::{LONGEST_REASON, instance as get_instance, place, unanswered, unexpected};
use super::server::Serving;
use super::turns::Turn;
use crate::nodes::control::ask;

/// The subprotocol of KubeVirt's clients: binary frames of bytes, and nothing else.
const PLAIN: &str = "plain.kubevirt.io";
/// The largest frame of a client, and of us, bytes. What a person types is short; VNC pastes are not.
const LARGEST_FRAME: usize = 64 * 1024;
/// How often an idle client is sent a ping, so that proxies keep the connection.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Opens a stream to the supervisor, and only then answers with 101: before it, a refusal is a `Status`.
pub(super) async fn open(
    serving: &Serving,
    call: &Call<'_>,
    user: &str,
    which: Which,
    mut head: Parts,
) -> Result<Response, Refusal> {
    let vmi = get_instance(serving, call).await?;
    instance::may_open(which, &vmi)?;
    let request = match which {
        Which::Console => ControlRequest::Console { access: ConsoleAccess::TakeOver },
        Which::Vnc => ControlRequest::Vnc,
    };
    let socket = WebSocketUpgrade::from_request_parts(&mut head, &()).await;
    let socket = socket.map_err(|rejection| Refusal::BadRequest(format!("this is a websocket: {rejection}")))?;
    let Some(turn) = serving.streams.take(user) else { return Err(Refusal::TooManyRequests) };
    let place = place(&vmi)?;
    let Some(asking) = serving.asks.take(&place.pod_uid) else { return Err(Refusal::TooManyRequests) };
    let (reply, stream) = ask(&serving.nodes, &place, user, request).await.map_err(unanswered)?;
    drop(asking);
    match reply {
        ControlReply::Streaming => {}
        ControlReply::Denied { reason } => return Err(Refusal::Conflict(printable(&reason, LONGEST_REASON))),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Healthy
        | ControlReply::Guest(_) => return Err(unexpected()),
    }
    tracing::info!("a stream is opened");
    let socket = socket.protocols([PLAIN]).max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
    Ok(socket.on_upgrade(move |socket| relay(socket, stream, turn)))
}

/// Copies both ways until one end closes. Neither side is read further than the other one takes: what is slow holds back
/// its own stream.
async fn relay(socket: WebSocket, stream: Stream, turn: Turn) {
    let (to_client, from_client) = socket.split();
    let (from_machine, to_machine) = tokio::io::split(stream);
    let pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    tokio::select! {
        () = send(from_machine, to_client, pings) => {}
        () = receive(from_client, to_machine) => {}
    }
    drop(turn);
}

async fn send(mut machine: ReadHalf<Stream>, mut client: SplitSink<WebSocket, Message>, mut pings: Interval) {
    let mut bytes = vec![0; LARGEST_FRAME];
    loop {
        let message = tokio::select! {
            read = machine.read(&mut bytes) => match read {
                Ok(count @ 1..) => Message::Binary(Bytes::copy_from_slice(&bytes[..count])),
                Ok(0) | Err(_) => break,
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if client.send(message).await.is_err() {
            return;
        }
    }
    let close = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let _ = client.send(Message::Close(Some(close))).await;
}

async fn receive(mut client: SplitStream<WebSocket>, mut machine: WriteHalf<Stream>) {
    while let Some(Ok(message)) = client.next().await {
        let written = match message {
            Message::Binary(bytes) => machine.write_all(&bytes).await,
            Message::Text(text) => machine.write_all(text.as_bytes()).await,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => return,
        };
        if written.is_err() {
            return;
        }
    }
}
