//! When an agent dials a controller: spread over a time that grows with the number of agents. Pure: no clock, and chance is an argument.
//!
//! A controller that starts has lost all its agents at the same moment, and all of them learn of its new address at the same moment.
//! Each waits for a random part of the *spread* first, which a controller tells each agent that connects; after failures, a random
//! part of a pause that doubles.

use std::time::Duration;

/// Connections of agents that a controller is to have to accept in a second. A TLS handshake with its TokenReview is milliseconds of
/// a core and as many of the API server.
pub const ARRIVALS_PER_SECOND: u32 = 250;
/// The least spread.
pub const LEAST_SPREAD: Duration = Duration::from_secs(1);
/// The most.
pub const MOST_SPREAD: Duration = Duration::from_secs(60);
/// The pause after a first failure, and the longest where the spread is shorter.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Doubling stops here, far above each pause.
const MOST_DOUBLINGS: u32 = 16;

/// The spread for so many agents.
#[must_use]
pub fn spread(agents: usize) -> Duration {
    let agents = u64::try_from(agents).unwrap_or(u64::MAX);
    let millis = agents.saturating_mul(1000) / u64::from(ARRIVALS_PER_SECOND);
    Duration::from_millis(millis).clamp(LEAST_SPREAD, MOST_SPREAD)
}

/// The spread in the header of a controller; any other text, and none, is the least.
#[must_use]
pub fn spread_of_header(header: Option<&str>) -> Duration {
    let millis = header.and_then(|text| text.parse().ok()).unwrap_or_default();
    Duration::from_millis(millis).clamp(LEAST_SPREAD, MOST_SPREAD)
}

/// How long an agent waits before its next attempt, `failures` after the last connection: a part of the pause, as `chance` says.
#[must_use]
pub fn pause(spread: Duration, failures: u32, chance: u64) -> Duration {
    if failures == 0 {
        return part(spread, chance);
    }
    let longest = spread.max(LONGEST_PAUSE);
    // Where many dial, one that was refused does not come back in the middle of the others.
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(MOST_DOUBLINGS));
    let pause = doubled.max(spread / 4).min(longest);
    pause / 2 + part(pause / 2, chance)
}

fn part(whole: Duration, chance: u64) -> Duration {
    let nanos = (whole.as_nanos().saturating_mul(u128::from(chance))) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Numbers that look random, from a seed (SplitMix64, Steele and others, OOPSLA 2014).
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for Chance {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some(mixed ^ (mixed >> 31))
    }
}

#[cfg(test)]
mod tests;
