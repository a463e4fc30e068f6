use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{PauseReason, StopMode};
use proptest::prelude::*;

use super::*;
use crate::vm::{Event, Memory, OnReady, RunState, step};

const NOW: i64 = 1_000_000;

fn at(boot_ms: i64) -> Now {
    Now { boot_ms, wall_ms: 7 }
}

fn machine() -> Life {
    let state = State::Running { vcpus: Vcpus::Running };
    let memory = Memory { has_run: true, ..Memory::default() };
    Life { grace_ms: 30_000, ..Life::unplanned(state, memory) }
}

fn freeze(machine: &mut Life, thaw_after_seconds: Option<u64>, now: i64) {
    let request = Event::Requested(ChangeRequest::Freeze { thaw_after_seconds });
    assert_eq!(step(machine, request, at(now)), [Effect::Freeze]);
}

fn frozen() -> Life {
    let mut machine = machine();
    freeze(&mut machine, Some(300), NOW);
    assert!(!machine.memory.frozen, "the agent has not answered yet");
    assert_eq!(step(&mut machine, Event::Froze, at(NOW + 5)), []);
    machine
}

#[test]
fn what_is_frozen_is_thawed_when_its_time_is_over_and_again_until_it_is() {
    let mut machine = frozen();
    assert_eq!((machine.memory.frozen, machine.wake_at_ms()), (true, Some(NOW + 300_000)));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 299_999)), []);
    for at_ms in [NOW + 300_000, NOW + 300_000 + THAW_AGAIN_MS] {
        assert_eq!(step(&mut machine, Event::TimePassed, at(at_ms)), [Effect::Thaw]);
        assert_eq!(step(&mut machine, Event::DidNotThaw, at(at_ms + 5)), []);
    }
    assert_eq!(step(&mut machine, Event::Thawed, at(NOW + 320_000)), []);
    assert_eq!((machine.memory.frozen, machine.memory.freeze, machine.wake_at_ms()), (false, None, None));
}

#[test]
fn a_second_freeze_moves_the_deadline_and_none_means_never() {
    let mut machine = frozen();
    freeze(&mut machine, Some(600), NOW + 1000);
    assert_eq!(machine.wake_at_ms(), Some(NOW + 601_000));
    freeze(&mut machine, None, NOW + 2000);
    assert_eq!(machine.wake_at_ms(), None);
    // What was frozen stays so where the second one fails.
    let _ = step(&mut machine, Event::DidNotFreeze { may_have_frozen: false }, at(NOW + 3000));
    assert!(machine.memory.frozen && machine.memory.freeze.is_some());
    let unfreeze = Event::Requested(ChangeRequest::Unfreeze);
    assert_eq!(step(&mut machine, unfreeze, at(NOW + 4000)), [Effect::Thaw]);
}

#[test]
fn a_freeze_during_a_thaw_keeps_its_own_deadline() {
    let mut machine = frozen();
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 300_000)), [Effect::Thaw]);
    freeze(&mut machine, Some(60), NOW + 300_001);
    let _ = step(&mut machine, Event::Thawed, at(NOW + 300_002));
    let _ = step(&mut machine, Event::Froze, at(NOW + 300_003));
    assert_eq!((machine.memory.frozen, machine.wake_at_ms()), (true, Some(NOW + 360_001)));
    let _ = step(&mut machine, Event::Thawed, at(NOW + 300_004));
    assert_eq!((machine.memory.frozen, machine.wake_at_ms()), (false, None));
}

#[test]
fn a_freeze_that_may_have_happened_is_taken_back() {
    for (may_have_frozen, effects) in [(true, vec![Effect::Thaw]), (false, vec![])] {
        let mut machine = machine();
        freeze(&mut machine, None, NOW);
        let _ = step(&mut machine, Event::DidNotFreeze { may_have_frozen }, at(NOW + 5));
        assert_eq!(machine.memory.freeze.is_some(), may_have_frozen);
        assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 5)), effects);
    }
}

#[test]
fn a_guest_that_is_to_shut_down_is_thawed_first() {
    for request in [ChangeRequest::SoftReboot, ChangeRequest::Stop(StopMode::Graceful { within_seconds: None })] {
        let mut machine = frozen();
        let effects = step(&mut machine, Event::Requested(request), at(NOW + 10));
        assert_eq!(effects.first(), Some(&Effect::Thaw), "{request:?}: {effects:?}");
        assert!(!step(&mut self::machine(), Event::Requested(request), at(NOW)).contains(&Effect::Thaw));
    }
    let mut machine = machine();
    freeze(&mut machine, None, NOW);
    let _ =
        step(&mut machine, Event::Requested(ChangeRequest::Stop(StopMode::Graceful { within_seconds: None })), at(NOW));
    assert_eq!(step(&mut machine, Event::Froze, at(NOW + 5)), [Effect::Thaw], "it froze after the stop");
}

#[test]
fn a_guest_that_starts_again_has_nothing_frozen() {
    let mut machine = frozen();
    let _ = step(&mut machine, Event::WasReset, at(NOW + 10));
    assert_eq!((machine.memory.frozen, machine.memory.freeze), (false, None));
}

#[test]
fn what_the_agent_reports_is_shown_and_moves_no_deadline() {
    let mut machine = frozen();
    for is_frozen in [false, true] {
        let _ = step(&mut machine, Event::FreezeReported { frozen: is_frozen }, at(NOW + 10));
        assert_eq!((machine.memory.frozen, machine.wake_at_ms()), (is_frozen, Some(NOW + 300_000)));
    }
}

#[test]
fn a_guest_that_is_paused_is_not_asked_until_it_runs() {
    let mut machine = frozen();
    let _ = step(&mut machine, Event::Requested(ChangeRequest::Pause), at(NOW + 10));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 300_000)), []);
    assert_eq!(machine.state, State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) });
    let _ = step(&mut machine, Event::Requested(ChangeRequest::Unpause), at(NOW + 301_000));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 310_000)), [Effect::Thaw]);
}

#[test]
fn the_next_supervisor_has_the_deadline() {
    let mut machine = Life { state: State::Launched, ..frozen() };
    let ready = Event::MonitorReady { run_state: RunState::Running, on_ready: OnReady::Leave };
    let _ = step(&mut machine, ready, at(NOW + 400_000));
    assert_eq!(step(&mut machine, Event::TimePassed, at(NOW + 400_000)), [Effect::Thaw]);
}

proptest! {
    /// However often it is frozen, and whatever its agent answers: a guest with a deadline is thawed when that is over.
    #[test]
    fn a_deadline_is_always_kept(
        events in prop::collection::vec((0_usize..6, 0_i64..20_000), 0..40),
    ) {
        let mut machine = machine();
        let mut now = NOW;
        freeze(&mut machine, Some(60), now);
        for (which, later) in events {
            now += later;
            let event = match which {
                0 => Event::Froze,
                1 => Event::DidNotFreeze { may_have_frozen: true },
                2 => Event::DidNotThaw,
                3 => Event::FreezeReported { frozen: true },
                4 => Event::Requested(ChangeRequest::Freeze { thaw_after_seconds: Some(60) }),
                _ => Event::TimePassed,
            };
            let _ = step(&mut machine, event, at(now));
            prop_assert!(machine.wake_at_ms().is_some_and(|at_ms| at_ms <= now + 60_000), "{machine:?}");
        }
        let wake = machine.wake_at_ms().unwrap();
        prop_assert!(step(&mut machine, Event::TimePassed, at(wake)).contains(&Effect::Thaw));
    }
}
