//! How long reconciliations take: counted here, and served at `/debug/reconciles` ([`crate::health`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use garboard_metrics::{ENDS, Seen, as_float};
use serde_json::{Value, json};

/// Parts of each doubling, so that a duration is known to a quarter of itself.
const PARTS: u32 = 4;
/// Enough for an hour and more.
const BUCKETS: usize = 124;

/// How often which duration was seen.
#[derive(Debug)]
pub struct Durations {
    counts: [AtomicU64; BUCKETS],
    /// All together, microseconds.
    total: AtomicU64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), total: AtomicU64::new(0) }
    }
}

impl Durations {
    /// Counts one.
    pub fn add(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get(bucket(micros)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.total.fetch_add(micros, Ordering::Relaxed);
    }

    /// Pairs of numbers: so many took less than so many microseconds, and not less than those of the pair before.
    #[must_use]
    pub fn seen(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(place, count)| (end(place), count)).collect()
    }

    /// The same for Prometheus, in fewer and rounder buckets. One whose range ends above the end of a bucket is in the next one.
    #[must_use]
    pub fn histogram(&self) -> Seen {
        const MICROS: f64 = 1e6;
        let seen = self.seen();
        let below = |seconds: f64| -> u64 {
            let ended = seen.iter().filter(|(end, _)| as_float(*end) <= seconds * MICROS);
            ended.map(|(_, count)| count).sum()
        };
        Seen {
            up_to: ENDS.iter().map(|end| (*end, below(*end))).collect(),
            sum: as_float(self.total.load(Ordering::Relaxed)) / MICROS,
            count: seen.iter().map(|(_, count)| count).sum(),
        }
    }
}

/// Those of every reconciler, since this process began.
#[derive(Debug, Default)]
pub struct Reconciles {
    /// Of VirtualMachines.
    pub machines: Durations,
    /// Of VirtualMachineInstances.
    pub instances: Durations,
    /// Of VirtualMachineInstanceReplicaSets.
    pub replica_sets: Durations,
    /// Of VirtualMachinePools.
    pub pools: Durations,
}

impl Reconciles {
    /// As JSON, by kind: pairs of the end of a range in microseconds and how many fell into it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "VirtualMachine": self.machines.seen(),
            "VirtualMachineInstance": self.instances.seen(),
            "VirtualMachineInstanceReplicaSet": self.replica_sets.seen(),
            "VirtualMachinePool": self.pools.seen(),
        })
    }
}

/// The place of a duration: below [`PARTS`] its own, and above it by the highest bits.
fn bucket(micros: u64) -> usize {
    let doublings = micros.max(1).ilog2();
    let place = match doublings.checked_sub(PARTS.ilog2()) {
        None => micros,
        Some(shift) => u64::from(shift * PARTS) + (micros >> shift),
    };
    usize::try_from(place).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The first duration that is too long for a place, microseconds.
fn end(place: usize) -> u64 {
    let (place, parts) = (place as u64 + 1, u64::from(PARTS));
    if place <= 2 * parts {
        return place;
    }
    // The last of a range is the first of the next one.
    let (shift, part) = ((place - parts) / parts, place % parts);
    (parts + part) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_range_that_ends_after_it() {
        for micros in (0..100_000).chain([1 << 30, (1 << 31) - 1]) {
            let place = bucket(micros);
            assert!(micros < end(place), "{micros} at {place}, which ends at {}", end(place));
            assert!(place == 0 || micros >= end(place - 1), "{micros} at {place}, which begins at {}", end(place - 1));
        }
        assert!((0..BUCKETS - 1).all(|place| end(place) < end(place + 1)));
    }

    #[test]
    fn prometheus_gets_them_in_round_buckets() {
        let durations = Durations::default();
        for micros in [3, 1000, 99_000, 700_000] {
            durations.add(Duration::from_micros(micros));
        }
        let Seen { up_to, sum, count } = durations.histogram();
        // The range of 99 ms ends above 100 ms.
        assert_eq!((up_to[0], up_to[1], up_to[2], up_to[4]), ((0.05, 2), (0.1, 2), (0.25, 3), (1.0, 4)));
        assert!(count == 4 && (sum - 0.800_003).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn what_was_counted_is_served_and_the_longest_has_a_place() {
        let reconciles = Reconciles::default();
        reconciles.machines.add(Duration::from_micros(3));
        reconciles.machines.add(Duration::from_micros(1000));
        reconciles.machines.add(Duration::from_micros(1001));
        reconciles.instances.add(Duration::MAX);
        let to_json = reconciles.to_json();
        assert_eq!(to_json["VirtualMachine"], json!([[4, 1], [1024, 2]]));
        assert_eq!(to_json["VirtualMachineInstance"].as_array().map(Vec::len), Some(1));
    }
}
