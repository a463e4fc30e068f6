//! What `garboard run` does once the shim has begun: it waits for the guest, stays attached from run to run, and prints
//! how it ended.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_common::journal;
use garboard_protocol::control::{ConsoleAccess, Ended, ReportedPhase, Status, StopMode};
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::request::LaunchRequest;
use garboard_shim_client::{calls, lock, pending_restart};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::client;
use crate::console::{self, AttachmentEnd};
use crate::exit::{self, FAILED, GUEST_FAILED, exit_error};
use crate::output::note;

/// How long a supervisor may report a machine as running whose console is closed: QEMU's end is not noticed at once, and a
/// supervisor that died needs a successor.
const LAST_STATUS: Duration = Duration::from_secs(5);

/// How the wait for a guest that runs ended.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// It runs.
    Running,
    /// The machine is gone for good; the last status of its supervisor, if one was received.
    Over(Option<Box<Ended>>),
    /// One of the awaited signals came.
    Signalled,
}

/// `--detach`: returns once the guest runs. `signals` are blocked by the caller.
pub(crate) fn started(places: &Places, request: &LaunchRequest, signals: &SigSet) -> anyhow::Result<Started> {
    let id = request.id();
    match first_start(places, request, signals)? {
        Found::Running => Ok(Started::Runs),
        Found::Over(ended) => fail(&id, ended.or_else(|| recorded_end(request))).map(Started::Ended),
        Found::Signalled => stop(places, request).map(Started::Ended),
    }
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// The guest runs.
    Runs,
    /// It was stopped before; the code to end with.
    Ended(u8),
}

/// Attached until the machine ends for good, the user detaches, or a signal asks to power it down.
pub(crate) fn attend(places: &Places, request: &LaunchRequest, signals: &SigSet) -> anyhow::Result<u8> {
    let id = request.id();
    match first_start(places, request, signals)? {
        Found::Running => {}
        Found::Over(ended) => return fail(&id, ended.or_else(|| recorded_end(request))),
        Found::Signalled => return stop(places, request),
    }
    if std::io::stderr().is_terminal() {
        note!("{id} was started; Ctrl-] detaches\r");
    }
    let mut run = Some(request.record.clone());
    loop {
        match console::attend(places, &id, ConsoleAccess::Write, signals) {
            Ok(AttachmentEnd::Detached) => {
                note!(
                    "\r\ndetached; {id} runs on: `garboard console {id}` attaches again, `garboard stop {id}` ends it"
                );
                return Ok(exit::OK);
            }
            Ok(AttachmentEnd::Signalled) => return stop(places, request),
            Ok(AttachmentEnd::MachineEnded) => {}
            // The run may end during the attach.
            Err(error) if shim_lives(places, &id) => tracing::debug!(error = format!("{error:#}"), "attach failed"),
            Err(error) => return Err(error),
        }
        match follow(places, &id, run.as_deref(), signals)? {
            Found::Running => run = tell_run(places, &id, run),
            Found::Over(ended) => return conclude(request, ended.map(|ended| *ended)),
            Found::Signalled => return stop(places, request),
        }
    }
}

/// Waits until the guest runs, or has failed to.
fn first_start(places: &Places, request: &LaunchRequest, signals: &SigSet) -> anyhow::Result<Found> {
    let id = request.id();
    let status = match client::watch(places, &id, |status| status.phase != ReportedPhase::Scheduled) {
        // The run can be over by now, or between two runs; then the record has the cause.
        Err(_) if !shim_lives(places, &id) || pending_restart::read(&request.machine).is_some() => None,
        Err(error) => {
            calls::give_up(&request.machine)?;
            return Err(error);
        }
        Ok(status) => status,
    };
    match status {
        Some(status) if status.phase == ReportedPhase::Running => Ok(Found::Running),
        // It ended meanwhile; the shim's record shows whether another run follows.
        other => match follow(places, &id, None, signals)? {
            Found::Over(ended) => {
                Ok(Found::Over(ended.or_else(|| other.and_then(|status: Status| status.ended).map(Box::new))))
            }
            found @ (Found::Running | Found::Signalled) => Ok(found),
        },
    }
}

