use super::*;
use crate::vm::each::each;
use crate::vm::queue::tests::all_requests;
use crate::vm::{IoError, Memory, SoftReboot};
use garboard_protocol::exit::{EndHints, ProcessEnd};
use proptest::prelude::*;

const NOW: i64 = 1_000_000;

/// A moment on the boot's clock. The time of day differs, and nothing may depend on it.
fn at(boot_ms: i64) -> Now {
    Now { boot_ms, wall_ms: 7 }
}

/// A machine whose guest has run.
fn life(state: State) -> Life {
    Life { grace_ms: 30_000, ..Life::unplanned(state, Memory { has_run: true, ..Memory::default() }) }
}

fn graceful(within_seconds: Option<u64>) -> Event {
    Event::Requested(ChangeRequest::Stop(StopMode::Graceful { within_seconds }))
}

fn io_error() -> Event {
    Event::StoppedByIoError(IoError { what: "write".into(), is_full: false })
}

fn report(end: ProcessEnd) -> Box<ExitReport> {
    Box::new(ExitReport {
        end,
        oom_kills: 0,
        memory_limit_bytes: None,
        asked_by_init: false,
        killed_by_init: false,
        last_output: String::new(),
        failure: None,
    })
}

fn running() -> State {
    State::Running { vcpus: Vcpus::Running }
}

fn stopped(reason: PauseReason) -> State {
    State::Running { vcpus: Vcpus::Stopped(reason) }
}

fn stopping(asked: PowerDownRequest) -> State {
    State::Stopping { force_at_ms: NOW + 5, asked }
}

each! {
    all_states: State,
    State::Preparing => [State::Preparing],
    State::Launched => [State::Launched],
    State::Running { vcpus: Vcpus::Running } => [running()],
    State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) } => [stopped(PauseReason::PausedByUser)],
    State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedIOError) } => [stopped(PauseReason::PausedIOError)],
    State::Stopping { asked: PowerDownRequest::Sent { .. }, .. } => [stopping(PowerDownRequest::Sent { again_at_ms: NOW + 3 })],
    State::Stopping { asked: PowerDownRequest::NotYet, .. } => [stopping(PowerDownRequest::NotYet)],
    State::Ending { .. } => [State::Ending { kill_at_ms: NOW + 5 }],
    State::Ended(_) => [ended(ExitCause::GuestShutdown, None, at(NOW))],
}

each! {
    shutdown_kinds: ShutdownKind,
    ShutdownKind::Guest => [ShutdownKind::Guest],
    ShutdownKind::GuestReset => [ShutdownKind::GuestReset],
    ShutdownKind::GuestPanic => [ShutdownKind::GuestPanic],
    ShutdownKind::Host => [ShutdownKind::Host],
}

each! {
    run_states: RunState,
    RunState::Running => [RunState::Running],
    RunState::Prelaunch => [RunState::Prelaunch],
    RunState::Paused => [RunState::Paused],
    RunState::Other => [RunState::Other],
    RunState::IoError => [RunState::IoError],
    RunState::GuestPanicked => [RunState::GuestPanicked],
    RunState::Watchdog => [RunState::Watchdog],
    RunState::Shutdown => [RunState::Shutdown],
    RunState::InternalError => [RunState::InternalError],
}

fn ready(on_ready: OnReady) -> impl Iterator<Item = Event> {
    run_states().into_iter().map(move |run_state| Event::MonitorReady { run_state, on_ready })
}

each! {
    all_events: Event,
    Event::Spawned => [Event::Spawned],
    Event::MonitorReady { on_ready: OnReady::LetRun, .. } => ready(OnReady::LetRun),
    Event::MonitorReady { on_ready: OnReady::Leave, .. } => ready(OnReady::Leave),
    Event::Shutdown { .. } => shutdown_kinds().into_iter().map(|kind| Event::Shutdown { kind }),
    Event::WasReset => [Event::WasReset],
    Event::VcpusStopped { .. } => run_states().into_iter().map(|run_state| Event::VcpusStopped { run_state }),
    Event::VcpusResumed => [Event::VcpusResumed],
    Event::StoppedByIoError(IoError { is_full: false, .. }) => [io_error()],
    Event::StoppedByIoError(IoError { is_full: true, .. }) =>
        [Event::StoppedByIoError(IoError { what: String::new(), is_full: true })],
    Event::Panicked => [Event::Panicked],
    Event::WatchdogFired => [Event::WatchdogFired],
    Event::AgentDidNotReboot => [Event::AgentDidNotReboot],
    Event::ButtonNotPressed => [Event::ButtonNotPressed],
    Event::Froze => [Event::Froze],
    Event::DidNotFreeze { .. } => [false, true].map(|may_have_frozen| Event::DidNotFreeze { may_have_frozen }),
    Event::Thawed => [Event::Thawed],
    Event::DidNotThaw => [Event::DidNotThaw],
    Event::FreezeReported { .. } => [false, true].map(|frozen| Event::FreezeReported { frozen }),
    Event::Requested(_) => all_requests().into_iter().map(Event::Requested),
    Event::TimePassed => [Event::TimePassed],
    Event::QemuGone(_) => [ProcessEnd::Exited { code: 0 }, ProcessEnd::Signalled { signal: 9 }]
        .map(|end| Event::QemuGone(report(end))),
    Event::Lost => [Event::Lost],
    Event::PreparationFailed(_) => [Event::PreparationFailed("no disk".into())],
}

