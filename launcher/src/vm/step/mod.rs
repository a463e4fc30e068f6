//! From one state to the next. Total: every state meets every event.

use std::time::Duration;

use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{Ended, PauseReason, StopMode};
use garboard_protocol::exit::{ExitCause, ExitReport, explain, explain_lost, full_message};

use super::{
    Effect, Event, Life, Now, OnReady, PowerDownMethod, PowerDownRequest, RebootStep, RunState, ShutdownKind, State,
    Vcpus,
};

mod freeze;
mod soft_reboot;

/// How long QEMU may take to follow `quit`, or to leave on its own, before PID 1 kills it: it flushes disks on the way out. PID 1's
/// own patience (`init/watch.rs`) is longer.
pub const QUIT_PATIENCE: Duration = Duration::from_secs(10);
const QUIT_PATIENCE_MS: i64 = QUIT_PATIENCE.as_secs() as i64 * 1000;
/// How long until a guest that was asked to power down is asked again: firmware ignores the power button, and so does an
/// operating system that is still booting.
const ASK_AGAIN_MS: i64 = 10_000;

/// Moves the machine by one event at the time `now` and returns what is to be done.
#[must_use]
pub fn step(life: &mut Life, event: Event, now: Now) -> Vec<Effect> {
    let state = std::mem::replace(&mut life.state, State::Preparing);
    let (state, effects) = match event {
        Event::QemuGone(report) => gone(life, state, *report, now),
        Event::Lost => lost(life, state, now),
        Event::PreparationFailed(message) => failed(state, message, now),
        Event::Requested(request) => requested(life, state, request, now),
        Event::TimePassed => time_passed(life, state, now),
        Event::Spawned => spawned(state),
        Event::MonitorReady { run_state, on_ready } => ready(life, state, run_state, on_ready, now),
        Event::WasReset => {
            life.memory.resets += 1;
            freeze::thawed(life);
            (state, soft_reboot::was_reset(life))
        }
        Event::VcpusStopped { run_state } => match soft_reboot::held(life, run_state, now) {
            Some(effects) => (state, effects),
            None => held(life, state, run_state, now),
        },
        Event::VcpusResumed => resumed(life, state, now),
        Event::StoppedByIoError(error) => {
            if is_retried(life, &state) {
                life.memory.io.stopped(Some(error), now.boot_ms);
            }
            held(life, state, RunState::IoError, now)
        }
        Event::Shutdown { kind } if soft_reboot::is_answer(life, &state, kind) => soft_reboot::is_off(life, state, now),
        Event::Shutdown { kind } => {
            note_shutdown(life, kind);
            leave(state, now)
        }
        Event::Panicked => held(life, state, RunState::GuestPanicked, now),
        Event::WatchdogFired => held(life, state, RunState::Watchdog, now),
        Event::AgentDidNotReboot => soft_reboot::without_agent(life, state),
        Event::ButtonNotPressed => soft_reboot::not_pressed(life, state),
        Event::Froze => {
            let effects = freeze::froze(life, &state);
            (state, effects)
        }
        Event::DidNotFreeze { may_have_frozen } => {
            freeze::did_not_freeze(life, may_have_frozen, now);
            (state, Vec::new())
        }
        Event::Thawed => {
            freeze::thawed(life);
            (state, Vec::new())
        }
        // It is tried again when its time comes.
        Event::DidNotThaw => (state, Vec::new()),
        Event::FreezeReported { frozen } => {
            life.memory.frozen = frozen;
            (state, Vec::new())
        }
    };
    // A stop, and every other end, precedes it.
    if !matches!(state, State::Launched | State::Running { .. }) {
        life.memory.soft_reboot = None;
        life.memory.freeze = None;
    }
    life.state = state;
    effects
}

