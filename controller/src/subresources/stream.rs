//! Streams: a websocket of a client on one side, a connection to the supervisor on the other.

use axum::http::request::Parts;
use axum::response::Response;
use garboard_protocol::control::{ConsoleAccess, ControlReply, ControlRequest};
use garboard_protocol::text::printable;
use garboard_subresources::instance;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Stream as Which;

use super::instance::{LONGEST_REASON, instance as get_instance, place, unanswered};
use super::relay::{self, Reader, Then, Writer};
use super::server::Serving;
use crate::nodes::control::ask;

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
    let socket = relay::websocket(&mut head).await?;
    let Some(turn) = serving.streams.take(user) else { return Err(Refusal::TooManyRequests) };
    let place = place(&vmi)?;
    let Some(asking) = serving.asks.take(&place.pod_uid) else { return Err(Refusal::TooManyRequests) };
    let (reply, stream) = ask(&serving.nodes, &place, user, request).await.map_err(unanswered)?;
    drop(asking);
    match reply {
        ControlReply::Streaming => {}
        ControlReply::Denied { reason } => return Err(Refusal::Conflict(printable(&reason, LONGEST_REASON))),
        ControlReply::Status(_) | ControlReply::Queued | ControlReply::AlreadySo | ControlReply::Healthy => {
            return Err(Refusal::Internal("the launcher sent an unexpected answer".to_owned()));
        }
    }
    tracing::info!("a stream is opened");
    let (reader, writer) = tokio::io::split(stream);
    Ok(relay::answer(socket, Reader::new(reader), Writer::new(writer, Then::Close), turn))
}