each! {
    all_steps: Option<RebootStep>,
    None => [None],
    Some(RebootStep::Agent) => [Some(RebootStep::Agent)],
    Some(RebootStep::PowerButton) => [Some(RebootStep::PowerButton)],
    Some(RebootStep::Reset) => [Some(RebootStep::Reset)],
}

/// Machines in every state, and those whose guest is rebooting in every step.
fn all_machines() -> Vec<Life> {
    let machine = |state: State, step: Option<RebootStep>| {
        let soft_reboot = step.map(|step| SoftReboot { step, until_ms: NOW + 4 });
        let mut machine = life(state);
        machine.memory.soft_reboot = soft_reboot;
        machine
    };
    let states = all_states().into_iter();
    states
        .flat_map(|state| {
            let holds = matches!(state, State::Launched | State::Running { .. });
            let steps = all_steps().into_iter().filter(move |step| holds || step.is_none());
            steps.map(move |step| machine(state.clone(), step))
        })
        .collect()
}

/// A soft reboot and a deadline of frozen file systems are remembered only while their guest is held.
fn is_tidy(machine: &Life) -> bool {
    let remembers = machine.memory.soft_reboot.is_some() || machine.memory.freeze.is_some();
    !remembers || matches!(machine.state, State::Launched | State::Running { .. })
}

#[test]
fn every_pair_keeps_the_invariants() {
    for before in all_machines() {
        for event in all_events() {
            let (mut machine, state) = (before.clone(), before.state.clone());
            let effects = step(&mut machine, event.clone(), at(NOW));
            let context = format!("{before:?} + {event:?} -> {machine:?} {effects:?}");
            let was_over = matches!(state, State::Ended(_));
            let is_over = matches!(machine.state, State::Ended(_));
            assert!(!was_over || is_over, "an ended machine does not come back: {context}");
            assert!(!was_over || effects.is_empty(), "nothing is done to an ended machine: {context}");
            assert_eq!(effects.contains(&Effect::Finish), is_over && !was_over, "finished exactly once: {context}");
            assert!(is_armed(&machine), "a stop always has a deadline: {context}");
            assert!(is_tidy(&machine), "a soft reboot does not outlive its guest: {context}");
            if matches!(state, State::Stopping { .. } | State::Ending { .. }) {
                assert!(!matches!(machine.state, State::Running { .. }), "a stop is not taken back: {context}");
            }
            if matches!(event, Event::QemuGone(_)) {
                assert!(is_over, "no exit is lost: {context}");
            }
        }
    }
}

#[test]
fn a_graceful_stop_asks_then_quits_then_kills() {
    let mut machine = life(running());
    let effects = step(
        &mut machine,
        Event::Requested(ChangeRequest::Stop(StopMode::Graceful { within_seconds: Some(7) })),
        at(NOW),
    );
    assert!(effects.contains(&Effect::AskGuest(PowerDownMethod::AgentFirst)));
    assert!(effects.contains(&Effect::TellInit { by_ms: NOW + 7000 }));
    assert_eq!(machine.wake_at_ms(), Some(NOW + 7000));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 6999)), Vec::new());
    assert_eq!(machine.wake_at_ms(), Some(NOW + 7000), "a wake-up that comes early is not the last one");
    assert!(step(&mut machine, Event::TimePassed, at(NOW + 7000)).contains(&Effect::Quit));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 7000 + QUIT_PATIENCE_MS)), vec![Effect::Kill]);
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Signalled { signal: 9 })), at(NOW + 20_000));
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert_eq!(ended.cause, ExitCause::GracePeriodExceeded);
}

