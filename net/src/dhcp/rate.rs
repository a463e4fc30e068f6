//! How many answers may leave: a bucket that fills steadily. Time is an argument.

use std::time::Duration;

/// A bucket of permissions.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// Time one permission takes to grow.
    each: Duration,
    /// How many fit.
    burst: u32,
    /// When the bucket would have been empty had it filled steadily since: the later, the emptier it is.
    spent_until: Duration,
}

impl RateLimit {
    /// At most `per_second` (at least 1) in the long run, at most `burst` at once. Starts full.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self { each: Duration::from_secs(1) / per_second.max(1), burst, spent_until: Duration::ZERO }
    }

    /// Takes one permission if there is one. `now` counts from any fixed moment and does not go back.
    pub fn admit(&mut self, now: Duration) -> bool {
        let spent_until = self.spent_until.max(now) + self.each;
        let admitted = spent_until <= now + self.each * self.burst;
        if admitted {
            self.spent_until = spent_until;
        }
        admitted
    }
}

/// Whether messages are refused just now. A line of the log for each would let a guest write as many as it sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    last_was_refused: bool,
}

impl Refusals {
    /// Notes what became of a message; whether it is the first that is refused since one was admitted.
    pub(super) fn is_first(&mut self, is_admitted: bool) -> bool {
        let is_first = !is_admitted && !self.last_was_refused;
        self.last_was_refused = !is_admitted;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_passes_and_then_the_steady_rate() {
        let mut limit = RateLimit::new(10, 3);
        let at = |ms| Duration::from_millis(ms);
        let admitted = |limit: &mut RateLimit, ms| (0..5).filter(|_| limit.admit(at(ms))).count();
        assert_eq!(admitted(&mut limit, 0), 3);
        assert_eq!(admitted(&mut limit, 99), 0);
        assert_eq!(admitted(&mut limit, 100), 1);
        assert_eq!(admitted(&mut limit, 10_000), 3);
    }

    #[test]
    fn of_a_flood_few_refusals_are_worth_a_line() {
        let (mut limit, mut refusals) = (RateLimit::new(10, 40), Refusals::default());
        let mut is_line = |each: u64| {
            let is_admitted = limit.admit(Duration::from_micros(100 * each));
            refusals.is_first(is_admitted)
        };
        // Ten seconds of it.
        let lines = (0..100_000).filter(|each| is_line(*each)).count();
        assert!((1..=110).contains(&lines), "{lines}");
        assert!(!is_line(1_000_000), "a message after a pause is answered");
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate_allow(steps in proptest::collection::vec(0u64..50, 1..400)) {
            let mut limit = RateLimit::new(20, 4);
            let (mut now, mut passed) = (Duration::ZERO, 0u64);
            for step in steps {
                now += Duration::from_millis(step);
                passed += u64::from(limit.admit(now));
            }
            prop_assert!(passed <= 4 + u64::try_from(now.as_millis()).unwrap() / 50);
        }
    }
}
