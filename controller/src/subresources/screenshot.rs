//! `vnc/screenshot`: a picture of the screen, which is passed on as it comes from the supervisor.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::text::printable;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Stream as Which;
use garboard_subresources::{instance, options};
use garboard_tunnel::Stream;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::instance::{LONGEST_REASON, instance as get_instance, place, unanswered, unexpected};
use super::server::Serving;
use super::turns::Turn;
use crate::nodes::control::{Requester, ask};

/// The largest picture that is passed on, bytes; no supervisor sends a larger one.
const LARGEST: usize = 64 << 20;
/// How long the next bytes of it may take.
const NEXT_WITHIN: Duration = Duration::from_secs(15);
/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// What a PNG begins and ends with.
const BEGIN: &[u8] = b"\x89PNG\r\n\x1a\n";
const END: &[u8] = b"IEND\xaeB`\x82";

/// Answers with a picture; `query` is that of the request.
pub(super) async fn take(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    query: Option<&str>,
) -> Result<Response, Refusal> {
    let vmi = get_instance(serving, call).await?;
    instance::may_open(Which::Vnc, &vmi)?;
    let place = place(&vmi)?;
    let turn = serving.turn_to_ask(&place.pod_uid).await?;
    let request = ControlRequest::Screenshot { move_cursor: moves_cursor(query) };
    let (reply, stream) = ask(&serving.nodes, &place, by, request).await.map_err(unanswered)?;
    match reply {
        ControlReply::Streaming => {}
        ControlReply::Denied { reason } => return Err(Refusal::Conflict(printable(&reason, LONGEST_REASON))),
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
        | ControlReply::NoPart { .. } => return Err(unexpected()),
    }
    let mut picture = Picture { stream, passed_on: 0, end: Vec::new(), _turn: turn };
    // Once an answer has begun, an error can only end the connection.
    let first = picture.next().await.map_err(|error| Refusal::Internal(error.to_string()))?;
    let first = first.filter(|first| first.starts_with(BEGIN)).ok_or_else(unexpected)?;
    let rest = stream::try_unfold(picture, |mut picture| async move {
        let next = picture.next().await?;
        Ok::<_, std::io::Error>(next.map(|bytes| (bytes, picture)))
    });
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(([(CONTENT_TYPE, "image/png")], body).into_response())
}

/// KubeVirt's parameter `moveCursor`.
fn moves_cursor(query: Option<&str>) -> bool {
    options::parameter(query, "moveCursor") == Some("true")
}

/// A picture on its way.
struct Picture {
    stream: Stream,
    passed_on: usize,
    /// The last bytes of it.
    end: Vec<u8>,
    _turn: Turn,
}

impl Picture {
    /// The next bytes; nothing after the last one. A picture that ends before its end is an error.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut bytes = vec![0; CHUNK];
        let count = timeout(NEXT_WITHIN, self.stream.read(&mut bytes)).await??;
        bytes.truncate(count);
        if count == 0 {
            let is_whole = self.end == END;
            return if is_whole { Ok(None) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) };
        }
        self.passed_on += count;
        if self.passed_on > LARGEST {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.end.extend_from_slice(&bytes[count.saturating_sub(END.len())..]);
        self.end.drain(..self.end.len().saturating_sub(END.len()));
        Ok(Some(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_moved_only_on_request() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("moveCursor=false"), false),
            (Some("moveCursor=true"), true),
            (Some("a=b&moveCursor=true"), true),
        ] {
            assert_eq!(moves_cursor(query), expected, "{query:?}");
        }
    }
}
