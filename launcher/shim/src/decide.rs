//! Again, when, or not: what follows the end of a run under its machine's run strategy. Pure.
//!
//! ```text
//!   RunEnd { cause, reached, stop } ──► History::follow(strategy, …) ──► Leave
//!                                                                    └──► Again after a pause
//! ```
//!
//! KubeVirt's rules (inventory of its VM controller): a start that ended before the guest ran counts as failed and is
//! paid for with a growing pause; the count begins again once a guest has run. Two are a bare host's own: a machine
//! that never ran is not tried again, because the user who started it waits for the answer, and starts lie a moment
//! apart, because no scheduler slows them down here.

use std::time::Duration;

use garboard_api::RunStrategy;
use garboard_api::run_strategy::backoff;
use garboard_protocol::exit::ExitCause;

/// The least time from one start to the next.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

fn restarts_after(strategy: RunStrategy, cause: &ExitCause) -> bool {
    match strategy {
        RunStrategy::Always => true,
        RunStrategy::RerunOnFailure => !cause.is_success(),
        RunStrategy::Once | RunStrategy::Manual | RunStrategy::Halted => false,
    }
}

/// How a run ended, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEnd {
    /// Its cause.
    pub(crate) cause: ExitCause,
    /// How far it got.
    pub(crate) reached: Reached,
    /// Whether it is to stay down.
    pub(crate) stop: StopRequest,
    /// From its start to its end.
    pub(crate) lasted: Duration,
}

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The guest ran: KubeVirt's phase `Running` was seen.
    Running,
    /// It ended before.
    NotRunning,
}

/// Whether a user stopped a machine whose run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// No: the strategy decides.
    None,
    /// Yes: it was stopped.
    Requested,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Clear everything away.
    Leave,
    /// Start it again after this pause.
    Again(Duration),
}

/// What is remembered of a machine's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Whether its guest ever ran.
    has_run: bool,
    /// Starts that failed since its guest last ran.
    failures: u32,
}

impl History {
    /// Starts that failed since the guest last ran.
    pub(crate) fn failures(self) -> u32 {
        self.failures
    }

    /// Records a run's end and returns what follows. `chance` is any number: it spreads the pauses of machines that fail
    /// together.
    pub(crate) fn follow(&mut self, strategy: RunStrategy, end: &RunEnd, chance: u64) -> Next {
        match end.reached {
            Reached::Running => *self = Self { has_run: true, failures: 0 },
            Reached::NotRunning => self.failures = self.failures.saturating_add(1),
        }
        if end.stop == StopRequest::Requested || !self.has_run || !restarts_after(strategy, &end.cause) {
            return Next::Leave;
        }
        Next::Again(backoff(self.failures, chance).max(BETWEEN_STARTS.saturating_sub(end.lasted)))
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::testing::causes;

    use super::*;
    use Reached::{NotRunning, Running};
    use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};

    fn end(cause: ExitCause, reached: Reached) -> RunEnd {
        RunEnd { cause, reached, stop: StopRequest::None, lasted: Duration::from_secs(60) }
    }

    fn not_started() -> ExitCause {
        ExitCause::NotStarted { message: "no disk".into() }
    }

    #[test]
    fn each_strategy_asks_for_another_run_after_its_own_ends() {
        for cause in causes() {
            let failed = !cause.is_success();
            let table = [(Always, true), (RerunOnFailure, failed), (Once, false), (Manual, false), (Halted, false)];
            for (strategy, again) in table {
                let next = History::default().follow(strategy, &end(cause.clone(), Running), 7);
                let wanted = if again { Next::Again(Duration::ZERO) } else { Next::Leave };
                assert_eq!(next, wanted, "{strategy:?} after {cause:?}");
            }
        }
    }

    #[test]
    fn a_machine_that_was_stopped_stays_down() {
        for cause in causes() {
            for strategy in [Always, RerunOnFailure, Once, Manual, Halted] {
                for reached in [Running, NotRunning] {
                    let mut history = History { has_run: true, failures: 2 };
                    let stopped = RunEnd { stop: StopRequest::Requested, ..end(cause.clone(), reached) };
                    assert_eq!(history.follow(strategy, &stopped, 0), Next::Leave, "{strategy:?} after {cause:?}");
                }
            }
        }
    }

    #[test]
    fn a_machine_that_never_ran_is_not_tried_again() {
        for strategy in [Always, RerunOnFailure] {
            assert_eq!(History::default().follow(strategy, &end(not_started(), NotRunning), 0), Next::Leave);
        }
    }

    #[test]
    fn failed_starts_wait_longer_and_longer_until_the_guest_runs_again() {
        let mut history = History::default();
        let killed = end(ExitCause::QemuKilled { signal: 9 }, Running);
        assert_eq!(history.follow(Always, &killed, 0), Next::Again(Duration::ZERO));
        for (failures, seconds) in [(1, 10), (2, 40), (3, 90), (4, 160), (5, 250), (6, 300), (7, 300)] {
            let next = history.follow(Always, &end(not_started(), NotRunning), 0);
            assert_eq!((history.failures(), next), (failures, Next::Again(Duration::from_secs(seconds))));
        }
        assert_eq!(history.follow(RerunOnFailure, &killed, 0), Next::Again(Duration::ZERO));
        assert_eq!(history.failures(), 0);
    }

    #[test]
    fn chance_adds_at_most_half_and_the_longest_pause_holds() {
        for failures in [0, 1, 2, 5, 6, 1000, u32::MAX] {
            let least = backoff(failures, 0);
            for chance in [1, 5, 6, 20, 99, u64::MAX] {
                let pause = backoff(failures, chance);
                assert!(pause >= least && pause <= least + least / 2, "{failures} {chance}: {pause:?}");
                assert!(pause <= Duration::from_secs(300), "{failures} {chance}: {pause:?}");
            }
        }
        assert_eq!(backoff(1, 5), Duration::from_secs(15));
        assert_eq!(backoff(1, 6), Duration::from_secs(10));
    }

    #[test]
    fn runs_that_end_at_once_do_not_spin() {
        let short = RunEnd { lasted: Duration::from_millis(300), ..end(ExitCause::GuestShutdown, Running) };
        assert_eq!(History::default().follow(Always, &short, 0), Next::Again(Duration::from_millis(700)));
    }

    #[test]
    fn a_strategy_of_a_cluster_is_none_of_ours() {
        for strategy in [Always, RerunOnFailure, Once, Manual, Halted] {
            assert_eq!(RunStrategy::parse(&format!("{strategy:?}")), Some(strategy));
        }
        assert_eq!(RunStrategy::parse("WaitAsReceiver"), None);
    }
}
