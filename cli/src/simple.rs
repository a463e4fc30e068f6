//! Commands that are one request: pause, unpause, reset.

use garboard_protocol::control::{ControlRequest, PauseReason, Status};

use crate::args::MachineArgs;
use crate::client::{self, Outcome};
use crate::exit;
use crate::places::{MachineId, Places};

/// `garboard pause`.
pub(crate) fn pause(args: &MachineArgs) -> anyhow::Result<u8> {
    settle(&args.machine, &ControlRequest::Pause, "paused", |status| status.paused == Some(PauseReason::PausedByUser))
}

/// `garboard unpause`.
pub(crate) fn unpause(args: &MachineArgs) -> anyhow::Result<u8> {
    settle(&args.machine, &ControlRequest::Unpause, "running", |status| status.paused.is_none())
}

/// `garboard reset`.
pub(crate) fn reset(args: &MachineArgs) -> anyhow::Result<u8> {
    let before = client::status(&Places::of_caller(None)?, &args.machine)?.resets;
    settle(&args.machine, &ControlRequest::Reset, "reset", move |status| status.resets > before)
}

/// Asks, then waits until the machine is so.
fn settle(id: &MachineId, request: &ControlRequest, word: &str, is_so: impl Fn(&Status) -> bool) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    if client::request(&places, id, request)? == Outcome::AlreadySo {
        println!("{id} is {word} already");
        return Ok(exit::OK);
    }
    let last = client::watch(&places, id, |status| is_so(status) || status.ended.is_some())?;
    match last {
        Some(status) if is_so(&status) => {
            println!("{id} {word}");
            Ok(exit::OK)
        }
        Some(status) => {
            let why = status.ended.map_or_else(|| "the supervisor went away".into(), |ended| ended.sentence);
            Err(exit::complaint(exit::REFUSED, format!("{id} was not {word}: {why}")))
        }
        None => Err(exit::complaint(exit::FAILED, format!("the supervisor of {id} went away"))),
    }
}
