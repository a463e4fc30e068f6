//! Commands that are one request: stop, pause, unpause, reset.

use garboard_protocol::control::{ControlRequest, PauseReason, Status, StopMode};

use crate::args::{MachineArgs, StopArgs};
use crate::client::{self, Outcome};
use crate::exit;
use crate::keeper::between;
use crate::places::{MachineId, Places};

/// `garboard stop`: returns once the machine is gone and nothing of it is left.
pub(crate) fn stop(args: &StopArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    let mode = if args.force { StopMode::Force } else { StopMode::Graceful { within_seconds: args.grace_period } };
    let request = ControlRequest::Stop { mode };
    stop_for_good(&places, &args.machine, &request)?;
    println!("{} stopped", args.machine);
    Ok(exit::OK)
}

/// Ends a machine whatever its run strategy is; returns once nothing of it is left.
pub(crate) fn stop_for_good(places: &Places, id: &MachineId, request: &ControlRequest) -> anyhow::Result<()> {
    let machine = places.machine(id);
    let was_there = machine.exists();
    // First, so that a run that ends by itself just now is the last one.
    between::wish_it_down(&machine)?;
    loop {
        // The keeper has heard the wish, unless it was just about to begin the next run: that one is stopped.
        while between::read(&machine).is_some() && crate::keeper::keeper_is_alive(&machine) {
            crate::keeper::pause_briefly();
        }
        match client::request(places, id, request) {
            Ok(_) => break,
            Err(_) if was_there && !machine.exists() => return Ok(()),
            Err(_) if between::read(&machine).is_some() => {}
            // The supervisor is dead and stays dead: the keeper or, without one, we clean up.
            Err(error) if error.downcast_ref::<exit::Complaint>().is_none() => {
                crate::keeper::clean_up_orphan(places, id)?;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    crate::keeper::wait_until_gone(places, id)
}

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
