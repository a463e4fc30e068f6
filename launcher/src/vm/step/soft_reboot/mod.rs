//! A soft reboot: the guest shuts down and starts again, in the same QEMU.
//!
//! ```text
//!   requested ─► Agent: `guest-shutdown` ──────────────── RESET: the guest has reset itself ─► done
//!                  │ there is none, or it refused
//!                  ▼
//!                PowerButton: `set-action shutdown=pause`, `system_powerdown` ────── RESET ─► done
//!                  │ SHUTDOWN by the guest; QEMU stays
//!                  ▼
//!                Reset: `system_reset` ── RESET ─► `set-action shutdown=poweroff`, `cont` ─► done
//! ```
//!
//! A guest that ignores both keeps running; after its deadline the soft reboot is given up, and a guest that shuts down ends its
//! run again. The journal has step and deadline: from them and from QEMU's run state the next supervisor goes on.

use super::{Effect, Life, Now, PowerDownMethod, RunState, ShutdownKind, State, Vcpus, freeze, leave, note_shutdown};
use crate::vm::{RebootStep, SoftReboot};

/// The shortest time that a guest has for it. Usually it has its grace period, as for any other shutdown; that may be zero.
const SHORTEST_MS: i64 = 30_000;
/// How long until a guest that is off is reset again: longer than a QEMU that is busy takes to answer.
const RESET_AGAIN_MS: i64 = 60_000;

/// A guest that was asked already is asked again, in the way that was reached.
pub(super) fn requested(life: &mut Life, state: State, now: Now) -> (State, Vec<Effect>) {
    let State::Running { vcpus: Vcpus::Running } = state else { return (state, Vec::new()) };
    let (step, effect) = match life.memory.soft_reboot.map(|reboot| reboot.step) {
        Some(RebootStep::Reset) => return (state, Vec::new()),
        Some(RebootStep::PowerButton) => (RebootStep::PowerButton, press_button(life)),
        Some(RebootStep::Agent) | None => (RebootStep::Agent, Effect::AskAgentToReboot),
    };
    let until_ms = now.boot_ms.saturating_add(life.grace_ms.max(SHORTEST_MS));
    life.memory.soft_reboot = Some(SoftReboot { step, until_ms });
    let thaw = freeze::before_shutdown(life);
    (state, thaw.into_iter().chain([effect]).collect())
}

/// Where a power-off is not to be followed by a reset of ours (`rebootPolicy: Terminate`), QEMU need not stay.
fn press_button(life: &Life) -> Effect {
    if life.reboot_ends_run { Effect::AskGuest(PowerDownMethod::Button) } else { Effect::PressButtonAndStay }
}

/// There is no agent, or it refused.
pub(super) fn without_agent(life: &mut Life, state: State) -> (State, Vec<Effect>) {
    let effects = match (&state, &mut life.memory.soft_reboot) {
        (State::Running { .. }, Some(reboot)) if reboot.step == RebootStep::Agent && life.has_acpi => {
            reboot.step = RebootStep::PowerButton;
            vec![press_button(life)]
        }
        (_, Some(SoftReboot { step: RebootStep::Agent, .. })) => {
            life.memory.soft_reboot = None;
            Vec::new()
        }
        (_, Some(SoftReboot { step: RebootStep::PowerButton | RebootStep::Reset, .. }) | None) => Vec::new(),
    };
    (state, effects)
}

/// The button could not be pressed: the guest was not asked.
pub(super) fn not_pressed(life: &mut Life, state: State) -> (State, Vec<Effect>) {
    let effects = match life.memory.soft_reboot.map(|reboot| reboot.step) {
        Some(RebootStep::PowerButton) => {
            life.memory.soft_reboot = None;
            vec![Effect::LeaveAtPowerOff]
        }
        Some(RebootStep::Agent | RebootStep::Reset) | None => Vec::new(),
    };
    (state, effects)
}

/// Whether this is the guest's answer to the button.
pub(super) fn is_answer(life: &Life, state: &State, kind: ShutdownKind) -> bool {
    let is_asked = life.memory.soft_reboot.is_some_and(|reboot| reboot.step == RebootStep::PowerButton);
    let is_held = matches!(state, State::Launched | State::Running { .. });
    is_asked && is_held && kind == ShutdownKind::Guest
}

