//! A request that has a number, from its client to the driver and back.

use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::number::Number;
use tokio::sync::oneshot;

use super::control::{ControlSenders, denied};
use super::driver::{Client, Offer};
use super::trace::Cause;

/// Has it done, once, and gives its answer.
pub(super) async fn ask(
    senders: &ControlSenders,
    asked: &ControlRequest,
    number: Number,
    cause: Cause,
) -> ControlReply {
    let Some(request) = asked.change() else {
        return denied(format!("`{}` changes nothing; send it without a number", asked.name()));
    };
    if !number.is_valid() {
        return denied("the ID of the number is empty, too long, or not printable; write a UUID");
    }
    let run = senders.status.borrow().run.clone();
    if number.run != run {
        return denied(
            "this request is for another run of the machine, which was started again since; look at it, then ask again",
        );
    }
    let (reply, answer) = oneshot::channel();
    let client = Client::Numbered { id: number.id, ask: asked.name(), reply };
    if senders.requests.send(Offer { request, client, cause }).await.is_err() {
        return denied("the supervisor is shutting down");
    }
    answer.await.unwrap_or_else(|_| denied("the machine was stopped, or its supervisor is shutting down"))
}
