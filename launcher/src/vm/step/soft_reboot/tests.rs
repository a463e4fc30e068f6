use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{PauseReason, StopMode};
use garboard_protocol::exit::{ExitCause, ExitReport, ProcessEnd};
use proptest::prelude::*;

use super::*;
use crate::vm::{Event, Memory, OnReady, step};

const NOW: i64 = 1_000_000;
const GRACE_MS: i64 = 45_000;

fn at(boot_ms: i64) -> Now {
    Now { boot_ms, wall_ms: 7 }
}

fn running() -> State {
    State::Running { vcpus: Vcpus::Running }
}

/// A machine whose guest runs.
fn machine() -> Life {
    let memory = Memory { has_run: true, ..Memory::default() };
    Life { grace_ms: GRACE_MS, ..Life::unplanned(running(), memory) }
}

fn ask(machine: &mut Life) -> Vec<Effect> {
    step(machine, Event::Requested(ChangeRequest::SoftReboot), at(NOW))
}

/// A machine whose button was pressed, because there is no agent.
fn pressed() -> Life {
    let mut machine = machine();
    assert_eq!(ask(&mut machine), [Effect::AskAgentToReboot]);
    assert_eq!(step(&mut machine, Event::AgentDidNotReboot, at(NOW)), [Effect::PressButtonAndStay]);
    machine
}

const OFF: Event = Event::Shutdown { kind: ShutdownKind::Guest };
const HELD_OFF: Event = Event::VcpusStopped { run_state: RunState::Shutdown };

fn ready(run_state: RunState) -> Event {
    Event::MonitorReady { run_state, on_ready: OnReady::Leave }
}

fn cause(machine: &Life) -> ExitCause {
    let State::Ended(ended) = &machine.state else { panic!("{machine:?}") };
    ended.cause.clone()
}

fn gone() -> Event {
    Event::QemuGone(Box::new(ExitReport {
        end: ProcessEnd::Exited { code: 0 },
        oom_kills: 0,
        memory_limit_bytes: None,
        asked_by_init: false,
        killed_by_init: false,
        last_output: String::new(),
        failure: None,
    }))
}

#[test]
fn a_guest_that_its_agent_reboots_resets_itself() {
    let mut machine = machine();
    assert_eq!(ask(&mut machine), [Effect::AskAgentToReboot]);
    assert_eq!(machine.wake_at_ms(), Some(NOW + GRACE_MS));
    assert_eq!(step(&mut machine, Event::WasReset, at(NOW + 5)), []);
    assert_eq!((machine.memory.soft_reboot, machine.memory.resets), (None, 1));
    let mut machine = self::machine();
    let _ = ask(&mut machine);
    // It powered off instead: QEMU leaves, as at any other time.
    let _ = step(&mut machine, OFF, at(NOW + 5));
    let _ = step(&mut machine, gone(), at(NOW + 6));
    assert_eq!(cause(&machine), ExitCause::GuestShutdown);
}

#[test]
fn a_guest_without_an_agent_is_reset_once_it_is_off() {
    let mut machine = pressed();
    assert_eq!(step(&mut machine, OFF, at(NOW + 5)), [Effect::Reset]);
    assert_eq!(machine.memory.hints, Default::default(), "nothing of it is an end");
    for run_state in [RunState::Shutdown, RunState::Running] {
        assert_eq!(step(&mut machine, Event::VcpusStopped { run_state }, at(NOW + 6)), []);
    }
    let starts = [Effect::LeaveAtPowerOff, Effect::LetRun];
    assert_eq!(step(&mut machine, Event::WasReset, at(NOW + 7)), starts);
    let _ = step(&mut machine, Event::VcpusResumed, at(NOW + 8));
    assert_eq!((machine.state.clone(), machine.memory.soft_reboot, machine.memory.resets), (running(), None, 1));
    // The next power-off is its own.
    let _ = step(&mut machine, OFF, at(NOW + 9));
    let _ = step(&mut machine, gone(), at(NOW + 10));
    assert_eq!(cause(&machine), ExitCause::GuestShutdown);
}

