//! Commands that are one request: pause, unpause, reset, soft-reboot, freeze, unfreeze.

use garboard_kubectl::line::Outcome;
use garboard_protocol::control::{ControlRequest, PauseReason, Status};
use garboard_shim_client::places::{MachineId, Places};

use crate::args::Machines;
use crate::client;
use crate::exit;
use crate::output::outln;
use crate::several;

/// `garboard pause MACHINE…`.
pub(crate) fn pause(args: &Machines) -> anyhow::Result<u8> {
    each(args, |places, id| {
        settle(places, id, &ControlRequest::Pause, "paused", |status| status.paused == Some(PauseReason::PausedByUser))
    })
}

/// `garboard unpause MACHINE…`.
pub(crate) fn unpause(args: &Machines) -> anyhow::Result<u8> {
    each(args, |places, id| settle(places, id, &ControlRequest::Unpause, "running", |status| status.paused.is_none()))
}

/// `garboard reset MACHINE…`.
pub(crate) fn reset(args: &Machines) -> anyhow::Result<u8> {
    each(args, |places, id| {
        let before = client::status(places, id)?.resets;
        settle(places, id, &ControlRequest::Reset, "reset", move |status| status.resets > before)
    })
}

/// `garboard soft-reboot MACHINE…`.
pub(crate) fn soft_reboot(args: &Machines) -> anyhow::Result<u8> {
    each(args, |places, id| {
        let before = client::status(places, id)?.resets;
        client::request(places, id, &ControlRequest::SoftReboot)?;
        // A supervisor answers when its status says so already.
        let last = client::watch(places, id, |status| status.resets > before || !status.soft_rebooting)?;
        let ignored = "the guest did not react; `garboard reset` needs nothing of it";
        report(id, "rebooted", last, |status| status.resets > before, ignored)
    })
}

/// `garboard freeze MACHINE…`.
pub(crate) fn freeze(args: &Machines, unfreeze_timeout: u64) -> anyhow::Result<u8> {
    let thaw_after_seconds = (unfreeze_timeout > 0).then_some(unfreeze_timeout);
    each(args, |places, id| {
        client::request_of_guest(places, id, &ControlRequest::Freeze { thaw_after_seconds })?;
        outln!("{id} frozen")
    })
}

/// `garboard unfreeze MACHINE…`.
pub(crate) fn unfreeze(args: &Machines) -> anyhow::Result<u8> {
    each(args, |places, id| {
        client::request_of_guest(places, id, &ControlRequest::Unfreeze)?;
        outln!("{id} thawed")
    })
}

/// Does something with each machine that is named.
pub(crate) fn each(
    args: &Machines,
    what: impl Fn(&Places, &MachineId) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let ids = args.machines.iter().map(|machine| args.here.id(machine)).collect::<anyhow::Result<Vec<_>>>()?;
    several::each(&ids, |id| what(&places, id))
}

/// Asks, then waits until the machine is so.
fn settle(
    places: &Places,
    id: &MachineId,
    request: &ControlRequest,
    state: &str,
    is_so: impl Fn(&Status) -> bool,
) -> anyhow::Result<()> {
    if client::request(places, id, request)? == Outcome::AlreadySo {
        return outln!("{id} is {state} already");
    }
    let last = client::watch(places, id, |status| is_so(status) || status.ended.is_some())?;
    report(id, state, last, is_so, "the supervisor closed the connection")
}

/// Prints what became of a request; `otherwise` says why it was not done where the run goes on.
fn report(
    id: &MachineId,
    state: &str,
    last: Option<Status>,
    is_so: impl Fn(&Status) -> bool,
    otherwise: &str,
) -> anyhow::Result<()> {
    match last {
        Some(status) if is_so(&status) => outln!("{id} {state}"),
        Some(status) => {
            let why = status.ended.map_or_else(|| otherwise.into(), |ended| ended.message);
            Err(exit::exit_error(exit::REFUSED, format!("{id} was not {state}: {why}")))
        }
        None => Err(exit::exit_error(exit::FAILED, format!("the supervisor of {id} closed the connection"))),
    }
}