#[test]
fn a_stop_that_was_prolonged_has_more_time_and_never_less_than_the_plan_says() {
    for (prolonged, expected_ms) in [(&[][..], 30_000), (&[300], 300_000), (&[300, 60], 300_000), (&[7], 30_000)] {
        let mut machine = life(running());
        for &grace_seconds in prolonged {
            let request = Event::Requested(ChangeRequest::Prolong { grace_seconds });
            assert_eq!(step(&mut machine, request, at(NOW)), Vec::new());
        }
        let effects = step(&mut machine, graceful(None), at(NOW));
        assert!(effects.contains(&Effect::TellInit { by_ms: NOW + expected_ms }), "{prolonged:?}: {effects:?}");
    }
    let mut machine = life(running());
    let _ = step(&mut machine, Event::Requested(ChangeRequest::Prolong { grace_seconds: 300 }), at(NOW));
    let effects = step(&mut machine, graceful(Some(7)), at(NOW));
    assert!(effects.contains(&Effect::TellInit { by_ms: NOW + 7000 }), "it names its own: {effects:?}");
}

#[test]
fn a_stop_that_is_under_way_gets_less_time_and_never_more() {
    for (again, expected_ms) in [(Some(1), 1_000), (Some(0), 0), (Some(300), 180_000), (None, 180_000)] {
        let mut machine = life(running());
        let _ = step(&mut machine, Event::Requested(ChangeRequest::Prolong { grace_seconds: 180 }), at(NOW));
        let _ = step(&mut machine, graceful(None), at(NOW));
        // However often it comes.
        for _ in 0..2 {
            let effects = step(&mut machine, graceful(again), at(NOW));
            assert!(effects.contains(&Effect::TellInit { by_ms: NOW + expected_ms }), "{again:?}: {effects:?}");
        }
        let before = step(&mut machine, Event::TimePassed, at(NOW + expected_ms - 1));
        assert!(!before.contains(&Effect::Quit), "{again:?}: {before:?}");
        assert!(step(&mut machine, Event::TimePassed, at(NOW + expected_ms)).contains(&Effect::Quit), "{again:?}");
        let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), at(NOW + expected_ms));
        let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
        assert_eq!(ended.cause, ExitCause::GracePeriodExceeded);
    }
}

#[test]
fn a_stop_before_the_monitor_answers_is_asked_once_it_does() {
    let mut machine = life(State::Launched);
    let _ =
        step(&mut machine, Event::Requested(ChangeRequest::Stop(StopMode::Graceful { within_seconds: None })), at(NOW));
    let ready = Event::MonitorReady { run_state: RunState::Running, on_ready: OnReady::Leave };
    assert!(step(&mut machine, ready, at(NOW)).contains(&Effect::AskGuest(PowerDownMethod::AgentFirst)));
}

#[test]
fn an_io_error_stays_the_reason_when_stop_follows() {
    let mut machine = life(running());
    let _ = step(&mut machine, io_error(), at(NOW));
    for run_state in [RunState::Paused, RunState::IoError] {
        let _ = step(&mut machine, Event::VcpusStopped { run_state }, at(NOW));
        assert_eq!(machine.state, stopped(PauseReason::PausedIOError));
    }
    let _ = step(&mut machine, Event::VcpusResumed, at(NOW));
    assert_eq!(machine.state, running());
}

#[test]
fn a_guest_that_kvm_gave_up_on_is_not_paused() {
    let mut machine = life(running());
    let effects = step(&mut machine, Event::VcpusStopped { run_state: RunState::InternalError }, at(NOW));
    assert!(effects.contains(&Effect::Quit), "{effects:?}");
    assert_eq!(machine.state, State::Ending { kill_at_ms: NOW + QUIT_PATIENCE_MS });
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), at(NOW));
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert!(!ended.cause.is_success(), "{:?}", ended.cause);
}

#[test]
fn an_unpause_that_qemu_refuses_is_taken_back() {
    for (run_state, reason) in
        [(RunState::Paused, PauseReason::PausedByUser), (RunState::IoError, PauseReason::PausedIOError)]
    {
        let mut machine = life(stopped(reason));
        assert_eq!(step(&mut machine, Event::Requested(ChangeRequest::Unpause), at(NOW)), vec![Effect::LetRun]);
        assert_eq!(step(&mut machine, Event::VcpusStopped { run_state }, at(NOW)), Vec::new());
        assert_eq!(machine.state, stopped(reason));
    }
}

