//! From one state to the next. Total: every state meets every event.

use garboard_protocol::control::{Ended, PauseReason, StopMode};
use garboard_protocol::exit::{ExitCause, ExitReport, explain, told};

use super::{Asked, Effect, Event, Life, OnReady, Request, RunState, ShutdownReason, State, Vcpus};

/// How long QEMU may take to follow `quit` before PID 1 kills it: it flushes disks on the way out.
const QUIT_PATIENCE_MS: i64 = 10_000;

/// Moves the machine by one event at the time `now_ms` (milliseconds since 1970) and says what is to be done.
#[must_use]
pub fn step(life: &mut Life, event: Event, now_ms: i64) -> Vec<Effect> {
    let state = std::mem::replace(&mut life.state, State::Preparing);
    let (state, effects) = match event {
        Event::QemuGone(report) => gone(life, state, *report, now_ms),
        Event::PreparationFailed(message) => failed(state, message, now_ms),
        Event::Requested(request) => requested(life, state, request, now_ms),
        Event::TimePassed => time_passed(life, state, now_ms),
        Event::Spawned => spawned(state),
        Event::MonitorReady { run_state, on_ready } => ready(life, state, run_state, on_ready, now_ms),
        Event::WasReset => {
            life.memory.resets += 1;
            (state, Vec::new())
        }
        Event::VcpusStopped { run_state } => held(life, state, run_state, now_ms),
        Event::VcpusResumed => (with_vcpus(state, Vcpus::Running, Overwrite::Yes), Vec::new()),
        Event::StoppedByIoError => held(life, state, RunState::IoError, now_ms),
        Event::Shutdown { reason } => {
            note_shutdown(life, reason);
            (state, Vec::new())
        }
        Event::Panicked => held(life, state, RunState::GuestPanicked, now_ms),
        Event::WatchdogFired => held(life, state, RunState::Watchdog, now_ms),
    };
    life.state = state;
    effects
}

fn note_shutdown(life: &mut Life, reason: ShutdownReason) {
    let hints = &mut life.memory.hints;
    match reason {
        ShutdownReason::Guest => hints.guest_shutdown = true,
        ShutdownReason::GuestReset => hints.guest_reboot = true,
        ShutdownReason::GuestPanic => hints.guest_panicked = true,
        ShutdownReason::Host => {}
    }
}

fn spawned(state: State) -> (State, Vec<Effect>) {
    match state {
        State::Preparing => (State::Launched, Vec::new()),
        // A stop overtook the launch; it goes on as soon as the monitor answers.
        State::Launched | State::Running { .. } | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
            (state, Vec::new())
        }
    }
}

fn ready(life: &mut Life, state: State, run: RunState, on_ready: OnReady, now_ms: i64) -> (State, Vec<Effect>) {
    match state {
        State::Preparing | State::Launched | State::Running { .. } => match (run, on_ready) {
            (RunState::GuestPanicked | RunState::Watchdog | RunState::Shutdown | RunState::InternalError, _) => {
                held(life, State::Running { vcpus: Vcpus::Running }, run, now_ms)
            }
            (RunState::Paused, OnReady::LetRun) => (State::Running { vcpus: Vcpus::Running }, vec![Effect::LetRun]),
            (RunState::Paused, OnReady::Leave) => (stopped(PauseReason::PausedByUser), Vec::new()),
            (RunState::IoError, _) => (stopped(PauseReason::PausedIOError), Vec::new()),
            (RunState::Running, _) => (State::Running { vcpus: Vcpus::Running }, Vec::new()),
        },
        State::Stopping { force_at_ms, asked: Asked::NotYet } => {
            (State::Stopping { force_at_ms, asked: Asked::Yes }, vec![Effect::LetRun, Effect::AskGuest])
        }
        State::Stopping { asked: Asked::Yes, .. } => (state, vec![Effect::AskGuest]),
        State::Ending { .. } => (state, vec![Effect::Quit]),
        State::Ended(_) => (state, Vec::new()),
    }
}

/// QEMU holds the vCPUs. Where nobody can let them run again, the run is over.
fn held(life: &mut Life, state: State, run: RunState, now_ms: i64) -> (State, Vec<Effect>) {
    match run {
        RunState::GuestPanicked => {
            life.memory.hints.guest_panicked = true;
            quit(state, now_ms)
        }
        RunState::Watchdog => {
            life.memory.hints.watchdog = true;
            quit(state, now_ms)
        }
        RunState::InternalError => {
            life.memory.hints.internal_error = true;
            quit(state, now_ms)
        }
        RunState::Shutdown => quit(state, now_ms),
        RunState::IoError => {
            (with_vcpus(state, Vcpus::Stopped(PauseReason::PausedIOError), Overwrite::Yes), Vec::new())
        }
        RunState::Paused => (with_vcpus(state, Vcpus::Stopped(PauseReason::PausedByUser), Overwrite::No), Vec::new()),
        // They ran again before it could be asked; `RESUME` says so, in its order.
        RunState::Running => (state, Vec::new()),
    }
}

