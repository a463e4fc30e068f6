//! `plan` and `logs`: parts of a machine's record, passed on as they come from its supervisor. That may have been taken over: what it says of a
//! part is bounded, and so many bytes as it has announced are read.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, WARNING};
use axum::response::{IntoResponse, Response};
use futures::stream;
use garboard_api::VirtualMachineInstance;
use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::part::{LONGEST_PART_BYTES, NoPart, PartHead, RecordPart};
use garboard_protocol::pod::LAUNCHER_PROGRAM;
use garboard_subresources::record::{self, Part};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Shown;
use garboard_tunnel::Stream;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::instance::{instance, unanswered, unexpected};
use super::server::Serving;
use super::shares::StreamTurn;
use crate::nodes::control::{Requester, ask, place_of};
use crate::pod;

/// How long the next bytes of a part may take: a supervisor has them in memory.
const NEXT_WITHIN: Duration = Duration::from_secs(15);
/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;

/// Answers with a part.
pub(super) async fn show(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    shown: Shown,
) -> Result<Response, Refusal> {
    let part = Part::of(shown, call)?;
    let vmi = instance(serving, call).await?;
    record::may_show(&vmi)?;
    let nowhere = || Refusal::Conflict("it has no launcher pod on a node yet".to_owned());
    let place = place_of(&vmi).ok_or_else(nowhere)?;
    // It is a stream on the connection of the node's agent for as long as its client reads.
    let turn = serving.streams.take_on(&place.node, &by.user, call.namespace).ok_or(Refusal::TooManyStreams)?;
    let asking = serving.turn_to_ask(&place.pod_uid).await?;
    let request = ControlRequest::Show { part: of_protocol(part) };
    let (reply, stream) = ask(&serving.nodes, &place, by, request).await.map_err(unanswered)?;
    drop(asking);
    let head = match reply {
        ControlReply::Part(head) if head.bytes <= LONGEST_PART_BYTES => head,
        ControlReply::NoPart { why } => return Err(missing(part, why)),
        ControlReply::Denied { .. } => return Err(too_old(call, &vmi, part)),
        ControlReply::Part(_)
        | ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_) => return Err(unexpected()),
    };
    Ok(answered(part, head, Rest { stream, left: head.bytes, _turn: turn }))
}

const fn of_protocol(part: Part) -> RecordPart {
    match part {
        Part::Plan => RecordPart::Plan,
        Part::Facts => RecordPart::Facts,
        Part::Options => RecordPart::Options,
        Part::Qmp => RecordPart::Qmp,
        Part::Qemu => RecordPart::Qemu,
        Part::Serial => RecordPart::Serial,
        Part::Exit => RecordPart::Exit,
    }
}

/// Why a supervisor has no such part.
fn missing(part: Part, why: NoPart) -> Refusal {
    let file = of_protocol(part).file();
    match why {
        NoPart::Missing => Refusal::NoPart(format!("this run has no {file} yet")),
        NoPart::TooLong => Refusal::Internal(format!("{file} of this run is longer than {LONGEST_PART_BYTES} bytes")),
        NoPart::Busy => {
            let why = "the launcher of this machine sends parts of its record to others at this moment; try again";
            Refusal::Unavailable(why.to_owned())
        }
        NoPart::Unreadable => {
            Refusal::Internal(format!("the launcher of this machine cannot read {file}; its log has why"))
        }
    }
}

/// A supervisor denies this alone because it does not know it: how its record is read all the same, by who has the right.
fn too_old(call: &Call<'_>, vmi: &VirtualMachineInstance, part: Part) -> Refusal {
    let (pod, file) = (pod::name(vmi).unwrap_or_default(), of_protocol(part).file());
    Refusal::Conflict(format!(
        "its launcher is of an earlier version, which has no {file} for the API; it is replaced without a restart of the guest soon after an \
         upgrade. Until then, with the right to create pods/exec: kubectl exec -n {} {pod} -c launcher -- {LAUNCHER_PROGRAM} --show {file}",
        call.namespace
    ))
}

fn answered(part: Part, head: PartHead, rest: Rest) -> Response {
    let media = if part.is_document() { "application/json" } else { "text/plain; charset=utf-8" };
    let body = Body::from_stream(stream::try_unfold(rest, |mut rest| async move {
        let next = rest.next().await?;
        Ok::<_, std::io::Error>(next.map(|bytes| (bytes, rest)))
    }));
    let mut response = ([(CONTENT_TYPE, media)], body).into_response();
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(head.bytes));
    // kubectl prints it to standard error.
    let warning = format!("299 - \"garboard: the first {} bytes are left out\"", head.left_out);
    if head.left_out > 0
        && let Ok(warning) = HeaderValue::from_str(&warning)
    {
        response.headers_mut().insert(WARNING, warning);
    }
    response
}

/// The bytes of a part on their way.
struct Rest {
    stream: Stream,
    left: u64,
    _turn: StreamTurn,
}

impl Rest {
    /// The next bytes; nothing after the last one. A part that ends before its end is an error.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
        let mut bytes = vec![0; most];
        let count = timeout(NEXT_WITHIN, self.stream.read(&mut bytes)).await??;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(count);
        self.left = self.left.saturating_sub(count as u64);
        Ok(Some(bytes.into()))
    }
}
