//! `garboard stop` and `garboard restart`. A stop returns once the machine is gone and nothing of it is left, whichever of
//! its processes are dead.
//!
//! ```text
//!   shim alive ── request that no run follows, ask the supervisor (one that hangs is replaced)
//!                                                     ──► the shim clears everything away
//!   shim dead ─┬─ supervisor alive: ask it ──────────────────┐
//!              └─ else PID 1: SIGTERM, it powers down alone ──┴─► another shim clears everything away
//!   never one ─── a command was interrupted before it started any: its directory is removed
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use garboard_protocol::control::{ControlRequest, StopMode};
use garboard_shim_client::calls::{self, Reason};
use garboard_shim_client::directory::{self, Right};
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::processes::{self, MachineProcess};
use garboard_shim_client::request::LaunchRequest;
use garboard_shim_client::{lock, pause_briefly, pending_restart, request};
use nix::sys::signal::Signal;

use crate::args::{RestartArgs, StopArgs};
use crate::client;
use crate::exit::{self, FAILED, exit_error};
use crate::output::{note, outln};
use crate::simple;

/// A request that was accepted and is forgotten by a supervisor that dies at that moment is made again after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// How often a supervisor is asked that does not answer or dies.
const ATTEMPTS: u32 = 20;
/// How much longer than the grace period PID 1 gets to end QEMU by itself.
const MARGIN: Duration = Duration::from_secs(10);
/// How much longer than the grace period another command may take that starts the machine or ends it.
const OTHERS: Duration = Duration::from_secs(60);

/// `garboard stop MACHINE`.
pub(crate) fn run(args: &StopArgs) -> anyhow::Result<u8> {
    let mode = mode(args.force, args.grace_period);
    simple::each(&args.which, |places, id| match stop_for_good(places, id, mode)? {
        Stopped::Machine => outln!("{id} stopped"),
        Stopped::Leftover => outln!("{id} did not run; what an interrupted start had left of it was removed"),
    })
}

/// How it is asked for on the command line.
pub(crate) fn mode(force: bool, grace_period: Option<u64>) -> StopMode {
    if force { StopMode::Force } else { StopMode::Graceful { within_seconds: grace_period } }
}

/// `garboard restart MACHINE…`: each is stopped for good and started with the launch request that it had.
pub(crate) fn restart(args: &RestartArgs) -> anyhow::Result<u8> {
    let mode = mode(args.force, args.grace_period);
    simple::each(&args.which, |places, id| {
        let machine = places.machine(id);
        if !machine.exists() {
            let text = format!("there is no running machine {id}; start it with `garboard run FILE`");
            return Err(exit_error(exit::NOT_FOUND, text));
        }
        if request::path(&machine).is_none() {
            let text = format!(
                "{id} has no launch request to start it with again; `garboard stop {id}` removes what is left of it, `garboard run FILE` starts it"
            );
            return Err(exit_error(exit::REFUSED, text));
        }
        let request = LaunchRequest::read(&machine)?;
        stop_for_good(places, id, mode)?;
        crate::run::again(places, request)?;
        outln!("{id} was started again")
    })
}

/// What was there to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// A machine.
    Machine,
    /// A directory in which nothing had been started.
    Leftover,
}

