//! Streams: a websocket of a client on one side, a connection to the supervisor on the other. Of the console and of the screen it is the
//! session, of which there is one: the next one ends it ([ADR 36](../../../docs/adr/0036-sessions.md)). For a USB device it is one of the
//! slots that the machine has, and none ends another.

use axum::body::Bytes;
use axum::extract::ws::close_code;
use axum::http::request::Parts;
use axum::response::Response;
use garboard_protocol::control::{ConsoleAccess, ControlReply, ControlRequest, Session};
use garboard_protocol::position::{Begun, NoPosition, Resume};
use garboard_protocol::session::{Decoder, Part};
use garboard_protocol::text::printable;
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Stream as Which;
use garboard_subresources::{instance, options};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::instance::{LONGEST_REASON, instance as get_instance, place, unanswered, unexpected};
use super::relay::{self, Next, READ_AT_ONCE, Reader, Source, Then, Writer};
use super::server::Serving;
use super::shares::StreamTurn;
use crate::metrics::StreamKind;
use crate::nodes::control::{Requester, ask};
use crate::stores::ObjectKey;

/// What it is counted as.
const fn kind(which: Which) -> StreamKind {
    match which {
        Which::Console => StreamKind::Console,
        Which::Vnc => StreamKind::Vnc,
        Which::UsbRedir => StreamKind::UsbRedir,
    }
}

/// How the reason of a session that is over begins. KubeVirt's close has no frame, so that programs that use its client look for this
/// word in the error, of which the reason is a part.
const OVER: &str = "EOF";

/// Opens a stream to the supervisor, and only then answers with 101: before it, a refusal is a `Status`.
pub(super) async fn open(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    which: Which,
    mut head: Parts,
) -> Result<Response, Refusal> {
    let preserves = options::preserves_session(head.uri.query())?;
    let session = match (looks_on(which, head.uri.query())?, preserves) {
        (true, _) => Session::None,
        (false, true) => Session::Only,
        (false, false) => Session::Replace,
    };
    let vmi = get_instance(serving, call).await?;
    instance::may_open(which, &vmi)?;
    let asked_for = resume(which, head.uri.query())?;
    let names_place = asked_for.is_some();
    // Who looks on gets parts too, and the reason of an end.
    let resume = asked_for.or((session == Session::None).then_some(Resume::New));
    let request = match which {
        Which::Console => ControlRequest::Console { access: keyboard(session), session, resume },
        Which::Vnc => ControlRequest::Vnc { session },
        Which::UsbRedir => ControlRequest::UsbRedir,
    };
    let socket = relay::websocket(&mut head, &serving.replica).await?;
    let place = place(&vmi)?;
    let turn = serving.streams.take_on(&place.node, &by.user, call.namespace).ok_or(Refusal::TooManyStreams)?;
    let asking = serving.turn_to_ask(&place.pod_uid).await?;
    let (reply, stream) = ask(&serving.nodes, &place, by, request).await.map_err(unanswered)?;
    drop(asking);
    let (reader, writer) = tokio::io::split(stream);
    let writer = Writer::new(writer, Then::Close);
    let instance = ObjectKey::new(call.namespace, call.name);
    let open = |turn: StreamTurn| turn.counted(serving.context.metrics.streams.open(kind(which), instance));
    match reply {
        ControlReply::Session => {
            tracing::info!(?session, "a stream is opened");
            Ok(relay::answer(socket, SessionParts::of(reader, None), writer, open(turn)))
        }
        ControlReply::Resumed(begun) => {
            tracing::info!(?session, resumed = begun.resumed, "a console is opened");
            let begun = names_place.then_some(begun);
            Ok(relay::answer(socket, SessionParts::of(reader, begun), writer, open(turn)))
        }
        // One of several: a slot for a USB device, or what a supervisor of a version before sessions has.
        ControlReply::Streaming => {
            tracing::info!("a stream is opened");
            Ok(relay::answer(socket, Reader::new(reader), writer, open(turn)))
        }
        ControlReply::Denied { reason } => Err(denied(which, session, &reason)),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(unexpected()),
    }
}

/// With what a console is to begin (`?position=`): a parameter of ours, for clients that connect again by themselves. They get a text first
/// that says with what it does ([`Begun`]).
fn resume(which: Which, query: Option<&str>) -> Result<Option<Resume>, Refusal> {
    let Some(text) = options::parameter(query, "position") else { return Ok(None) };
    if which != Which::Console {
        return Err(Refusal::BadRequest("position: only a console has places".to_owned()));
    }
    let refused = |error: NoPosition| Refusal::BadRequest(format!("position: {error}"));
    text.parse::<Resume>().map(Some).map_err(refused)
}