#[test]
fn events_that_were_lost_are_not_waited_for() {
    let mut machine = pressed();
    assert_eq!(step(&mut machine, HELD_OFF, at(NOW + 5)), [Effect::Reset]);
    let found = Event::VcpusStopped { run_state: RunState::Prelaunch };
    assert_eq!(step(&mut machine, found, at(NOW + 6)), [Effect::LeaveAtPowerOff, Effect::LetRun]);
    assert_eq!((machine.state, machine.memory.soft_reboot), (running(), None));
}

#[test]
fn a_guest_that_resets_itself_needs_no_reset_of_ours() {
    let mut machine = pressed();
    assert_eq!(step(&mut machine, Event::WasReset, at(NOW + 5)), [Effect::LeaveAtPowerOff]);
    assert_eq!(machine.memory.soft_reboot, None);
}

#[test]
fn a_guest_that_ignores_the_button_keeps_running_and_is_forgotten() {
    let mut machine = pressed();
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + GRACE_MS - 1)), []);
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + GRACE_MS)), [Effect::LeaveAtPowerOff]);
    assert_eq!((machine.state.clone(), machine.wake_at_ms()), (running(), None));
    // It was off before QEMU had its action back: QEMU stays, and gets `quit`.
    let _ = step(&mut machine, OFF, at(NOW + GRACE_MS + 1));
    assert_eq!(step(&mut machine, HELD_OFF, at(NOW + GRACE_MS + 2)), [Effect::Quit]);
    let mut without_grace = Life { grace_ms: 0, ..self::machine() };
    let _ = ask(&mut without_grace);
    assert_eq!(without_grace.wake_at_ms(), Some(NOW + SHORTEST_MS));
}

#[test]
fn a_second_request_presses_the_button_again() {
    let mut machine = pressed();
    let later = Event::Requested(ChangeRequest::SoftReboot);
    assert_eq!(step(&mut machine, later.clone(), at(NOW + 1000)), [Effect::PressButtonAndStay]);
    assert_eq!(machine.wake_at_ms(), Some(NOW + 1000 + GRACE_MS));
    let _ = step(&mut machine, OFF, at(NOW + 2000));
    assert_eq!(step(&mut machine, later, at(NOW + 2001)), [], "it is being reset");
}

#[test]
fn a_button_that_could_not_be_pressed_leaves_nothing_behind() {
    let mut machine = pressed();
    assert_eq!(step(&mut machine, Event::ButtonNotPressed, at(NOW)), [Effect::LeaveAtPowerOff]);
    assert_eq!(machine.memory.soft_reboot, None);
    let mut without_acpi = Life { has_acpi: false, ..self::machine() };
    let _ = ask(&mut without_acpi);
    assert_eq!(step(&mut without_acpi, Event::AgentDidNotReboot, at(NOW)), []);
    assert_eq!(without_acpi.memory.soft_reboot, None);
}

#[test]
fn a_stop_wins() {
    let graceful = Event::Requested(ChangeRequest::Stop(StopMode::Graceful { within_seconds: None }));
    let mut machine = pressed();
    let effects = step(&mut machine, graceful.clone(), at(NOW + 5));
    assert_eq!(effects.first(), Some(&Effect::LeaveAtPowerOff));
    assert!(effects.contains(&Effect::AskGuest(PowerDownMethod::AgentFirst)), "{effects:?}");
    // It was off already when QEMU got its action back.
    let _ = step(&mut machine, OFF, at(NOW + 6));
    assert_eq!(step(&mut machine, HELD_OFF, at(NOW + 7)), [Effect::Quit]);
    let _ = step(&mut machine, gone(), at(NOW + 8));
    assert_eq!(cause(&machine), ExitCause::StoppedGracefully);
    let mut off = pressed();
    let _ = step(&mut off, OFF, at(NOW + 5));
    assert!(step(&mut off, graceful, at(NOW + 6)).contains(&Effect::Quit), "nothing is left to be asked");
    assert_eq!(step(&mut off, Event::WasReset, at(NOW + 7)), [], "it does not start again");
}

#[test]
fn a_pause_holds_the_guest_at_its_start() {
    let mut machine = pressed();
    let _ = step(&mut machine, OFF, at(NOW + 5));
    let _ = step(&mut machine, Event::Requested(ChangeRequest::Pause), at(NOW + 6));
    assert_eq!(step(&mut machine, Event::WasReset, at(NOW + 7)), [Effect::LeaveAtPowerOff]);
    let paused = State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) };
    assert_eq!(machine.state, paused);
}