fn note_shutdown(life: &mut Life, kind: ShutdownKind) {
    let hints = &mut life.memory.hints;
    hints.leaving = true;
    match kind {
        ShutdownKind::Guest => hints.guest_shutdown = true,
        ShutdownKind::GuestReset => hints.guest_reboot = true,
        ShutdownKind::GuestPanic => hints.guest_panicked = true,
        ShutdownKind::Host => {}
    }
}

/// QEMU leaves on its own. It may hang on its way out, and answers nothing then: a machine must not wait for that.
fn leave(state: State, now: Now) -> (State, Vec<Effect>) {
    match state {
        State::Launched | State::Running { .. } | State::Stopping { .. } => {
            let kill_at_ms = now.boot_ms.saturating_add(QUIT_PATIENCE_MS);
            (State::Ending { kill_at_ms }, vec![Effect::TellInit { by_ms: kill_at_ms }])
        }
        State::Preparing | State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
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

fn ready(life: &mut Life, state: State, run: RunState, on_ready: OnReady, now: Now) -> (State, Vec<Effect>) {
    life.memory.has_run |= run != RunState::Prelaunch;
    match state {
        State::Preparing | State::Launched | State::Running { .. } => found(life, run, on_ready, now),
        State::Stopping { force_at_ms, .. } => match run {
            // There is no guest to ask: it is not booted only to be switched off.
            RunState::Prelaunch => quit(state, now),
            RunState::GuestPanicked | RunState::Watchdog | RunState::Shutdown | RunState::InternalError => {
                held(life, state, run, now)
            }
            RunState::Running | RunState::Other => ask(life, force_at_ms, Vec::new(), now),
            RunState::Paused | RunState::IoError => ask(life, force_at_ms, vec![Effect::LetRun], now),
        },
        State::Ending { .. } => (state, vec![Effect::Quit]),
        State::Ended(_) => (state, Vec::new()),
    }
}

/// The state of a QEMU that is not being stopped.
fn found(life: &mut Life, run: RunState, on_ready: OnReady, now: Now) -> (State, Vec<Effect>) {
    let running = State::Running { vcpus: Vcpus::Running };
    if let Some(effects) = soft_reboot::found(life, run, now) {
        let is_held = life.memory.paused_by_user && matches!(run, RunState::Shutdown | RunState::Prelaunch);
        return (if is_held { stopped(PauseReason::PausedByUser) } else { running }, effects);
    }
    match (run, on_ready) {
        (RunState::GuestPanicked | RunState::Watchdog | RunState::Shutdown | RunState::InternalError, _) => {
            held(life, running, run, now)
        }
        (RunState::Prelaunch, OnReady::LetRun) => (running, vec![Effect::LetRun]),
        (RunState::Prelaunch, OnReady::Leave) | (RunState::Paused, _) => {
            (stopped(PauseReason::PausedByUser), Vec::new())
        }
        (RunState::IoError, _) if life.memory.paused_by_user => (stopped(PauseReason::PausedByUser), Vec::new()),
        (RunState::IoError, _) => held(life, running, run, now),
        (RunState::Running | RunState::Other, _) => (running, Vec::new()),
    }
}

/// The guest is asked, and will be again.
fn ask(life: &Life, force_at_ms: i64, mut first: Vec<Effect>, now: Now) -> (State, Vec<Effect>) {
    let way = if life.has_acpi { PowerDownMethod::AgentFirst } else { PowerDownMethod::Agent };
    first.extend([Effect::TellInit { by_ms: force_at_ms }, Effect::AskGuest(way)]);
    (State::Stopping { force_at_ms, asked: asked(now) }, first)
}

/// A guest that has not powered down yet is asked once more. Without ACPI its agent may have come only now.
fn ask_again(life: &Life) -> Effect {
    Effect::AskGuest(if life.has_acpi { PowerDownMethod::Button } else { PowerDownMethod::Agent })
}

/// The guest has had its time. One without ACPI cannot power off at all, and as in KubeVirt (`isACPIEnabled` in
/// `pkg/virt-handler/vm.go`) its end is none that failed.
fn note_end_of_grace(life: &mut Life) {
    let hints = &mut life.memory.hints;
    if life.has_acpi { hints.grace_exceeded = true } else { hints.without_acpi = true }
}

fn asked(now: Now) -> PowerDownRequest {
    PowerDownRequest::Sent { again_at_ms: now.boot_ms.saturating_add(ASK_AGAIN_MS) }
}

/// QEMU holds the vCPUs. Where no command can resume them, the run is over.
fn held(life: &mut Life, state: State, run: RunState, now: Now) -> (State, Vec<Effect>) {
    match run {
        RunState::GuestPanicked => {
            life.memory.hints.guest_panicked = true;
            quit(state, now)
        }
        RunState::Watchdog => {
            life.memory.hints.watchdog = true;
            quit(state, now)
        }
        RunState::InternalError => {
            life.memory.hints.internal_error = true;
            quit(state, now)
        }
        RunState::Shutdown => match state {
            // It reported its end, and a client makes it stay (`set-action`).
            State::Ending { .. } => (state, vec![Effect::Quit]),
            State::Preparing | State::Launched | State::Running { .. } | State::Stopping { .. } | State::Ended(_) => {
                quit(state, now)
            }
        },
        RunState::IoError => held_by_io_error(life, state, now),
        RunState::Paused | RunState::Prelaunch => {
            let state = with_vcpus(state, Vcpus::Stopped(PauseReason::PausedByUser), Overwrite::No);
            // It ran on for a moment, by the command before.
            life.memory.paused_by_user |= state == stopped(PauseReason::PausedByUser);
            (state, Vec::new())
        }
        // Running: they ran again before it could be asked; `RESUME` reports it, in its order.
        RunState::Running | RunState::Other => (state, Vec::new()),
    }
}

/// Storage may recover: the guest is resumed after a while. A user's pause takes precedence.
fn held_by_io_error(life: &mut Life, state: State, now: Now) -> (State, Vec<Effect>) {
    if !is_retried(life, &state) {
        return (state, Vec::new());
    }
    if life.memory.io.at_ms().is_none() {
        life.memory.io.stopped(None, now.boot_ms);
    }
    (with_vcpus(state, Vcpus::Stopped(PauseReason::PausedIOError), Overwrite::Yes), Vec::new())
}

/// Whether a guest that an I/O error stops is to be resumed.
fn is_retried(life: &Life, state: &State) -> bool {
    match state {
        State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) } => !life.memory.paused_by_user,
        State::Running { vcpus: Vcpus::Running | Vcpus::Stopped(PauseReason::PausedIOError) } => true,
        State::Stopping { .. } => true,
        State::Preparing | State::Launched | State::Ending { .. } | State::Ended(_) => false,
    }
}

