use super::*;
use crate::vm::Memory;
use garboard_protocol::exit::ProcessEnd;

const NOW: i64 = 1_000_000;

fn life(state: State) -> Life {
    Life { state, memory: Memory::default(), grace_ms: 30_000 }
}

fn report(end: ProcessEnd) -> Box<ExitReport> {
    Box::new(ExitReport {
        end,
        oom_kills: 0,
        memory_limit_bytes: None,
        asked_by_init: false,
        killed_by_init: false,
        last_words: String::new(),
        failure: None,
    })
}

fn running() -> State {
    State::Running { vcpus: Vcpus::Running }
}

fn all_states() -> Vec<State> {
    vec![
        State::Preparing,
        State::Launched,
        running(),
        State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) },
        State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedIOError) },
        State::Stopping { force_at_ms: NOW + 5, asked: Asked::Yes },
        State::Stopping { force_at_ms: NOW + 5, asked: Asked::NotYet },
        State::Ending { kill_at_ms: NOW + 5 },
        ended(ExitCause::GuestShutdown, None, NOW),
    ]
}

fn all_events() -> Vec<Event> {
    let mut events = vec![
        Event::Spawned,
        Event::WasReset,
        Event::VcpusResumed,
        Event::StoppedByIoError,
        Event::Panicked,
        Event::WatchdogFired,
        Event::TimePassed,
        Event::QemuGone(report(ProcessEnd::Exited { code: 0 })),
        Event::QemuGone(report(ProcessEnd::Signalled { signal: 9 })),
        Event::PreparationFailed("no disk".into()),
        Event::Requested(Request::Pause),
        Event::Requested(Request::Unpause),
        Event::Requested(Request::Reset),
        Event::Requested(Request::Stop(StopMode::Force)),
        Event::Requested(Request::Stop(StopMode::Graceful { within_seconds: None })),
        Event::Requested(Request::Stop(StopMode::Graceful { within_seconds: Some(0) })),
    ];
    for reason in [ShutdownReason::Guest, ShutdownReason::GuestReset, ShutdownReason::GuestPanic, ShutdownReason::Host]
    {
        events.push(Event::Shutdown { reason });
    }
    for run_state in [
        RunState::Running,
        RunState::Paused,
        RunState::IoError,
        RunState::GuestPanicked,
        RunState::Watchdog,
        RunState::Shutdown,
        RunState::InternalError,
    ] {
        events.push(Event::VcpusStopped { run_state });
        events.push(Event::MonitorReady { run_state, on_ready: OnReady::LetRun });
        events.push(Event::MonitorReady { run_state, on_ready: OnReady::Leave });
    }
    events
}

#[test]
fn every_pair_keeps_the_invariants() {
    for state in all_states() {
        for event in all_events() {
            let mut machine = life(state.clone());
            let effects = step(&mut machine, event.clone(), NOW);
            let context = format!("{state:?} + {event:?} -> {machine:?} {effects:?}");
            let was_over = matches!(state, State::Ended(_));
            let is_over = matches!(machine.state, State::Ended(_));
            assert!(!was_over || is_over, "an ended machine does not come back: {context}");
            assert!(!was_over || effects.is_empty(), "nothing is done to an ended machine: {context}");
            assert_eq!(effects.contains(&Effect::Finish), is_over && !was_over, "finished exactly once: {context}");
            if let State::Stopping { .. } = machine.state {
                let is_forced_later = matches!(state, State::Stopping { .. })
                    || effects.iter().any(|effect| matches!(effect, Effect::WakeAt { .. }));
                assert!(is_forced_later, "a stop always has a deadline: {context}");
            }
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
    let effects =
        step(&mut machine, Event::Requested(Request::Stop(StopMode::Graceful { within_seconds: Some(7) })), NOW);
    assert!(effects.contains(&Effect::AskGuest) && effects.contains(&Effect::WakeAt { at_ms: NOW + 7000 }));
    assert_eq!(step(&mut machine, Event::TimePassed, NOW + 6999), Vec::new());
    assert!(step(&mut machine, Event::TimePassed, NOW + 7000).contains(&Effect::Quit));
    assert_eq!(step(&mut machine, Event::TimePassed, NOW + 7000 + QUIT_PATIENCE_MS), vec![Effect::Kill]);
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Signalled { signal: 9 })), NOW + 20_000);
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert_eq!(ended.cause, ExitCause::GracePeriodExceeded);
}

#[test]
fn a_stop_before_the_monitor_answers_is_asked_once_it_does() {
    let mut machine = life(State::Launched);
    let _ = step(&mut machine, Event::Requested(Request::Stop(StopMode::Graceful { within_seconds: None })), NOW);
    let ready = Event::MonitorReady { run_state: RunState::Paused, on_ready: OnReady::LetRun };
    assert!(step(&mut machine, ready, NOW).contains(&Effect::AskGuest));
}

#[test]
fn an_io_error_stays_the_reason_when_stop_follows() {
    let mut machine = life(running());
    let _ = step(&mut machine, Event::StoppedByIoError, NOW);
    for run_state in [RunState::Paused, RunState::IoError] {
        let _ = step(&mut machine, Event::VcpusStopped { run_state }, NOW);
        assert_eq!(machine.state, stopped(PauseReason::PausedIOError));
    }
    let _ = step(&mut machine, Event::VcpusResumed, NOW);
    assert_eq!(machine.state, running());
}

#[test]
fn a_guest_that_kvm_gave_up_on_is_not_paused() {
    let mut machine = life(running());
    let effects = step(&mut machine, Event::VcpusStopped { run_state: RunState::InternalError }, NOW);
    assert!(effects.contains(&Effect::Quit), "{effects:?}");
    assert_eq!(machine.state, State::Ending { kill_at_ms: NOW + QUIT_PATIENCE_MS });
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), NOW);
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert!(!ended.cause.is_success(), "{:?}", ended.cause);
}

#[test]
fn an_unpause_that_qemu_refuses_is_taken_back() {
    for (run_state, reason) in
        [(RunState::Paused, PauseReason::PausedByUser), (RunState::IoError, PauseReason::PausedIOError)]
    {
        let mut machine = life(stopped(reason));
        assert_eq!(step(&mut machine, Event::Requested(Request::Unpause), NOW), vec![Effect::LetRun]);
        assert_eq!(step(&mut machine, Event::VcpusStopped { run_state }, NOW), Vec::new());
        assert_eq!(machine.state, stopped(reason));
    }
}

#[test]
fn a_panic_found_on_re_attach_is_still_a_panic() {
    let mut machine = life(State::Launched);
    let _ =
        step(&mut machine, Event::MonitorReady { run_state: RunState::GuestPanicked, on_ready: OnReady::Leave }, NOW);
    let _ = step(&mut machine, Event::QemuGone(report(ProcessEnd::Exited { code: 0 })), NOW);
    let State::Ended(ended) = machine.state else { panic!("{machine:?}") };
    assert_eq!(ended.cause, ExitCause::GuestPanic);
}