#[test]
fn a_reboot_that_ends_the_run_has_that_cause() {
    let mut machine = Life { reboot_ends_run: true, ..self::machine() };
    let _ = ask(&mut machine);
    let button = [Effect::AskGuest(PowerDownMethod::Button)];
    assert_eq!(step(&mut machine, Event::AgentDidNotReboot, at(NOW)), button);
    assert!(!step(&mut machine, OFF, at(NOW + 5)).contains(&Effect::Reset));
    let _ = step(&mut machine, gone(), at(NOW + 6));
    assert_eq!(cause(&machine), ExitCause::GuestReboot);
}

/// What a new supervisor does that reads this step, and whether it still goes on with it.
fn taken_over(step_of: RebootStep, run_state: RunState, after_ms: i64) -> (Vec<Effect>, bool) {
    let mut machine = Life { state: State::Launched, ..machine() };
    machine.memory.soft_reboot = Some(SoftReboot { step: step_of, until_ms: NOW + GRACE_MS });
    let effects = step(&mut machine, ready(run_state), at(NOW + after_ms));
    (effects, machine.memory.soft_reboot.is_some())
}

#[test]
fn the_next_supervisor_goes_on_by_what_qemu_does() {
    let starts = vec![Effect::LeaveAtPowerOff, Effect::LetRun];
    let late = GRACE_MS;
    let table = [
        (RebootStep::PowerButton, RunState::Running, 5, vec![Effect::PressButtonAndStay], true),
        (RebootStep::PowerButton, RunState::Running, late, vec![Effect::LeaveAtPowerOff], false),
        (RebootStep::PowerButton, RunState::Shutdown, 5, vec![Effect::Reset], true),
        (RebootStep::Reset, RunState::Shutdown, late, vec![Effect::Reset], true),
        (RebootStep::PowerButton, RunState::Prelaunch, 5, starts.clone(), false),
        (RebootStep::Reset, RunState::Prelaunch, late, starts, false),
        (RebootStep::Reset, RunState::Running, 5, vec![Effect::LeaveAtPowerOff], false),
        (RebootStep::Agent, RunState::Running, 5, vec![], true),
    ];
    for (step, run_state, after_ms, effects, goes_on) in table {
        assert_eq!(taken_over(step, run_state, after_ms), (effects, goes_on), "{step:?} {run_state:?} {after_ms}");
    }
}

/// A power-off that nobody asked for is not taken for the answer to a button.
#[test]
fn a_guest_that_shut_down_by_itself_meanwhile_is_not_started_again() {
    for (step, after_ms) in [(RebootStep::PowerButton, GRACE_MS), (RebootStep::Agent, 5)] {
        let (effects, goes_on) = taken_over(step, RunState::Shutdown, after_ms);
        assert!(effects.contains(&Effect::Quit) && !effects.contains(&Effect::Reset) && !goes_on, "{effects:?}");
    }
    let mut never_asked = Life { state: State::Launched, ..machine() };
    assert!(step(&mut never_asked, ready(RunState::Shutdown), at(NOW)).contains(&Effect::Quit));
    let _ = step(&mut never_asked, gone(), at(NOW));
    assert_eq!(cause(&never_asked), ExitCause::GuestShutdown);
}

#[test]
fn a_guest_that_is_off_before_the_monitor_was_used_is_reset_when_it_is() {
    let mut machine = Life { state: State::Launched, ..machine() };
    let step_before = RebootStep::PowerButton;
    machine.memory.soft_reboot = Some(SoftReboot { step: step_before, until_ms: NOW + GRACE_MS });
    let _ = step(&mut machine, OFF, at(NOW));
    assert_eq!(machine.state, State::Launched);
    assert_eq!(step(&mut machine, ready(RunState::Shutdown), at(NOW + 5)), [Effect::Reset]);
}

/// What happens to the guest of the model.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// It shuts down, if it runs.
    Off,
    /// Another supervisor takes over.
    Replaced,
    /// Time goes on.
    Later(i64),
}

