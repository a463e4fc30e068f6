//! Requests that change a machine: each is done once, and a connection that breaks loses none.
//!
//! ```text
//!   status ─► which run ─► request, number {id, run} ─► answer
//!      ▲                                  │ broken, or no answer
//!      └──────────────────────────────────┘ the same number again, until its time is over
//! ```
//!
//! A supervisor of a version before numbers names no run: it is sent the request once, and where the answer does not come nobody
//! knows what became of it. It is asked for its status before each time, so that one that has replaced another is known for what it
//! is ([ADR 38](../../../docs/adr/0038-requests-have-numbers.md)).

use std::time::Duration;

use garboard_protocol::control::{Asked, ControlReply, ControlRequest, Status};
use garboard_protocol::number::{Number, REPEATED_WITHIN_SECONDS};
use garboard_tunnel::controller::Nodes;
use tokio::time::Instant;

use super::control::{ControlError, PAUSE, Requester, TRY_FOR, answer_within, answered, asked, open, read_reply};
use crate::vmi::history::Place;

/// How long a change is tried, with all that is waited for. A request of the subresource API may take a little longer, and a
/// supervisor remembers it for more than twice this.
pub(crate) const WITHIN: Duration = Duration::from_secs(22);
const _: () = assert!(WITHIN.as_secs() < REPEATED_WITHIN_SECONDS);
/// How long the status may take: a supervisor has it at hand.
const STATUS_WITHIN: Duration = Duration::from_secs(3);

/// A change of one machine, and until when it is tried.
pub(crate) struct NumberedChange<'a> {
    nodes: &'a Nodes,
    place: &'a Place,
    by: &'a Requester,
    instance: &'a str,
    id: String,
    end: Instant,
}

impl<'a> NumberedChange<'a> {
    /// One that begins now. `instance` is the UID of the instance that it is for.
    pub(crate) fn begin(nodes: &'a Nodes, place: &'a Place, by: &'a Requester, instance: &'a str) -> Self {
        let id = uuid::Uuid::new_v4().to_string();
        Self { nodes, place, by, instance, id, end: Instant::now() + WITHIN }
    }

    /// Has it done, and gives the answer.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Unknown`] where it was sent, and nobody knows what became of it.
    pub(crate) async fn ask(&self, request: ControlRequest) -> Result<ControlReply, ControlError> {
        let within = answer_within(&request);
        let mut sent = Sent { request: asked(self.by, request, None), is_sent: false };
        loop {
            let error = match tokio::time::timeout_at(self.end, self.attempt(&mut sent, within)).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => error,
                Err(_) => ControlError::Slow { within: WITHIN },
            };
            let is_final =
                matches!(error, ControlError::OtherInstance) || sent.is_sent && sent.request.number.is_none();
            let end = if sent.is_sent { self.end } else { self.end - WITHIN + TRY_FOR };
            if is_final || Instant::now() + PAUSE >= end {
                return Err(if sent.is_sent { ControlError::Unknown(Box::new(error)) } else { error });
            }
            tracing::debug!(%error, is_sent = sent.is_sent, "the launcher is asked again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks once, where that can do no harm.
    async fn attempt(&self, sent: &mut Sent, within: Duration) -> Result<ControlReply, ControlError> {
        let run = self.run().await?;
        if !sent.is_sent {
            sent.request.number = run.map(|run| Number { id: self.id.clone(), run });
        } else if run.is_none() {
            // One of a version before has taken the place of the one that was asked: it would do it again.
            return Err(ControlError::Forgotten);
        }
        let mut stream = open(self.nodes, self.place).await?;
        sent.is_sent = true;
        answered(&mut stream, &sent.request, within).await
    }

    /// The run that the supervisor is for, if it names one. Nothing else of its status is kept while it is waited for: a launcher that
    /// was taken over may make it long.
    async fn run(&self) -> Result<Option<String>, ControlError> {
        let mut stream = open(self.nodes, self.place).await?;
        match answered(&mut stream, &asked(self.by, ControlRequest::Status, None), STATUS_WITHIN).await? {
            ControlReply::Status(status) if !self.instance.is_empty() && status.uid != self.instance => {
                Err(ControlError::OtherInstance)
            }
            ControlReply::Status(status) => Ok(Some(status.run).filter(|run| !run.is_empty())),
            ControlReply::Queued
            | ControlReply::AlreadySo
            | ControlReply::Done
            | ControlReply::Streaming
            | ControlReply::Session
            | ControlReply::Resumed(_)
            | ControlReply::Healthy
            | ControlReply::Guest(_)
            | ControlReply::Statistics(_)
            | ControlReply::Part(_)
            | ControlReply::NoPart { .. }
            | ControlReply::Denied { .. } => Err(ControlError::NoStatus),
        }
    }

    /// Waits until the supervisor reports a status of which this holds; whether it did in time.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn wait_for(&self, holds: impl Fn(&Status) -> bool) -> Result<bool, ControlError> {
        loop {
            let error = match tokio::time::timeout_at(self.end, self.watch(&holds)).await {
                Ok(Ok(did)) => return Ok(did),
                Ok(Err(error)) => error,
                Err(_) => return Ok(false),
            };
            if Instant::now() + PAUSE >= self.end {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch(&self, holds: impl Fn(&Status) -> bool) -> Result<bool, ControlError> {
        let mut stream = open(self.nodes, self.place).await?;
        let mut reply = answered(&mut stream, &asked(self.by, ControlRequest::Watch, None), STATUS_WITHIN).await?;
        loop {
            if let ControlReply::Status(status) = &reply {
                if holds(status) {
                    return Ok(true);
                }
                if status.ended.is_some() {
                    return Ok(false);
                }
            }
            // Not kept while the next one is waited for.
            drop(reply);
            reply = read_reply(&mut stream).await?;
        }
    }
}

/// The line, and whether it was sent.
struct Sent {
    request: Asked,
    is_sent: bool,
}