/// The guest is off: it starts again, or its run is over, as after any other reboot of it.
pub(super) fn is_off(life: &mut Life, state: State, now: Now) -> (State, Vec<Effect>) {
    if life.reboot_ends_run {
        note_shutdown(life, ShutdownKind::GuestReset);
        return leave(state, now);
    }
    (state, reset(life, now))
}

fn reset(life: &mut Life, now: Now) -> Vec<Effect> {
    let until_ms = now.boot_ms.saturating_add(RESET_AGAIN_MS);
    life.memory.soft_reboot = Some(SoftReboot { step: RebootStep::Reset, until_ms });
    vec![Effect::Reset]
}

/// What follows where QEMU holds the vCPUs for the sake of a soft reboot; nothing where it does for another reason.
pub(super) fn held(life: &mut Life, run: RunState, now: Now) -> Option<Vec<Effect>> {
    match (life.memory.soft_reboot?.step, run) {
        // Its SHUTDOWN was lost.
        (RebootStep::PowerButton, RunState::Shutdown) if !life.reboot_ends_run => Some(reset(life, now)),
        (RebootStep::Reset, RunState::Prelaunch) => Some(start(life)),
        (RebootStep::Reset, RunState::Shutdown | RunState::Paused | RunState::Running | RunState::Other) => {
            Some(Vec::new())
        }
        (RebootStep::Agent | RebootStep::PowerButton | RebootStep::Reset, _) => None,
    }
}

/// The guest was reset, by itself or by us.
pub(super) fn was_reset(life: &mut Life) -> Vec<Effect> {
    match life.memory.soft_reboot.map(|reboot| reboot.step) {
        Some(RebootStep::Reset) => start(life),
        Some(RebootStep::PowerButton) => {
            life.memory.soft_reboot = None;
            vec![Effect::LeaveAtPowerOff]
        }
        Some(RebootStep::Agent) => {
            life.memory.soft_reboot = None;
            Vec::new()
        }
        None => Vec::new(),
    }
}

/// It was reset while it was off. A user's pause that came meanwhile holds it at its first instruction.
fn start(life: &mut Life) -> Vec<Effect> {
    life.memory.soft_reboot = None;
    let resumes = (!life.memory.paused_by_user).then_some(Effect::LetRun);
    [Effect::LeaveAtPowerOff].into_iter().chain(resumes).collect()
}

/// Goes on with what an earlier supervisor began, by what QEMU does now; nothing where that is for another reason.
pub(super) fn found(life: &mut Life, run: RunState, now: Now) -> Option<Vec<Effect>> {
    let reboot = life.memory.soft_reboot?;
    // Nobody saw for a while what the guest did: one that shut down after the deadline did so by itself.
    let is_late = reboot.until_ms <= now.boot_ms;
    match (reboot.step, run) {
        // It was asked, and it resets itself.
        (RebootStep::Agent, _) => None,
        (RebootStep::PowerButton, RunState::Shutdown) if is_late || life.reboot_ends_run => None,
        (RebootStep::PowerButton | RebootStep::Reset, RunState::Shutdown) => Some(reset(life, now)),
        (RebootStep::PowerButton | RebootStep::Reset, RunState::Prelaunch) => Some(start(life)),
        // The button may not have been pressed.
        (RebootStep::PowerButton, RunState::Running | RunState::Other) if !is_late => Some(vec![press_button(life)]),
        (RebootStep::PowerButton | RebootStep::Reset, RunState::Running | RunState::Other) => {
            life.memory.soft_reboot = None;
            Some(vec![Effect::LeaveAtPowerOff])
        }
        (
            RebootStep::PowerButton | RebootStep::Reset,
            RunState::Paused
            | RunState::IoError
            | RunState::GuestPanicked
            | RunState::Watchdog
            | RunState::InternalError,
        ) => None,
    }
}

/// Gives it up when its time is over; a guest that is off is reset again.
pub(super) fn time_passed(life: &mut Life, now: Now) -> Vec<Effect> {
    let due = life.memory.soft_reboot.filter(|reboot| reboot.until_ms <= now.boot_ms);
    match due.map(|reboot| reboot.step) {
        Some(RebootStep::Reset) => reset(life, now),
        Some(RebootStep::PowerButton) => {
            life.memory.soft_reboot = None;
            vec![Effect::LeaveAtPowerOff]
        }
        Some(RebootStep::Agent) => {
            life.memory.soft_reboot = None;
            Vec::new()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