/// Whether a client only looks on: of a console, which has many viewers.
fn looks_on(which: Which, query: Option<&str>) -> Result<bool, Refusal> {
    let looks_on = options::looks_on(query)?;
    if looks_on && which != Which::Console {
        return Err(Refusal::BadRequest("view: only a console is opened to look on".to_owned()));
    }
    Ok(looks_on)
}

/// Who ends no session takes the keyboard from nobody either. KubeVirt has the parameter for the screen alone; its clients send it to
/// no console.
const fn keyboard(session: Session) -> ConsoleAccess {
    match session {
        Session::None => ConsoleAccess::View,
        Session::Only => ConsoleAccess::Write,
        Session::Replace => ConsoleAccess::TakeOver,
    }
}

/// What would end no other stream may come later.
fn denied(which: Which, session: Session, reason: &str) -> Refusal {
    let reason = printable(reason, LONGEST_REASON);
    match which {
        // What is in brackets is the end of KubeVirt's message, which its own tests look for.
        Which::UsbRedir => Refusal::Unavailable(format!("{reason} (websocket: bad handshake)")),
        Which::Console | Which::Vnc if session == Session::Only => Refusal::Unavailable(reason),
        Which::Console | Which::Vnc => Refusal::Conflict(reason),
    }
}

/// What a supervisor sends in a session.
struct SessionParts<R> {
    /// What the client reads first.
    begun: Option<Begun>,
    from: R,
    buffer: Vec<u8>,
    decoder: Decoder,
}

impl<R> SessionParts<R> {
    fn of(from: R, begun: Option<Begun>) -> Self {
        Self { begun, from, buffer: vec![0; READ_AT_ONCE], decoder: Decoder::default() }
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> Source for SessionParts<R> {
    async fn next(&mut self) -> Next {
        if let Some(text) = self.begun.take().and_then(|begun| serde_json::to_string(&begun).ok()) {
            return Next::Text(text);
        }
        loop {
            match self.decoder.next_part() {
                Ok(Some(Part::Bytes(bytes))) => return Next::Bytes(Bytes::from(bytes)),
                Ok(Some(Part::End(end))) if end.machine_ended => {
                    return Next::End(relay::close(close_code::NORMAL, ""));
                }
                // Clients that connect again by themselves do not after this code; two of them would end each other for ever.
                Ok(Some(Part::End(end))) => {
                    return Next::End(relay::close(close_code::AWAY, &format!("{OVER}: {}", end.reason)));
                }
                Ok(None) => {}
                Err(error) => return Next::End(relay::close(close_code::ERROR, &error.to_string())),
            }
            match self.from.read(&mut self.buffer).await {
                // Its supervisor was replaced, or the client took nothing for so long that no reason could be sent. One of a version
                // before ends so with its machine, too: the answer to a new connection is that it does not run.
                Ok(0) => return Next::End(relay::close(close_code::ERROR, "the stream was cut")),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) => return Next::End(relay::broken(&error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use garboard_protocol::session;

    use super::*;

    /// How the client's side is closed after what a supervisor sends.
    async fn closed(sent: Vec<u8>) -> (u16, String) {
        let mut parts = SessionParts::of(Cursor::new(sent), None);
        loop {
            match parts.next().await {
                Next::Bytes(_) => {}
                Next::End(frame) => return (frame.code, frame.reason.as_str().to_owned()),
                Next::Text(text) => panic!("a text without a position in the request: {text}"),
            }
        }
    }

    #[tokio::test]
    async fn only_the_end_of_the_machine_is_a_good_end() {
        let mut printed = Vec::new();
        session::encode(b"login: ", &mut printed);
        let mut machine = printed.clone();
        session::encode_end_of_machine(&mut machine).unwrap();
        assert_eq!(closed(machine).await, (close_code::NORMAL, String::new()));
        let mut replaced = printed.clone();
        session::encode_end("another client", &mut replaced).unwrap();
        assert_eq!(closed(replaced).await, (close_code::AWAY, "EOF: another client".to_owned()));
        // Between two parts, and within one.
        let cut = (close_code::ERROR, "the stream was cut".to_owned());
        assert_eq!(closed(printed.clone()).await, cut);
        printed.truncate(4);
        assert_eq!(closed(printed).await, cut);
    }
}