#[test]
fn a_panic_found_on_re_attach_is_still_a_panic() {
    let mut machine = life(State::Launched);
    let _ = step(
        &mut machine,
        Event::MonitorReady { run_state: RunState::GuestPanicked, on_ready: OnReady::Leave },
        at(NOW),
    );
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), at(NOW));
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert_eq!(ended.cause, ExitCause::GuestPanic);
}

#[test]
fn a_guest_that_never_ran_is_not_booted_to_be_switched_off() {
    let found = Event::MonitorReady { run_state: RunState::Prelaunch, on_ready: OnReady::LetRun };
    let mut early = Life { memory: Memory::default(), ..life(State::Launched) };
    let _ = step(&mut early, graceful(None), at(NOW));
    let mut paused = Life { memory: Memory::default(), ..life(State::Launched) };
    let waits = Event::MonitorReady { run_state: RunState::Prelaunch, on_ready: OnReady::Leave };
    let _ = step(&mut paused, waits, at(NOW));
    for (machine, event) in [(&mut early, found), (&mut paused, graceful(None))] {
        let effects = step(machine, event, at(NOW));
        assert!(effects.contains(&Effect::Quit) && !effects.contains(&Effect::LetRun), "{effects:?}");
        let _ = step(machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), at(NOW));
        let State::Ended(ended) = &machine.state else { panic!("{machine:?}") };
        assert_eq!(ended.cause, ExitCause::StoppedGracefully);
    }
}

#[test]
fn a_guest_that_ignores_the_button_is_asked_again() {
    let mut machine = life(running());
    let _ = step(&mut machine, graceful(None), at(NOW));
    for again in [NOW + ASK_AGAIN_MS, NOW + 2 * ASK_AGAIN_MS] {
        assert_eq!(machine.wake_at_ms(), Some(again));
        assert_eq!(step(&mut machine, Event::TimePassed, at(again)), vec![Effect::AskGuest(PowerDownMethod::Button)]);
    }
    let _ = step(&mut machine, Event::TimePassed, at(NOW + 30_000));
    assert!(matches!(machine.state, State::Ending { .. }));
}

#[test]
fn a_guest_without_acpi_is_asked_by_its_agent_alone_and_its_end_is_no_failure() {
    let mut machine = Life { has_acpi: false, ..life(running()) };
    machine.memory.has_agent = true;
    let effects = step(&mut machine, graceful(None), at(NOW));
    assert!(effects.contains(&Effect::AskGuest(PowerDownMethod::Agent)), "{effects:?}");
    // Its agent may have missed it.
    machine.memory.has_agent = false;
    let again = NOW + ASK_AGAIN_MS;
    assert_eq!(step(&mut machine, Event::TimePassed, at(again)), vec![Effect::AskGuest(PowerDownMethod::Agent)]);
    assert!(step(&mut machine, graceful(None), at(again)).contains(&Effect::AskGuest(PowerDownMethod::Agent)));
    assert!(step(&mut machine, Event::TimePassed, at(NOW + 30_000)).contains(&Effect::Quit));
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), at(NOW + 31_000));
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert_eq!(ended.cause, ExitCause::ForceStopped);
}

#[test]
fn a_guest_that_nobody_can_ask_is_not_waited_for() {
    for (has_acpi, has_agent, is_over) in [(false, false, true), (false, true, false), (true, false, false)] {
        let mut machine = Life { has_acpi, ..life(running()) };
        machine.memory.has_agent = has_agent;
        let effects = step(&mut machine, graceful(None), at(NOW));
        assert_eq!(effects.contains(&Effect::Quit), is_over, "{effects:?}");
        assert_eq!(matches!(machine.state, State::Ending { .. }), is_over, "{machine:?}");
        let hints = machine.memory.hints;
        assert_eq!((hints.without_acpi, hints.grace_exceeded, hints.force_requested), (is_over, false, false));
    }
    // Its agent may be on its way to a supervisor that has just come.
    let mut machine = Life { has_acpi: false, ..life(State::Launched) };
    let _ = step(&mut machine, graceful(None), at(NOW));
    let found = Event::MonitorReady { run_state: RunState::Running, on_ready: OnReady::Leave };
    assert!(step(&mut machine, found, at(NOW)).contains(&Effect::AskGuest(PowerDownMethod::Agent)));
}

