//! When the next supervisor of a run is started. Pure.

use std::time::Duration;

/// How long after the end of one that lived the next is started.
pub(crate) const USUAL: Duration = Duration::from_millis(100);
/// How long at most, where each dies at once or none can be started: the host may have no process or descriptor left.
const LONGEST: Duration = Duration::from_secs(1);

/// The supervisors of one run, as far as it matters here.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// How many in a row died at once.
    at_once: u32,
}

impl Restarts {
    /// How long to wait after one that lived this long; one that could not be started lived 0 s.
    pub(crate) fn pause(&mut self, lived: Duration) -> Duration {
        self.at_once = if lived < USUAL { self.at_once.saturating_add(1) } else { 0 };
        let doublings = self.at_once.saturating_sub(1).min(16);
        USUAL.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_die_at_once_are_followed_less_and_less_often() {
        let mut restarts = Restarts::default();
        let mut pauses = |lived: u64| restarts.pause(Duration::from_millis(lived)).as_millis();
        assert_eq!([0, 5, 5, 5, 5, 5].map(&mut pauses), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!([3000, 5, 5].map(&mut pauses), [100, 100, 200]);
        assert!((0..100_000).all(|_| pauses(0) <= 1000));
    }
}
