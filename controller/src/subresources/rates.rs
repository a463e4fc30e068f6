//! How often each of many may do something: token buckets. Pure: the time is passed in.
//!
//! Of a bucket nothing is kept but when it is full again (the generic cell rate algorithm, ITU-T I.371, of which this is the form
//! with a virtual clock); one that is full need not be kept. Names are kept as their hashes: whatever users are called, all of it has a bound.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The most buckets that are kept: at the usual rates, as many users as ask within milliseconds.
const MOST_BUCKETS: usize = 8192;

/// How often one may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Tokens that come back in a second; at least one.
    pub(super) per_second: u32,
    /// Tokens of a full bucket.
    pub(super) burst: u32,
}

impl Rate {
    /// How long until a token comes back.
    fn pause(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }

    /// How long until an empty bucket is full.
    fn whole(self) -> Duration {
        self.pause() * self.burst
    }
}

/// The buckets of many.
#[derive(Debug)]
pub(super) struct Buckets {
    rate: Rate,
    /// How many are kept.
    most: usize,
    hashes: RandomState,
    /// When each of those is full again that are not, by the hash of its name.
    full_at: HashMap<u64, Instant>,
}

impl Buckets {
    /// All are full.
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, most: MOST_BUCKETS, hashes: RandomState::new(), full_at: HashMap::new() }
    }

    /// Takes a token of this one's.
    ///
    /// # Errors
    /// There is none: after how long there is one again, if no other request takes it.
    pub(super) fn take(&mut self, whose: &str, now: Instant) -> Result<(), Duration> {
        let name = self.hashes.hash_one(whose);
        let known = self.full_at.get(&name).copied();
        let full_at = known.map_or(now, |full_at| full_at.max(now)) + self.rate.pause();
        let missing = full_at.duration_since(now).saturating_sub(self.rate.whole());
        if !missing.is_zero() {
            return Err(missing);
        }
        if known.is_none() {
            self.make_room(now);
        }
        self.full_at.insert(name, full_at);
        Ok(())
    }

    /// Forgets those that are full, and where none is, the one that is so soonest: it gets the least by that.
    fn make_room(&mut self, now: Instant) {
        if self.full_at.len() < self.most {
            return;
        }
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() < self.most {
            return;
        }
        let soonest = self.full_at.iter().min_by_key(|(_, full_at)| **full_at).map(|(name, _)| *name);
        if let Some(name) = soonest {
            self.full_at.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 3 };
    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_let_through_and_then_so_many_in_a_second() {
        let (mut buckets, begun) = (Buckets::new(RATE), Instant::now());
        for _ in 0..3 {
            assert_eq!(buckets.take("ada", begun), Ok(()));
        }
        assert_eq!(buckets.take("ada", begun), Err(100 * MILLISECOND));
        assert_eq!(buckets.take("ada", begun + 60 * MILLISECOND), Err(40 * MILLISECOND), "a refusal takes none");
        assert_eq!(buckets.take("bob", begun), Ok(()), "another one's bucket is its own");
        let mut now = begun + 100 * MILLISECOND;
        for _ in 0..20 {
            assert_eq!(buckets.take("ada", now), Ok(()));
            assert_eq!(buckets.take("ada", now), Err(100 * MILLISECOND));
            now += 100 * MILLISECOND;
        }
        now += Duration::from_secs(3600);
        let taken = (0..10).filter(|_| buckets.take("ada", now).is_ok()).count();
        assert_eq!(taken, 3, "a bucket has no more than its burst");
    }

    #[test]
    fn a_clock_that_does_not_go_on_or_goes_back_gives_nothing_back() {
        let (mut buckets, begun) = (Buckets::new(RATE), Instant::now() + Duration::from_secs(10));
        let earlier = begun - Duration::from_secs(1);
        for _ in 0..3 {
            assert_eq!(buckets.take("ada", begun), Ok(()));
        }
        assert_eq!(buckets.take("ada", earlier), Err(1100 * MILLISECOND));
    }

    #[test]
    fn those_that_are_full_are_forgotten_and_there_are_never_more_than_so_many() {
        let (mut buckets, begun) = (Buckets { most: 4, ..Buckets::new(RATE) }, Instant::now());
        for number in 0..4 {
            assert_eq!(buckets.take(&format!("account-{number}"), begun), Ok(()));
        }
        for _ in 0..2 {
            assert_eq!(buckets.take("account-0", begun), Ok(()));
        }
        // None is full: one of those that need least until they are is taken for it.
        assert_eq!(buckets.take("account-4", begun), Ok(()));
        assert_eq!(buckets.full_at.len(), 4);
        assert!(buckets.take("account-0", begun).is_err(), "the one that has taken most is still known");
        let later = begun + Duration::from_secs(1);
        assert_eq!(buckets.take("account-5", later), Ok(()));
        assert_eq!(buckets.full_at.len(), 1, "all others were full");
        for number in 0..1000 {
            let _ = buckets.take(&format!("account-{number}"), later);
        }
        assert!(buckets.full_at.len() <= 4);
    }
}