#[test]
fn an_io_error_is_tried_again_also_during_a_stop() {
    let mut stopping = life(running());
    let _ = step(&mut stopping, graceful(None), at(NOW + 1));
    for mut machine in [life(running()), stopping] {
        let _ = step(&mut machine, io_error(), at(NOW));
        let again = machine.wake_at_ms().unwrap();
        assert_eq!(again, NOW + 10_000);
        assert_eq!(step(&mut machine, Event::TimePassed, at(again)), vec![Effect::LetRun]);
        let _ = step(&mut machine, Event::VcpusResumed, at(again + 1));
        let _ = step(&mut machine, io_error(), at(again + 2));
        assert_eq!(machine.memory.io.at_ms(), Some(again + 20_002));
    }
}

#[test]
fn a_users_pause_is_kept_when_storage_recovers() {
    let mut machine = life(running());
    let _ = step(&mut machine, io_error(), at(NOW));
    assert_eq!(step(&mut machine, Event::Requested(ChangeRequest::Pause), at(NOW)), vec![Effect::StopVcpus]);
    let _ = step(&mut machine, io_error(), at(NOW));
    assert_eq!((machine.state.clone(), machine.wake_at_ms()), (stopped(PauseReason::PausedByUser), None));
    // The next supervisor finds QEMU in `io-error`, and the pause in the journal.
    let memory = Memory { paused_by_user: true, has_run: true, ..Memory::default() };
    let mut machine = Life { memory, ..life(State::Launched) };
    let found = Event::MonitorReady { run_state: RunState::IoError, on_ready: OnReady::Leave };
    let _ = step(&mut machine, found.clone(), at(NOW));
    assert_eq!((machine.state.clone(), machine.wake_at_ms()), (stopped(PauseReason::PausedByUser), None));
    let mut machine = life(State::Launched);
    let _ = step(&mut machine, found, at(NOW));
    assert_eq!(machine.state, stopped(PauseReason::PausedIOError));
    assert_eq!(machine.wake_at_ms(), Some(NOW + 10_000));
}

#[test]
fn a_pause_precedes_a_retry_that_was_reported_already() {
    let mut machine = life(running());
    let _ = step(&mut machine, io_error(), at(NOW));
    let again = machine.wake_at_ms().unwrap();
    assert_eq!(step(&mut machine, Event::TimePassed, at(again)), vec![Effect::LetRun]);
    assert_eq!(step(&mut machine, Event::Requested(ChangeRequest::Pause), at(again)), vec![Effect::StopVcpus]);
    let _ = step(&mut machine, Event::VcpusResumed, at(again + 1));
    let _ = step(&mut machine, Event::VcpusStopped { run_state: RunState::Paused }, at(again + 2));
    let _ = step(&mut machine, io_error(), at(again + 3));
    assert_eq!((machine.state.clone(), machine.wake_at_ms()), (stopped(PauseReason::PausedByUser), None));
}

#[test]
fn states_of_migrations_and_of_a_later_qemu_are_not_a_pause() {
    let mut machine = life(running());
    assert_eq!(step(&mut machine, Event::VcpusStopped { run_state: RunState::Other }, at(NOW)), Vec::new());
    assert_eq!(machine.state, running());
    let mut machine = life(State::Launched);
    let _ = step(&mut machine, Event::MonitorReady { run_state: RunState::Other, on_ready: OnReady::Leave }, at(NOW));
    assert_eq!(machine.state, running());
}

#[test]
fn an_end_without_a_report_has_a_cause_of_its_own() {
    let forced = EndHints { force_requested: true, ..EndHints::default() };
    for (hints, expected) in [(EndHints::default(), ExitCause::MachineKilled), (forced, ExitCause::ForceStopped)] {
        let mut machine = life(running());
        machine.memory.hints = hints;
        assert_eq!(step(&mut machine, Event::Lost, at(NOW)), vec![Effect::Finish]);
        let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
        assert_eq!(ended.cause, expected);
    }
    let mut early = life(State::Preparing);
    assert_eq!(step(&mut early, Event::Lost, at(NOW)), Vec::new());
}

#[test]
fn a_qemu_that_does_not_answer_is_killed_at_once_when_forced() {
    for (is_silent, is_killed) in [(true, true), (false, false)] {
        let mut machine = life(running());
        machine.memory.is_silent = is_silent;
        let effects = step(&mut machine, Event::Requested(ChangeRequest::Stop(StopMode::Force)), at(NOW));
        assert_eq!(effects.contains(&Effect::Kill), is_killed, "{effects:?}");
    }
}

