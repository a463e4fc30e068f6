//! `garboard stop` and `garboard restart`. A stop returns once the machine is gone and nothing of it is left, whoever of its processes is dead.
//!
//! ```text
//!   keeper alive ── wish that no run follows, ask the supervisor (one that hangs is replaced)
//!                                                     ──► the keeper clears everything away
//!   keeper dead ─┬─ supervisor alive: ask it ──────────────────┐
//!                └─ else PID 1: SIGTERM, it powers down alone ──┴─► we clear everything away
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_protocol::control::{ControlRequest, StopMode};
use nix::sys::signal::Signal;

use crate::args::{RestartArgs, StopArgs};
use crate::client;
use crate::exit::{self, FAILED, complaint};
use crate::keeper::order::Order;
use crate::keeper::processes::{self, Part};
use crate::keeper::{self, between, last_word};
use crate::output::{note, outln};
use crate::places::{MachineId, Places};
use crate::simple;

/// A request that was accepted and is forgotten by a supervisor that dies at that moment is made again after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// How often a supervisor is asked that does not answer or dies.
const ATTEMPTS: u32 = 20;
/// How much longer than the grace period PID 1 gets to end QEMU by itself.
const MARGIN: Duration = Duration::from_secs(10);

/// `garboard stop MACHINE`.
pub(crate) fn run(args: &StopArgs) -> anyhow::Result<u8> {
    let mode = mode(args.force, args.grace_period);
    simple::each(&args.which, |places, id| {
        stop_for_good(places, id, mode)?;
        outln!("{id} stopped")
    })
}

/// How it is asked for on the command line.
pub(crate) fn mode(force: bool, grace_period: Option<u64>) -> StopMode {
    if force { StopMode::Force } else { StopMode::Graceful { within_seconds: grace_period } }
}

/// `garboard restart MACHINE…`: each is stopped for good and started with the order that its keeper had.
pub(crate) fn restart(args: &RestartArgs) -> anyhow::Result<u8> {
    let mode = mode(args.force, args.grace_period);
    simple::each(&args.which, |places, id| {
        let machine = places.machine(id);
        if !machine.exists() {
            let text = format!("there is no running machine {id}; start it with `garboard run FILE`");
            return Err(complaint(exit::NOT_FOUND, text));
        }
        let order = order_of(&machine)?;
        stop_for_good(places, id, mode)?;
        crate::run::again(places, order)?;
        outln!("{id} was started again")
    })
}

/// What a machine's keeper was ordered to do.
fn order_of(machine: &Path) -> anyhow::Result<Order> {
    let path = machine.join(keeper::ORDER);
    let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is of another version of garboard", path.display()))
}

/// Ends a machine whatever its run strategy is; returns once nothing of it is left.
pub(crate) fn stop_for_good(places: &Places, id: &MachineId, mode: StopMode) -> anyhow::Result<()> {
    let machine = places.machine(id);
    let was_there = machine.exists();
    // First, so that a run that ends by itself just now is the last one.
    between::wish_it_down(&machine)?;
    let mut asked = Asked::NotYet;
    for attempt in 0.. {
        if wait_for_wish(&machine) == Heard::AndGone && was_there {
            return Ok(());
        }
        let outcome = ask(places, id, mode, asked);
        if machine.exists() && !keeper::keeper_is_alive(&machine) {
            return stop_orphan(places, id, mode);
        }
        let hangs = outcome.as_ref().is_err_and(client::is_silence);
        let gone = wait_a_while(places, id);
        match outcome {
            Ok(()) => asked = Asked::Yes,
            // Gone while we asked is what was wanted; never there is not.
            Err(error) if gone => return if attempt == 0 && !was_there { Err(error) } else { Ok(()) },
            Err(_) if between::read(&machine).is_some() => {}
            Err(error) if attempt == ATTEMPTS || error.downcast_ref::<exit::Complaint>().is_some() => {
                return Err(error);
            }
            Err(_) => {}
        }
        if gone {
            break;
        }
        if hangs {
            note!("garboard: the supervisor of {id} does not answer and is replaced; the guest does not notice");
            processes::send(&processes::find(&machine, Part::Supervisor), Signal::SIGKILL);
        }
    }
    Ok(())
}

/// What became of the wish that no run follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The machine was between two runs, or is gone for another reason.
    AndGone,
    /// A run is going, or was just about to begin: it has to be stopped.
    DuringRun,
}

/// Between two runs it is the keeper that hears the wish.
fn wait_for_wish(machine: &Path) -> Heard {
    while between::read(machine).is_some() && keeper::keeper_is_alive(machine) {
        keeper::pause_briefly();
    }
    if machine.exists() { Heard::DuringRun } else { Heard::AndGone }
}

/// Whether this command was heard before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Yes,
    NotYet,
}

/// Asks, but not twice for the same.
fn ask(places: &Places, id: &MachineId, mode: StopMode, asked: Asked) -> anyhow::Result<()> {
    let status = client::status(places, id)?;
    if status.ended.is_some() || status.stopping && asked == Asked::Yes {
        return Ok(());
    }
    client::request(places, id, &ControlRequest::Stop { mode }).map(|_| ())
}

/// Whether the machine is gone.
fn wait_a_while(places: &Places, id: &MachineId) -> bool {
    let machine = places.machine(id);
    let deadline = Instant::now() + FORGOTTEN_AFTER;
    while machine.exists() && keeper::keeper_is_alive(&machine) && Instant::now() < deadline {
        keeper::pause_briefly();
    }
    !machine.exists()
}

fn stop_orphan(places: &Places, id: &MachineId, mode: StopMode) -> anyhow::Result<()> {
    let machine = places.machine(id);
    if let Err(error) = stop_by_supervisor(places, id, mode) {
        tracing::debug!(%error, "no supervisor stops the machine");
        match mode {
            StopMode::Force => last_word::note_force(&places.layout(id)),
            StopMode::Graceful { within_seconds } => {
                let grace =
                    within_seconds.map_or_else(|| keeper::grace(&machine), |seconds| Ok(Duration::from_secs(seconds)));
                processes::send(&processes::find(&machine, Part::Init), Signal::SIGTERM);
                processes::wait_for_end(&machine, Part::Init, grace? + MARGIN);
            }
        }
    }
    keeper::clean_up_orphan(places, id)
}

/// The end of the run, by a supervisor whose keeper is dead.
fn stop_by_supervisor(places: &Places, id: &MachineId, mode: StopMode) -> anyhow::Result<()> {
    ask(places, id, mode, Asked::NotYet)?;
    let last = client::watch(places, id, |status| status.ended.is_some())?;
    match last {
        Some(status) if status.ended.is_some() => Ok(()),
        _ => Err(complaint(FAILED, format!("the supervisor of {id} went away"))),
    }
}
