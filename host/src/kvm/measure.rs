//! How much slower a virtual processor is than the real one, from timings of a counted loop. Pure.
//!
//! The loop is the same machine code inside and outside; only the number of rounds is chosen here, so that a processor
//! that runs guest code is timed over a million rounds and one that is interpreted, a thousand times slower, over a
//! few hundred: neither takes long.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rounds of the first try. An interpreter that needs a whole millisecond for a round is done after 16 ms.
const FIRST_ROUNDS: u64 = 16;

/// Factor between tries.
const GROWTH: u64 = 4;

/// Rounds at which a try is long enough whatever the clock shows: about half a millisecond on a real processor, against
/// which entering and leaving the guest (2–50 µs, subtracted) is small.
const MOST_ROUNDS: u64 = 1 << 20;

/// A try that takes this long is long enough.
const LONG_ENOUGH: Duration = Duration::from_millis(2);

/// Repetitions of each try; the fastest counts, since other work on the machine only ever adds.
const REPETITIONS: u32 = 3;

/// How many times longer something takes in a guest than outside; kept in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slowdown {
    hundredths: u64,
}

impl Slowdown {
    /// A virtual processor this slow is not running guest code but interpreting it: 10.
    ///
    /// Measured: 1.00 to 1.05 where the processor runs the loop, 17 000 to 20 000 where the instruction emulator of KVM
    /// does. Ten stands clear of both, with room for a neighbour that takes most of a shared core during every one of
    /// the repetitions, and for interpreters a thousand times better than the kernel's.
    pub const EMULATED_FROM: Self = Self { hundredths: 1000 };

    /// A ratio of times. Nonsense (negative, not a number) is 0.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` from a float saturates")]
    pub fn of_ratio(ratio: f64) -> Self {
        Self { hundredths: (ratio * 100.0).round() as u64 }
    }
}

impl fmt::Display for Slowdown {
    /// `1.03` below a hundred, `17455` above.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.hundredths / 100, self.hundredths % 100) {
            (whole @ 100.., _) => write!(formatter, "{whole}"),
            (whole, rest) => write!(formatter, "{whole}.{rest:02}"),
        }
    }
}

/// One guest run of the loop with this many rounds, timed.
pub(super) trait TimedLoop {
    /// Why a run did not end as it should.
    type Error;

    /// Runs `rounds` rounds and returns how long that took.
    fn run(&mut self, rounds: u64) -> Result<Duration, Self::Error>;
}

/// Time of one round inside divided by time of one round outside.
pub(super) fn slowdown<E>(
    inside: &mut impl TimedLoop<Error = E>,
    outside: &mut impl TimedLoop<Error = E>,
) -> Result<Slowdown, E> {
    let entry = fastest(inside, 1)?;
    let mut rounds = FIRST_ROUNDS;
    let mut inside_total = fastest(inside, rounds)?;
    // The fastest of several also here: one try that other work interrupted must not end the search at a few rounds,
    // where next to nothing is left after the entry is subtracted.
    while rounds < MOST_ROUNDS && inside_total < LONG_ENOUGH.max(entry * 2) {
        rounds *= GROWTH;
        inside_total = fastest(inside, rounds)?;
    }
    let inside_total = inside_total.saturating_sub(entry);
    let outside_total = fastest(outside, MOST_ROUNDS)?;
    Ok(Slowdown::of_ratio(per_round(inside_total, rounds) / per_round(outside_total, MOST_ROUNDS)))
}

fn fastest<E>(timed: &mut impl TimedLoop<Error = E>, rounds: u64) -> Result<Duration, E> {
    let mut best = Duration::MAX;
    for _ in 0..REPETITIONS {
        best = best.min(timed.run(rounds)?);
    }
    Ok(best)
}

#[expect(clippy::cast_precision_loss, reason = "rounds are at most 2^20, exact in a double")]
fn per_round(total: Duration, rounds: u64) -> f64 {
    total.as_secs_f64() / rounds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with a constant price per round and per entry.
    struct Model {
        entry: Duration,
        nanoseconds_per_round: u64,
        spent: Duration,
    }

    impl Model {
        fn new(entry_us: u64, nanoseconds_per_round: u64) -> Self {
            Self { entry: Duration::from_micros(entry_us), nanoseconds_per_round, spent: Duration::ZERO }
        }
    }

    impl TimedLoop for Model {
        type Error = std::convert::Infallible;

        fn run(&mut self, rounds: u64) -> Result<Duration, Self::Error> {
            let time = self.entry + Duration::from_nanos(self.nanoseconds_per_round * rounds);
            self.spent += time;
            Ok(time)
        }
    }

    fn model(inside: &mut Model) -> Slowdown {
        slowdown(inside, &mut Model::new(0, 1)).unwrap()
    }

    #[test]
    fn a_processor_that_runs_guest_code_comes_out_near_one() {
        for entry_us in [1, 10, 50, 300] {
            let ratio = model(&mut Model::new(entry_us, 1));
            assert_eq!(ratio, Slowdown::of_ratio(1.0), "entry {entry_us} µs");
        }
    }

    #[test]
    fn an_interpreter_is_named_and_takes_less_than_a_fifth_of_a_second() {
        for nanoseconds_per_round in [1_000, 10_000, 100_000, 1_000_000] {
            let mut inside = Model::new(20, nanoseconds_per_round);
            let ratio = model(&mut inside);
            assert!(ratio > Slowdown::of_ratio(500.0), "{nanoseconds_per_round} ns: {ratio}");
            assert!(inside.spent < Duration::from_millis(200), "{nanoseconds_per_round} ns: {:?}", inside.spent);
        }
    }

    #[test]
    fn a_slowdown_is_written_for_users() {
        let written = [1.0, 1.034, 99.99, 17_455.4, f64::NAN, -3.0].map(|ratio| Slowdown::of_ratio(ratio).to_string());
        assert_eq!(written, ["1.00", "1.03", "99.99", "17455", "0.00", "0.00"]);
    }

    #[test]
    fn a_disturbed_repetition_does_not_count() {
        struct Disturbed(Model, u32);
        impl TimedLoop for Disturbed {
            type Error = std::convert::Infallible;
            fn run(&mut self, rounds: u64) -> Result<Duration, Self::Error> {
                self.1 += 1;
                let disturbance = if self.1.is_multiple_of(3) { 0 } else { 40 };
                Ok(self.0.run(rounds)? * (1 + disturbance))
            }
        }
        let ratio = slowdown(&mut Disturbed(Model::new(1, 1), 0), &mut Disturbed(Model::new(0, 1), 0)).unwrap();
        assert!(ratio < Slowdown::of_ratio(2.0), "{ratio}");
    }
}