/// QEMU as far as a soft reboot concerns it: its run state, and whether it stays when the guest is off.
struct Model {
    run: RunState,
    stays: bool,
    is_gone: bool,
}

impl Model {
    /// What QEMU reports after it has done this.
    fn perform(&mut self, effect: &Effect) -> Vec<Event> {
        match effect {
            Effect::PressButtonAndStay => {
                self.stays = true;
                Vec::new()
            }
            Effect::LeaveAtPowerOff => {
                self.stays = false;
                Vec::new()
            }
            Effect::Reset => {
                if self.run == RunState::Shutdown {
                    self.run = RunState::Prelaunch;
                }
                vec![Event::WasReset]
            }
            Effect::LetRun if self.run == RunState::Shutdown => Vec::new(),
            Effect::LetRun => {
                self.run = RunState::Running;
                vec![Event::VcpusResumed]
            }
            Effect::Quit | Effect::Kill => {
                self.is_gone = true;
                vec![gone()]
            }
            Effect::AskAgentToReboot => vec![Event::AgentDidNotReboot],
            Effect::StopVcpus
            | Effect::AskGuest(_)
            | Effect::Freeze
            | Effect::Thaw
            | Effect::TellInit { .. }
            | Effect::Finish => Vec::new(),
        }
    }

    fn off(&mut self) -> Vec<Event> {
        match (self.run, self.stays) {
            (RunState::Running, true) => {
                self.run = RunState::Shutdown;
                vec![OFF, HELD_OFF]
            }
            (RunState::Running, false) => {
                self.is_gone = true;
                vec![OFF, gone()]
            }
            _ => Vec::new(),
        }
    }
}

fn settle(machine: &mut Life, model: &mut Model, mut events: Vec<Event>, now: i64) {
    while !events.is_empty() {
        let event = events.remove(0);
        for effect in step(machine, event, at(now)) {
            events.extend(model.perform(&effect));
        }
    }
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![2 => Just(Move::Off), 1 => Just(Move::Replaced), 3 => (0_i64..60_000).prop_map(Move::Later)]
}

proptest! {
    /// Whatever the guest does, and however often its supervisor is replaced: a guest that is off does not stay so, and QEMU
    /// leaves at a power-off again once nothing is under way.
    #[test]
    fn no_guest_stays_off_for_ever(moves in prop::collection::vec(moves(), 0..20)) {
        let mut machine = machine();
        let mut model = Model { run: RunState::Running, stays: false, is_gone: false };
        let mut now = NOW;
        settle(&mut machine, &mut model, vec![Event::Requested(ChangeRequest::SoftReboot)], now);
        for each in moves {
            match each {
                Move::Off => {
                    let events = model.off();
                    settle(&mut machine, &mut model, events, now);
                }
                Move::Replaced if !model.is_gone => {
                    // What the guest did while nobody looked.
                    machine.state = State::Launched;
                    let found = ready(model.run);
                    settle(&mut machine, &mut model, vec![found], now);
                }
                Move::Replaced => {}
                Move::Later(by_ms) => {
                    now += by_ms;
                    settle(&mut machine, &mut model, vec![Event::TimePassed], now);
                }
            }
            prop_assert!(model.is_gone || model.run == RunState::Running, "{machine:?} {:?}", model.run);
        }
        now += GRACE_MS + RESET_AGAIN_MS;
        settle(&mut machine, &mut model, vec![Event::TimePassed], now);
        prop_assert!(model.is_gone || !model.stays && machine.memory.soft_reboot.is_none(), "{machine:?}");
    }

    /// The same where the guest is off and no supervisor sees it.
    #[test]
    fn a_guest_that_shut_down_unseen_is_taken_care_of(after_ms in 0_i64..200_000) {
        let mut machine = pressed();
        let mut model = Model { run: RunState::Shutdown, stays: true, is_gone: false };
        machine.state = State::Launched;
        settle(&mut machine, &mut model, vec![ready(RunState::Shutdown)], NOW + after_ms);
        prop_assert_eq!(model.is_gone, after_ms >= GRACE_MS);
        prop_assert!(model.is_gone || model.run == RunState::Running && !model.stays);
    }
}