fn resumed(life: &mut Life, state: State, now: Now) -> (State, Vec<Effect>) {
    life.memory.has_run = true;
    life.memory.paused_by_user = false;
    life.memory.io.resumed(now.boot_ms);
    (with_vcpus(state, Vcpus::Running, Overwrite::Yes), Vec::new())
}

fn stopped(reason: PauseReason) -> State {
    State::Running { vcpus: Vcpus::Stopped(reason) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Yes,
    No,
}

/// QEMU sends `STOP` also when an I/O error stopped it: the better reason stays.
fn with_vcpus(state: State, now: Vcpus, overwrite: Overwrite) -> State {
    match state {
        State::Running { vcpus: Vcpus::Running } => State::Running { vcpus: now },
        State::Running { vcpus } => State::Running { vcpus: if overwrite == Overwrite::Yes { now } else { vcpus } },
        State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => state,
    }
}

/// PID 1 gets it too: should the supervisor go, the end has a deadline all the same.
fn quit(state: State, now: Now) -> (State, Vec<Effect>) {
    match state {
        State::Running { .. } | State::Stopping { .. } | State::Launched => {
            let kill_at_ms = now.boot_ms.saturating_add(QUIT_PATIENCE_MS);
            (State::Ending { kill_at_ms }, vec![Effect::TellInit { by_ms: kill_at_ms }, Effect::Quit])
        }
        State::Preparing | State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

fn requested(life: &mut Life, state: State, request: ChangeRequest, now: Now) -> (State, Vec<Effect>) {
    match request {
        ChangeRequest::Stop(StopMode::Force) => {
            life.memory.hints.force_requested = true;
            let (state, mut effects) = end_now(state, now);
            // One that does not answer does not follow `quit` either.
            if life.memory.is_silent && effects.contains(&Effect::Quit) {
                effects.push(Effect::Kill);
            }
            (state, effects)
        }
        ChangeRequest::Stop(StopMode::Graceful { within_seconds }) => {
            life.memory.hints.stop_requested = true;
            let grace_ms = within_seconds.map_or(life.grace_ms.max(life.memory.prolonged_ms), milliseconds);
            stop(life, state, grace_ms, now)
        }
        ChangeRequest::Prolong { grace_seconds } => {
            life.memory.prolonged_ms = life.memory.prolonged_ms.max(milliseconds(grace_seconds));
            (state, Vec::new())
        }
        ChangeRequest::Pause => match state {
            State::Running { .. } => {
                life.memory.paused_by_user = true;
                life.memory.io.give_up();
                // Also where an I/O error holds it: it may have been resumed, which QEMU has not reported yet.
                (stopped(PauseReason::PausedByUser), vec![Effect::StopVcpus])
            }
            State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
                (state, Vec::new())
            }
        },
        ChangeRequest::Unpause => match state {
            State::Running { .. } => {
                life.memory.paused_by_user = false;
                (State::Running { vcpus: Vcpus::Running }, vec![Effect::LetRun])
            }
            State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
                (state, Vec::new())
            }
        },
        ChangeRequest::SoftReboot => soft_reboot::requested(life, state, now),
        ChangeRequest::Freeze { thaw_after_seconds } => freeze::freeze(life, state, thaw_after_seconds, now),
        ChangeRequest::Unfreeze => freeze::thaw(state),
        ChangeRequest::Reset => match state {
            State::Running { .. } => (state, vec![Effect::Reset]),
            State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } | State::Ended(_) => {
                (state, Vec::new())
            }
        },
    }
}