#[test]
fn a_qemu_that_hangs_on_its_way_out_is_killed_and_the_first_cause_is_reported() {
    let last_output = "qemu-system-x86_64: terminating on signal 15 from pid 7 (kill)";
    let killed = ExitReport { killed_by_init: true, ..*report(ProcessEnd::Signalled { signal: 9 }) };
    let reported = ExitReport { last_output: last_output.to_owned(), ..killed.clone() };
    let table = [
        (State::Launched, ShutdownKind::Host, reported.clone(), ExitCause::QemuKilled { signal: 15 }),
        (running(), ShutdownKind::Host, reported, ExitCause::QemuKilled { signal: 15 }),
        (running(), ShutdownKind::Guest, killed.clone(), ExitCause::GuestShutdown),
        (running(), ShutdownKind::GuestReset, killed, ExitCause::GuestReboot),
    ];
    for (state, kind, report, expected) in table {
        let mut machine = life(state);
        let effects = step(&mut machine, Event::Shutdown { kind }, at(NOW));
        assert_eq!(effects, vec![Effect::TellInit { by_ms: NOW + QUIT_PATIENCE_MS }]);
        assert_eq!(machine.wake_at_ms(), Some(NOW + QUIT_PATIENCE_MS));
        assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + QUIT_PATIENCE_MS)), vec![Effect::Kill]);
        let _ = step(&mut machine, Event::QemuGone(Box::new(report)), at(NOW + 20_000));
        let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
        assert_eq!(ended.cause, expected);
    }
}

#[test]
fn a_qemu_that_a_client_made_stay_gets_quit() {
    let mut machine = life(running());
    let _ = step(&mut machine, Event::Shutdown { kind: ShutdownKind::Guest }, at(NOW));
    let stays = Event::VcpusStopped { run_state: RunState::Shutdown };
    assert_eq!(step(&mut machine, stays, at(NOW)), vec![Effect::Quit]);
    assert_eq!(machine.state, State::Ending { kill_at_ms: NOW + QUIT_PATIENCE_MS });
}

/// Whether time alone brings the machine over every deadline it has.
fn is_armed(machine: &Life) -> bool {
    let deadline = match machine.state {
        State::Stopping { force_at_ms, .. } => force_at_ms,
        State::Ending { kill_at_ms } => kill_at_ms,
        State::Preparing | State::Launched | State::Running { .. } | State::Ended(_) => return true,
    };
    machine.wake_at_ms().is_some_and(|at_ms| at_ms <= deadline)
}

fn events() -> impl Strategy<Value = Event> {
    prop::sample::select(all_events())
}

proptest! {
    /// Whatever happens and however clocks are set: a stop has an armed wake-up at or before its deadline, and one that
    /// came is not due again at once.
    #[test]
    fn in_stopping_and_ending_a_wake_is_armed_at_or_before_the_deadline(
        start in prop::sample::select(all_machines()),
        events in prop::collection::vec((events(), 0_i64..40_000, any::<i64>()), 0..60),
    ) {
        let mut machine = start;
        let mut boot_ms = NOW;
        for (event, later, wall_ms) in events {
            boot_ms += later;
            let time_passed = event == Event::TimePassed;
            let _ = step(&mut machine, event, Now { boot_ms, wall_ms });
            prop_assert!(is_armed(&machine) && is_tidy(&machine), "{machine:?}");
            if time_passed {
                prop_assert!(machine.wake_at_ms().is_none_or(|at_ms| at_ms > boot_ms), "{machine:?} at {boot_ms}");
            }
        }
    }

    /// With nothing but its own wake-ups, some of them early, a graceful stop sends `quit` at its deadline and
    /// SIGKILL ten seconds later.
    #[test]
    fn a_stop_ends_by_its_own_wakes(grace in 0_u64..4000, early in prop::collection::vec(0_i64..2000, 0..50)) {
        let mut machine = life(running());
        let _ = step(&mut machine, graceful(Some(grace)), at(NOW));
        let force_at = NOW + i64::try_from(grace).unwrap() * 1000;
        let mut now = NOW;
        let mut early = early.into_iter();
        let mut quit_at = matches!(machine.state, State::Ending { .. }).then_some(NOW);
        loop {
            let wake = machine.wake_at_ms().unwrap();
            now = (wake - early.next().unwrap_or(0)).max(now);
            let effects = step(&mut machine, Event::TimePassed, at(now));
            if effects.contains(&Effect::Quit) {
                quit_at = Some(now);
            }
            if effects.contains(&Effect::Kill) {
                break;
            }
        }
        prop_assert_eq!(quit_at, Some(force_at));
        prop_assert_eq!(now, force_at + QUIT_PATIENCE_MS);
    }
}