/// Prints what the console is attached to now, and which run that is. The pause between two runs may have been too short to
/// be seen, so the end of the last one is printed here.
fn tell_run(places: &Places, id: &MachineId, before: Option<PathBuf>) -> Option<PathBuf> {
    let run = calls::present_run(&places.machine(id));
    let ended = before.as_deref().filter(|_| run != before).and_then(end_of);
    let what = match ended {
        Some(ended) => format!("runs again; {}", ended.message),
        None if run == before => "is attached to again".to_owned(),
        None => "runs again".to_owned(),
    };
    note!("\r\ngarboard: {id} {what}\r");
    run
}

/// Looks until the machine runs, is gone, or a signal comes; prints a pause between two runs once. The run `before` was
/// attached to and lost: its supervisor's status counts only if it stays so.
fn follow(places: &Places, id: &MachineId, before: Option<&Path>, signals: &SigSet) -> anyhow::Result<Found> {
    let begun = Instant::now();
    let machine = places.machine(id);
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut printed = None;
    let mut ended = None;
    while machine.exists() {
        if !lock::is_held(&machine) {
            let gone = calls::wait_until_gone(&machine);
            gone.with_context(|| {
                format!("the shim of {id} was killed, and what it has left could not be cleared away")
            })?;
            break;
        }
        match pending_restart::read(&machine) {
            Some(pause) => {
                if printed != Some(pause.again_at_ms) {
                    printed = Some(pause.again_at_ms);
                    note!("\r\ngarboard: {id}: {}\r", pause.summary());
                }
            }
            None => match client::status_now(places, id) {
                Some(status) if status.phase == ReportedPhase::Running => {
                    let is_new = before.is_none() || calls::present_run(&machine).as_deref() != before;
                    if is_new || begun.elapsed() > LAST_STATUS {
                        return Ok(Found::Running);
                    }
                }
                Some(status) => ended = status.ended.map(Box::new).or(ended),
                None => {}
            },
        }
        if signalled(&signals)? {
            return Ok(Found::Signalled);
        }
    }
    Ok(Found::Over(ended))
}

/// Waits a moment for one of the signals.
fn signalled(signals: &SignalFd) -> anyhow::Result<bool> {
    use std::os::fd::AsFd;
    let mut watched = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::from(20_u8)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(watched[0].any().unwrap_or(false)),
        Err(errno) => Err(errno.into()),
    }
}

fn shim_lives(places: &Places, id: &MachineId) -> bool {
    lock::is_held(&places.machine(id))
}

/// Ends the machine for good, also between two runs.
fn stop(places: &Places, request: &LaunchRequest) -> anyhow::Result<u8> {
    let id = request.id();
    note!("\r\npowering {id} down, at most {} s", request.grace_seconds);
    crate::stop::stop_for_good(places, &id, StopMode::Graceful { within_seconds: None })?;
    conclude(request, None)
}

fn fail(id: &MachineId, ended: Option<impl Into<Box<Ended>>>) -> anyhow::Result<u8> {
    let text = match ended.map(Into::into) {
        Some(ended) => {
            let output = ended.report.map(|report| report.last_output).unwrap_or_default();
            let output = if output.is_empty() { String::new() } else { format!("\n{output}") };
            format!("{id} could not be started: {}{output}", ended.message)
        }
        None => format!("{id} could not be started; see `garboard logs --last {id}`"),
    };
    Err(exit_error(FAILED, text))
}

/// The machine is gone: prints how its last run ended.
fn conclude(request: &LaunchRequest, ended: Option<Ended>) -> anyhow::Result<u8> {
    let id = request.id();
    match recorded_end(request).map(|ended| *ended).or(ended) {
        Some(ended) if ended.cause.is_success() => {
            note!("{id}: {}", ended.message);
            Ok(exit::OK)
        }
        Some(ended) => Err(exit_error(GUEST_FAILED, format!("{id}: {}", ended.message))),
        None => {
            let records = last_record(request).unwrap_or_else(|| request.record.clone());
            Err(exit_error(FAILED, format!("{id} ended and the cause was not recorded; see {}", records.display())))
        }
    }
}

fn recorded_end(request: &LaunchRequest) -> Option<Box<Ended>> {
    end_of(&last_record(request)?)
}

/// How a recorded run ended.
fn end_of(record: &Path) -> Option<Box<Ended>> {
    journal::read(record).ok().flatten()?.ended.map(Box::new)
}

/// The record of the last run: the shim begins a new one with each.
fn last_record(request: &LaunchRequest) -> Option<PathBuf> {
    let runs = std::fs::read_dir(request.record.parent()?).ok()?.flatten().map(|entry| entry.path());
    runs.filter(|run| *run >= request.record).max()
}