/// So many seconds; what nobody lives to see is bounded.
fn milliseconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX / 2000).saturating_mul(1000)
}

fn stop(life: &mut Life, state: State, grace_ms: i64, now: Now) -> (State, Vec<Effect>) {
    let wanted = now.boot_ms.saturating_add(grace_ms.max(0));
    match state {
        State::Preparing | State::Launched => (
            State::Stopping { force_at_ms: wanted, asked: PowerDownRequest::NotYet },
            vec![Effect::TellInit { by_ms: wanted }],
        ),
        State::Running { .. } if !life.memory.has_run => quit(state, now),
        // Nor is one waited for that nobody can ask.
        State::Running { .. } if grace_ms <= 0 || !life.has_acpi && !life.memory.has_agent => {
            note_end_of_grace(life);
            end_now(state, now)
        }
        State::Running { vcpus } => match life.memory.soft_reboot.map(|reboot| reboot.step) {
            // It is off already.
            Some(RebootStep::Reset) => quit(state, now),
            step @ (Some(RebootStep::Agent | RebootStep::PowerButton) | None) => {
                let leaves = (step == Some(RebootStep::PowerButton)).then_some(Effect::LeaveAtPowerOff);
                let resumes = (vcpus != Vcpus::Running).then_some(Effect::LetRun);
                let first = [freeze::before_shutdown(life), leaves, resumes];
                ask(life, wanted, first.into_iter().flatten().collect(), now)
            }
        },
        // Asked again: a shorter time counts, a longer one does not.
        State::Stopping { force_at_ms, asked: before } => {
            let by_ms = force_at_ms.min(wanted);
            let mut effects = vec![Effect::TellInit { by_ms }];
            let asked = match before {
                PowerDownRequest::NotYet => before,
                PowerDownRequest::Sent { .. } => {
                    effects.push(ask_again(life));
                    asked(now)
                }
            };
            (State::Stopping { force_at_ms: by_ms, asked }, effects)
        }
        State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

/// Ends QEMU without asking the guest. Before its monitor is there only PID 1 can do it.
fn end_now(state: State, now: Now) -> (State, Vec<Effect>) {
    let kill_at_ms = now.boot_ms.saturating_add(QUIT_PATIENCE_MS);
    match state {
        State::Preparing | State::Launched | State::Ending { .. } => (State::Ending { kill_at_ms }, vec![Effect::Kill]),
        State::Running { .. } | State::Stopping { .. } => quit(state, now),
        State::Ended(_) => (state, Vec::new()),
    }
}

/// Does what is due, however early or late this comes: what is not due stays in [`Life::wake_at_ms`].
fn time_passed(life: &mut Life, state: State, now: Now) -> (State, Vec<Effect>) {
    match state {
        State::Stopping { force_at_ms, .. } if force_at_ms <= now.boot_ms => {
            note_end_of_grace(life);
            quit(state, now)
        }
        State::Stopping { force_at_ms, asked: before } => {
            let mut effects = Vec::new();
            if life.memory.io.is_due(now.boot_ms) {
                effects.push(Effect::LetRun);
            }
            let asked = match before {
                PowerDownRequest::Sent { again_at_ms } if again_at_ms <= now.boot_ms => {
                    effects.push(ask_again(life));
                    asked(now)
                }
                PowerDownRequest::Sent { .. } | PowerDownRequest::NotYet => before,
            };
            (State::Stopping { force_at_ms, asked }, effects)
        }
        // PID 1 may have been away when it was asked last.
        State::Ending { kill_at_ms } if kill_at_ms <= now.boot_ms => {
            (State::Ending { kill_at_ms: now.boot_ms.saturating_add(QUIT_PATIENCE_MS) }, vec![Effect::Kill])
        }
        State::Running { vcpus } => {
            let mut effects = soft_reboot::time_passed(life, now);
            effects.extend(freeze::time_passed(life, vcpus, now));
            if life.memory.io.is_due(now.boot_ms) {
                effects.push(Effect::LetRun);
            }
            (state, effects)
        }
        State::Preparing | State::Launched | State::Ending { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

fn gone(life: &Life, state: State, report: ExitReport, now: Now) -> (State, Vec<Effect>) {
    if let State::Ended(_) = state {
        return (state, Vec::new());
    }
    let cause = explain(&report, life.memory.hints);
    (ended(cause, Some(report), now), vec![Effect::Finish])
}

fn lost(life: &Life, state: State, now: Now) -> (State, Vec<Effect>) {
    match state {
        State::Launched | State::Running { .. } | State::Stopping { .. } | State::Ending { .. } => {
            (ended(explain_lost(life.memory.hints), None, now), vec![Effect::Finish])
        }
        State::Preparing | State::Ended(_) => (state, Vec::new()),
    }
}

fn failed(state: State, message: String, now: Now) -> (State, Vec<Effect>) {
    match state {
        State::Preparing | State::Launched | State::Stopping { .. } | State::Ending { .. } => {
            (ended(ExitCause::NotStarted { message }, None, now), vec![Effect::Kill, Effect::Finish])
        }
        State::Running { .. } | State::Ended(_) => (state, Vec::new()),
    }
}

fn ended(cause: ExitCause, report: Option<ExitReport>, now: Now) -> State {
    let message = full_message(&cause, report.as_ref());
    State::Ended(Box::new(Ended { cause, message, report, at_ms: now.wall_ms }))
}

#[cfg(test)]
mod tests;
