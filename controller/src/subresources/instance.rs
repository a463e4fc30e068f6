//! Requests that go down to the supervisor of a running instance.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use garboard_api::conditions::Reason;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{ControlReply, ControlRequest, Status, StopMode};
use garboard_protocol::text::printable;
use garboard_subresources::instance;
use garboard_subresources::options::{self, FreezeOptions, PauseOptions};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use garboard_subresources::routes::Question;
use kube::{Api, Resource};

use super::answer::internal;
use super::server::Serving;
use crate::events::NewEvent;
use crate::nodes::change::NumberedChange;
use crate::nodes::control::{ControlError, Requester, place_of};
use crate::vmi::history::Place;

/// The longest reason of a launcher, an agent or the API server that a client gets, characters.
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
    if question == Question::Unpause {
        let machines: Api<VirtualMachine> = Api::namespaced(serving.context.client.clone(), call.namespace);
        let vm = machines.get_opt(call.name).await.map_err(internal)?;
        instance::machine_permits(question, vm.as_ref())?;
    }
    let vmi = instance(serving, call).await?;
    instance::may_ask(question, &vmi)?;
    if !dry_run {
        let done = carry_out(serving, &vmi, by, change).await;
        if let Some(event) = event_of(question, &done) {
            serving.context.record(&vmi.object_ref(&()), event);
        }
        done.map_err(|refusal| of_guest(question, refusal))?;
    }
    tracing::info!(dry_run, "instance change carried out");
    Ok(StatusCode::OK.into_response())
}

/// The event on the instance. Of a pause its node agent writes it.
fn event_of(question: Question, done: &Result<(), Refusal>) -> Option<NewEvent> {
    match (question, done) {
        (Question::Reset, Ok(())) => Some(NewEvent::normal(Reason::Reset, "the guest was reset by a user")),
        (Question::SoftReboot, Ok(())) => {
            Some(NewEvent::normal(Reason::SoftRebooted, "the guest was asked by a user to shut down and start again"))
        }
        // Its supervisor denies it, or cannot be asked.
        (Question::Freeze, Err(Refusal::Conflict(why) | Refusal::Internal(why))) => {
            Some(NewEvent::warning(Reason::FreezeError, format!("the file systems could not be frozen: {why}")))
        }
        (
            Question::Pause
            | Question::Unpause
            | Question::Reset
            | Question::SoftReboot
            | Question::Freeze
            | Question::Unfreeze,
            _,
        ) => None,
    }
}

async fn carry_out(
    serving: &Serving,
    vmi: &VirtualMachineInstance,
    by: &Requester,
    change: Change,
) -> Result<(), Refusal> {
    let place = place(vmi)?;
    let _turn = serving.turn_to_ask(&place.pod_uid).await?;
    let asking = NumberedChange::begin(&serving.nodes, &place, by, vmi.metadata.uid.as_deref().unwrap_or_default());
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
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(unexpected()),
    }
}

/// Has a supervisor give its guest so many seconds for the stop that follows. A guest that does not run yet needs no time: it is not
/// asked to shut down.
pub(super) async fn prolong(
    serving: &Serving,
    vmi: &VirtualMachineInstance,
    by: &Requester,
    grace_seconds: u64,
) -> Result<(), Refusal> {
    if Phase::of(vmi) != Phase::Running {
        return Ok(());
    }
    let change = Change { request: ControlRequest::Prolong { grace_seconds }, is_done: None, dry_run: false };
    let denied = |refusal: Refusal| {
        let Refusal::Conflict(why) = refusal else { return refusal };
        Refusal::Conflict(format!(
            "gracePeriod {grace_seconds} is more time than the running instance can be given: {why}"
        ))
    };
    carry_out(serving, vmi, by, change).await.map_err(denied)
}

/// Has a supervisor that is ending its guest end it within so many seconds, if that is less time than the guest has left. Each supervisor
/// knows this request, and carries it out once for each number. A guest that does not run yet is not waited for.
pub(super) async fn hasten(
    serving: &Serving,
    vmi: &VirtualMachineInstance,
    by: &Requester,
    within_seconds: u64,
) -> Result<(), Refusal> {
    if Phase::of(vmi) != Phase::Running {
        return Ok(());
    }
    let mode = StopMode::Graceful { within_seconds: Some(within_seconds) };
    let change = Change { request: ControlRequest::Stop { mode }, is_done: None, dry_run: false };
    let Err(refusal) = carry_out(serving, vmi, by, change).await else { return Ok(()) };
    // Its guest was faster, and no supervisor is left that could answer.
    if is_over(serving, vmi).await {
        return Ok(());
    }
    let Refusal::Internal(why) = refusal else { return Err(refusal) };
    Err(Refusal::Internal(format!(
        "the machine is being stopped, and its launcher could not be asked to end it within {within_seconds} s: {why}; ask again"
    )))
}

/// Whether the run of an instance is over by now.
async fn is_over(serving: &Serving, vmi: &VirtualMachineInstance) -> bool {
    let (namespace, name) = (vmi.metadata.namespace.as_deref(), vmi.metadata.name.as_deref());
    let instances: Api<VirtualMachineInstance> =
        Api::namespaced(serving.context.client.clone(), namespace.unwrap_or_default());
    match instances.get_opt(name.unwrap_or_default()).await {
        Ok(Some(now)) => now.metadata.uid != vmi.metadata.uid || Phase::of(&now).is_final(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// A freeze or a thaw that its supervisor denies has failed in the guest: KubeVirt's answer, with the name of its command.
fn of_guest(question: Question, refusal: Refusal) -> Refusal {
    let command = match question {
        Question::Freeze => "Freeze",
        Question::Unfreeze => "Unfreeze",
        Question::Pause | Question::Unpause | Question::Reset | Question::SoftReboot => return refusal,
    };
    let Refusal::Conflict(why) = refusal else { return refusal };
    Refusal::Internal(format!("command {command} failed: {why}"))
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

#[cfg(test)]
mod tests {
    use kube::runtime::events::EventType;

    use super::*;
    use crate::events::EventReason;

    #[test]
    fn what_a_user_did_to_a_guest_has_an_event_and_so_has_a_freeze_that_failed() {
        let reason =
            |question, done: Result<(), Refusal>| event_of(question, &done).map(|event| (event.reason, event.kind));
        let normal = |reason| Some((EventReason::Of(reason), EventType::Normal));
        assert_eq!(reason(Question::Reset, Ok(())), normal(Reason::Reset));
        assert_eq!(reason(Question::SoftReboot, Ok(())), normal(Reason::SoftRebooted));
        let why = || "the QEMU guest agent is not connected".to_owned();
        let refused = || Err::<(), _>(Refusal::Conflict(why()));
        let warned = Some((EventReason::Of(Reason::FreezeError), EventType::Warning));
        for failed in [refused(), Err(Refusal::Internal(why()))] {
            assert_eq!(reason(Question::Freeze, failed.clone()), warned);
            let recorded = event_of(Question::Freeze, &failed).unwrap();
            assert_eq!(recorded.note, format!("the file systems could not be frozen: {}", why()));
        }
        for question in [Question::Pause, Question::Unpause, Question::Reset, Question::SoftReboot, Question::Unfreeze]
        {
            assert_eq!(reason(question, refused()), None, "the caller has the answer: {question:?}");
        }
        assert_eq!(reason(Question::Freeze, Err(Refusal::TooManyRequests)), None);
        assert_eq!(reason(Question::Freeze, Ok(())), None);
    }
}
