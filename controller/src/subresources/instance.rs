//! Requests that go down to the supervisor of a running instance.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use garboard_api::VirtualMachineInstance;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{ControlReply, ControlRequest, Status};
use garboard_protocol::text::printable;
use garboard_subresources::instance;
use garboard_subresources::options::{self, FreezeOptions, PauseOptions};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Question;
use kube::Api;

use super::answer::internal;
use super::server::Serving;
use crate::nodes::change::Change as Asking;
use crate::nodes::control::{ControlError, Requester, place_of};
use crate::vmi::history::Place;

/// The longest reason of a launcher or an agent that a client gets, characters.
pub(super) const LONGEST_REASON: usize = 400;

/// What is asked, and what is true when it is done.
struct Change {
    request: ControlRequest,
    /// Nothing where it is done with the answer.
    is_done: Option<fn(&Status) -> bool>,
    dry_run: bool,
}

impl Change {
    /// From the body of the request.
    fn read(question: Question, body: &[u8]) -> Result<Self, Refusal> {
        let with_options = |request: ControlRequest, is_done: Option<fn(&Status) -> bool>| {
            let options: PauseOptions = options::read(body)?;
            Ok(Self { request, is_done, dry_run: options::is_dry_run(options.dry_run.as_ref())? })
        };
        let alone = |request: ControlRequest| Self { request, is_done: None, dry_run: false };
        match question {
            Question::Pause => with_options(ControlRequest::Pause, Some(|status| status.paused.is_some())),
            Question::Unpause => with_options(ControlRequest::Unpause, Some(|status| status.paused.is_none())),
            Question::Reset => with_options(ControlRequest::Reset, None),
            // A guest takes as long as it likes.
            Question::SoftReboot => Ok(alone(ControlRequest::SoftReboot)),
            Question::Freeze => {
                let options: FreezeOptions = options::read(body)?;
                Ok(alone(ControlRequest::Freeze { thaw_after_seconds: options.thaw_after_seconds()? }))
            }
            Question::Unfreeze => Ok(alone(ControlRequest::Unfreeze)),
        }
    }
}

/// Has a supervisor do something to its machine.
pub(super) async fn change(
    serving: &Serving,
    call: &Call<'_>,
    by: &Requester,
    question: Question,
    body: &[u8],
) -> Result<Response, Refusal> {
    let change = Change::read(question, body)?;
    let dry_run = change.dry_run;
    let vmi = instance(serving, call).await?;
    instance::may_ask(question, &vmi)?;
    if !dry_run {
        carry_out(serving, &vmi, by, change).await?;
    }
    tracing::info!(dry_run, "instance change carried out");
    Ok(StatusCode::OK.into_response())
}

async fn carry_out(
    serving: &Serving,
    vmi: &VirtualMachineInstance,
    by: &Requester,
    change: Change,
) -> Result<(), Refusal> {
    let place = place(vmi)?;
    let Some(_turn) = serving.asks.take(&place.pod_uid) else { return Err(Refusal::TooManyRequests) };
    let asking = Asking::begin(&serving.nodes, &place, by, vmi.metadata.uid.as_deref().unwrap_or_default());
    let reply = asking.ask(change.request).await.map_err(unanswered)?;
    match reply {
        ControlReply::AlreadySo | ControlReply::Done => Ok(()),
        ControlReply::Denied { reason } => Err(Refusal::Conflict(printable(&reason, LONGEST_REASON))),
        ControlReply::Queued => {
            let Some(is_done) = change.is_done else { return Ok(()) };
            match asking.wait_for(is_done).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Refusal::Internal("QEMU has not done it in time; it may still".to_owned())),
                Err(error) => Err(unanswered(error)),
            }
        }
        ControlReply::Status(_)
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Healthy
        | ControlReply::Guest(_) => Err(unexpected()),
    }
}

pub(super) fn unexpected() -> Refusal {
    Refusal::Internal("the launcher sent an unexpected answer".to_owned())
}

/// The instance of a call.
pub(super) async fn instance(serving: &Serving, call: &Call<'_>) -> Result<VirtualMachineInstance, Refusal> {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(serving.context.client.clone(), call.namespace);
    instances.get_opt(call.name).await.map_err(internal)?.ok_or(Refusal::NotFound)
}

/// Where it runs.
pub(super) fn place(vmi: &VirtualMachineInstance) -> Result<Place, Refusal> {
    place_of(vmi).ok_or_else(|| Refusal::Internal("the instance has no launcher pod on a node".to_owned()))
}

pub(super) fn unanswered(error: ControlError) -> Refusal {
    Refusal::Internal(printable(&ErrorChain(&error).to_string(), LONGEST_REASON))
}
