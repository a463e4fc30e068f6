//! QMP of a running instance, through the broker of its supervisor: a session is a websocket of QMP's own bytes, and a command is a request
//! with one answer. The level comes from the route, whose right the user has; what it reaches, the broker decides.

use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use garboard_protocol::control::{ControlReply, ControlRequest, QmpAccess};
use garboard_protocol::text::printable;
use garboard_subresources::qmp::{self, Command, Line};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::QmpLevel;
use garboard_tunnel::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;

use super::instance::{LONGEST_REASON, instance, place, unanswered, unexpected};
use super::relay::{self, Reader, Then, Writer};
use super::server::Serving;
use crate::metrics::StreamKind;
use crate::nodes::control::{Requester, ask};
use crate::stores::ObjectKey;
use crate::vmi::history::Place;

/// How long QEMU may take for a command: with the way to it, less than a request has in all. What takes longer needs a session.
const DONE_WITHIN: Duration = Duration::from_secs(15);
/// The most that is read for one command, events and all, bytes: the schema of QEMU has some 250 KiB.
const MOST: u64 = 2 << 20;

const fn access(level: QmpLevel) -> QmpAccess {
    match level {
        QmpLevel::Read => QmpAccess::ReadOnly,
        QmpLevel::Write => QmpAccess::ReadWrite,
        QmpLevel::Dangerous => QmpAccess::Dangerous,
    }
}

/// Opens a session, and only then answers with 101.
pub(super) async fn session(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    level: QmpLevel,
    mut head: Parts,
) -> Result<Response, Refusal> {
    let vmi = instance(serving, call).await?;
    qmp::may_use(&vmi)?;
    let socket = relay::websocket(&mut head, &serving.replica).await?;
    let place = place(&vmi)?;
    let turn = serving.streams.take_on(&place.node, &by.user, call.namespace).ok_or(Refusal::TooManyStreams)?;
    let asking = serving.turn_to_ask(&place.pod_uid).await?;
    let stream = opened(serving, &place, by, level).await?;
    drop(asking);
    if let Some(left_out) = serving.qmp_lines.judge(&by.user, Instant::now()) {
        tracing::info!(?level, left_out, "a QMP session is opened");
    }
    let counted = serving.context.metrics.streams.open(StreamKind::Qmp, ObjectKey::new(call.namespace, call.name));
    let (reader, writer) = tokio::io::split(stream);
    let turn = turn.counted(counted);
    Ok(relay::answer(socket, Reader::new(reader), Writer::new(writer, Then::Close), turn))
}

/// Has one command executed.
pub(super) async fn command(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    level: QmpLevel,
    command: Command,
) -> Result<Response, Refusal> {
    let vmi = instance(serving, call).await?;
    qmp::may_use(&vmi)?;
    let place = place(&vmi)?;
    let _asking = serving.turn_to_ask(&place.pod_uid).await?;
    let stream = opened(serving, &place, by, level).await?;
    if let Some(left_out) = serving.qmp_lines.judge(&by.user, Instant::now()) {
        tracing::info!(?level, command = command.name(), left_out, "a QMP command is sent");
    }
    match tokio::time::timeout(DONE_WITHIN, executed(stream, &command)).await {
        Ok(reply) => Ok(([(CONTENT_TYPE, "application/json")], reply?).into_response()),
        Err(_) => Err(Refusal::Internal(format!(
            "QEMU has not replied to {} within {} s; it may still do it",
            command.name(),
            DONE_WITHIN.as_secs()
        ))),
    }
}

/// A connection to the broker.
async fn opened(serving: &Serving, place: &Place, by: &Requester, level: QmpLevel) -> Result<Stream, Refusal> {
    let request = ControlRequest::Qmp { access: access(level) };
    let (reply, stream) = ask(&serving.nodes, place, by, request).await.map_err(unanswered)?;
    match reply {
        ControlReply::Streaming => Ok(stream),
        // Its monitor is not connected, or it has as many clients as it takes: both end by themselves.
        ControlReply::Denied { reason } => Err(Refusal::Unavailable(printable(&reason, LONGEST_REASON))),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(unexpected()),
    }
}

async fn executed(stream: Stream, command: &Command) -> Result<String, Refusal> {
    let broken = |error: std::io::Error| Refusal::Internal(format!("the connection to QEMU broke: {error}"));
    let (reader, mut writer) = tokio::io::split(stream);
    writer.write_all(command.lines().as_bytes()).await.map_err(broken)?;
    let mut lines = BufReader::new(reader.take(MOST));
    let mut line = Vec::new();
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line).await.map_err(broken)?;
        if line.last() != Some(&b'\n') {
            let why = "the connection to QEMU ended before its reply, or the reply is too long; it may have been done";
            return Err(Refusal::Internal(why.to_owned()));
        }
        if let Line::Reply(reply) = command.judge(&line)? {
            return Ok(reply);
        }
    }
}