fn stopped(reason: PauseReason) -> State {
    State::Running { vcpus: Vcpus::Stopped(reason) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Yes,
    No,
}

/// QEMU says `STOP` also when an I/O error stopped it: the better reason stays.
fn with_vcpus(state: State, now: Vcpus, overwrite: Overwrite) -> State {
    match state {
        State::Running { vcpus: Vcpus::Running } => State::Running { vcpus: now },
        State::Running { vcpus } => State::Running { vcpus: if overwrite == Overwrite::Yes { now } else { vcpus } },
        State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => state,
    }
}

fn quit(state: State, now_ms: i64) -> (State, Vec<Effect>) {
    match state {
        State::Running { .. } | State::Stopping { .. } | State::Launched => {
            let kill_at_ms = now_ms + QUIT_PATIENCE_MS;
            (State::Ending { kill_at_ms }, vec![Effect::Quit, Effect::WakeAt { at_ms: kill_at_ms }])
        }
        State::Preparing | State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

fn requested(life: &mut Life, state: State, request: Request, now_ms: i64) -> (State, Vec<Effect>) {
    match request {
        Request::Stop(StopMode::Force) => {
            life.memory.hints.force_requested = true;
            end_now(state, now_ms)
        }
        Request::Stop(StopMode::Graceful { within_seconds }) => {
            life.memory.hints.stop_requested = true;
            let grace_ms = within_seconds.map_or(life.grace_ms, |seconds| {
                i64::try_from(seconds).unwrap_or(i64::MAX / 2000).saturating_mul(1000)
            });
            stop(life, state, grace_ms, now_ms)
        }
        Request::Pause => match state {
            State::Running { vcpus: Vcpus::Running } => (stopped(PauseReason::PausedByUser), vec![Effect::StopVcpus]),
            _not_running @ (State::Running { .. }
            | State::Preparing
            | State::Launched
            | State::Stopping { .. }
            | State::Ending { .. }
            | State::Ended(_)) => (_not_running, Vec::new()),
        },
        Request::Unpause => match state {
            State::Running { .. } => (State::Running { vcpus: Vcpus::Running }, vec![Effect::LetRun]),
            State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
                (state, Vec::new())
            }
        },
        Request::Reset => match state {
            State::Running { .. } => (state, vec![Effect::Reset]),
            State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
                (state, Vec::new())
            }
        },
    }
}

fn stop(life: &mut Life, state: State, grace_ms: i64, now_ms: i64) -> (State, Vec<Effect>) {
    let wanted = now_ms.saturating_add(grace_ms.max(0));
    match state {
        State::Preparing | State::Launched => {
            let effects = vec![Effect::TellInit { force_at_ms: wanted }, Effect::WakeAt { at_ms: wanted }];
            (State::Stopping { force_at_ms: wanted, asked: Asked::NotYet }, effects)
        }
        State::Running { .. } if grace_ms <= 0 => {
            life.memory.hints.grace_exceeded = true;
            end_now(state, now_ms)
        }
        State::Running { vcpus } => {
            let mut effects = vec![Effect::TellInit { force_at_ms: wanted }, Effect::WakeAt { at_ms: wanted }];
            if vcpus != Vcpus::Running {
                effects.push(Effect::LetRun);
            }
            effects.push(Effect::AskGuest);
            (State::Stopping { force_at_ms: wanted, asked: Asked::Yes }, effects)
        }
        // Asked again: a shorter time counts, a longer one does not; the guest is asked once more, since
        // some ignore the first button.
        State::Stopping { force_at_ms, asked } => {
            let force_at_ms = force_at_ms.min(wanted);
            let effects =
                vec![Effect::TellInit { force_at_ms }, Effect::WakeAt { at_ms: force_at_ms }, Effect::AskGuest];
            (State::Stopping { force_at_ms, asked }, effects)
        }
        State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

/// Ends QEMU without asking the guest. Before its monitor is there only PID 1 can do it.
fn end_now(state: State, now_ms: i64) -> (State, Vec<Effect>) {
    let kill_at_ms = now_ms + QUIT_PATIENCE_MS;
    match state {
        State::Preparing | State::Launched => (State::Ending { kill_at_ms }, vec![Effect::Kill]),
        State::Running { .. } | State::Stopping { .. } => quit(state, now_ms),
        State::Ending { .. } => (State::Ending { kill_at_ms }, vec![Effect::Kill]),
        State::Ended(_) => (state, Vec::new()),
    }
}

fn time_passed(life: &mut Life, state: State, now_ms: i64) -> (State, Vec<Effect>) {
    match state {
        State::Stopping { force_at_ms, .. } if force_at_ms <= now_ms => {
            life.memory.hints.grace_exceeded = true;
            quit(state, now_ms)
        }
        State::Ending { kill_at_ms } if kill_at_ms <= now_ms => (state, vec![Effect::Kill]),
        State::Preparing
        | State::Launched
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Ending { .. }
        | State::Ended(_) => (state, Vec::new()),
    }
}

fn gone(life: &Life, state: State, report: ExitReport, now_ms: i64) -> (State, Vec<Effect>) {
    if let State::Ended(_) = state {
        return (state, Vec::new());
    }
    let cause = explain(&report, life.memory.hints);
    (ended(cause, Some(report), now_ms), vec![Effect::Finish])
}

fn failed(state: State, message: String, now_ms: i64) -> (State, Vec<Effect>) {
    match state {
        State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } => {
            (ended(ExitCause::NotStarted { message }, None, now_ms), vec![Effect::Kill, Effect::Finish])
        }
        State::Running { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

fn ended(cause: ExitCause, report: Option<ExitReport>, at_ms: i64) -> State {
    let sentence = told(&cause, report.as_ref());
    State::Ended(Box::new(Ended { cause, sentence, report, at_ms }))
}

#[cfg(test)]
mod tests;