/// Ends a machine of any run strategy; returns once nothing of it is left.
pub(crate) fn stop_for_good(places: &Places, id: &MachineId, mode: StopMode) -> anyhow::Result<Stopped> {
    let machine = places.machine(id);
    let was_there = machine.exists();
    // First, so that a run that ends by itself just now is the last one.
    pending_restart::request_stop(&machine)?;
    let mut asked = Asked::NotYet;
    for attempt in 0.. {
        if wait_for_pause(&machine) == Found::Gone && was_there {
            break;
        }
        let outcome = ask(places, id, mode, asked);
        // The right comes first: a `run` that starts this machine holds it until the shim has the lock.
        match (directory::leftover(&machine), lock::is_held(&machine)) {
            (Some(right), false) => return stop_orphan(places, id, mode, &right),
            (None, false) => wait_for_other_command(id, &machine)?,
            (_, true) => {}
        }
        let hangs = outcome.as_ref().is_err_and(client::is_silence);
        let gone = wait_a_while(places, id);
        match outcome {
            Ok(()) => asked = Asked::Yes,
            // A machine that is gone meanwhile is what was requested; one that was never there is not.
            Err(error) if gone && attempt == 0 && !was_there => return Err(error),
            Err(_) if gone => break,
            Err(_) if pending_restart::read(&machine).is_some() => {}
            Err(error) if attempt == ATTEMPTS || error.downcast_ref::<exit::ExitError>().is_some() => {
                return Err(error);
            }
            Err(_) => {}
        }
        if gone {
            break;
        }
        if hangs {
            note!("garboard: the supervisor of {id} does not answer and is replaced; the guest does not notice");
            processes::send(&processes::find(&machine, MachineProcess::Supervisor), Signal::SIGKILL);
        }
    }
    Ok(Stopped::Machine)
}

/// Another command starts the machine just now, or ends one whose shim is dead: until it has done so.
fn wait_for_other_command(id: &MachineId, machine: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(grace_seconds(machine).unwrap_or(0)) + OTHERS;
    while machine.exists() && !lock::is_held(machine) && directory::leftover(machine).is_none() {
        if Instant::now() >= deadline {
            let text =
                format!("another garboard command starts or ends {id} and does not get on with it; end that one first");
            return Err(exit_error(FAILED, text));
        }
        pause_briefly();
    }
    Ok(())
}

/// Where a machine is when no run follows its present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It was between two runs, or is gone for another reason.
    Gone,
    /// A run is going, or was just about to begin: it has to be stopped.
    Running,
}

/// Between two runs the shim reads the request.
fn wait_for_pause(machine: &Path) -> Found {
    while pending_restart::read(machine).is_some() && lock::is_held(machine) {
        pause_briefly();
    }
    if machine.exists() { Found::Running } else { Found::Gone }
}

/// Whether the supervisor has accepted the request of this command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Yes,
    NotYet,
}

/// Sends the request, unless it was accepted before.
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
    while machine.exists() && lock::is_held(&machine) && Instant::now() < deadline {
        pause_briefly();
    }
    !machine.exists()
}

/// Ends a machine whose shim is dead.
fn stop_orphan(places: &Places, id: &MachineId, mode: StopMode, right: &Right) -> anyhow::Result<Stopped> {
    let machine = places.machine(id);
    if request::path(&machine).is_none() {
        calls::clear_away(right)?;
        return Ok(Stopped::Leftover);
    }
    let mut reason = Reason::Left;
    if let Err(error) = stop_by_supervisor(places, id, mode) {
        tracing::debug!(%error, "no supervisor answers; the machine is stopped without one");
        match mode {
            StopMode::Force => reason = Reason::Forced,
            StopMode::Graceful { within_seconds } => {
                processes::send(&processes::find(&machine, MachineProcess::Init), Signal::SIGTERM);
                let grace = within_seconds.map_or_else(|| grace_seconds(&machine), Ok)?;
                // A process that goes on is killed with the rest.
                let _ = processes::wait_for_end(&machine, MachineProcess::Init, Duration::from_secs(grace) + MARGIN);
            }
        }
    }
    match calls::delete(&machine, reason) {
        // Another stop was quicker.
        Err(_) if !right.is_there() => Ok(Stopped::Machine),
        done => Ok(done.map(|()| Stopped::Machine)?),
    }
}

/// How long the guest of a machine may take to power down.
fn grace_seconds(machine: &Path) -> anyhow::Result<u64> {
    Ok(LaunchRequest::read(machine)?.grace_seconds)
}

/// The end of the run, by a supervisor whose shim is dead.
fn stop_by_supervisor(places: &Places, id: &MachineId, mode: StopMode) -> anyhow::Result<()> {
    ask(places, id, mode, Asked::NotYet)?;
    let last = client::watch(places, id, |status| status.ended.is_some())?;
    match last {
        Some(status) if status.ended.is_some() => Ok(()),
        _ => Err(exit_error(FAILED, format!("the supervisor of {id} closed the connection"))),
    }
}
