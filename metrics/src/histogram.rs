//! Durations that are counted in buckets, from many threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ends of the buckets, seconds: KubeVirt's for durations of phases, from half a second to an
/// hour, and finer ones below for what takes milliseconds here.
pub const ENDS: [f64; 21] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0,
    1800.0, 3600.0,
];

/// Counted durations.
#[derive(Debug, Default)]
pub struct Histogram(Mutex<Counted>);

#[derive(Clone, Debug, Default)]
struct Counted {
    /// Of each bucket alone; the last one has what is above all ends.
    counts: [u64; ENDS.len() + 1],
    sum: f64,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The end of each bucket, and how many were at most that.
    pub up_to: Vec<(f64, u64)>,
    /// All together.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Histogram {
    /// Counts one, of so many seconds; less than none is none.
    pub fn observe(&self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let place = ENDS.iter().position(|end| seconds <= *end).unwrap_or(ENDS.len());
        let mut counted = self.lock();
        if let Some(count) = counted.counts.get_mut(place) {
            *count += 1;
        }
        counted.sum += seconds;
    }

    /// What was counted so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let counted = self.lock().clone();
        let mut count = 0;
        let mut up_to = Vec::with_capacity(ENDS.len());
        for (end, of_bucket) in ENDS.iter().zip(counted.counts) {
            count += of_bucket;
            up_to.push((*end, count));
        }
        let [.., above] = counted.counts;
        Seen { up_to, sum: counted.sum, count: count + above }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_all_buckets_that_end_after_it() {
        let histogram = Histogram::default();
        for seconds in [-1.0, 0.05, 0.06, 3600.0, 3601.0] {
            histogram.observe(seconds);
        }
        let seen = histogram.seen();
        assert_eq!((seen.up_to[0], seen.up_to[1], seen.up_to[20]), ((0.05, 2), (0.1, 3), (3600.0, 4)));
        assert_eq!(seen.count, 5);
        assert!((seen.sum - 7201.11).abs() < 1e-6, "{}", seen.sum);
    }
}
