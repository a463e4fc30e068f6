//! Kubernetes' times. The clock is read in `observe` only; everything else is given an instant.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use garboard_api::conditions::stamp;

/// How long a start may take until something is written about it: one that is Running by then is written once
/// (`docs/adr/0011-five-writes.md`).
pub const QUICK: Duration = Duration::from_secs(5);

/// The last instant that a stamp can mean: what is within its second is cut off.
#[must_use]
pub fn at_latest(stamp: &Time) -> Timestamp {
    stamp.0.checked_add(Duration::from_secs(1)).unwrap_or(stamp.0)
}

/// How long something is ago; nothing if it is yet to come.
#[must_use]
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

/// A pause with up to a quarter more or less, by chance: what began together does not repeat at the same moments.
#[must_use]
pub fn spread(pause: Duration, chance: u64) -> Duration {
    let thousandths = u32::try_from(chance % 501).unwrap_or(250) + 750;
    pause * thousandths / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_no_less_than_its_whole_second() {
        let made = Timestamp::from_millisecond(7_999).unwrap();
        let [stamp, latest] = [stamp(made).0, at_latest(&stamp(made))].map(|at| at.as_millisecond());
        assert_eq!((stamp, latest), (7_000, 8_000));
    }

    #[test]
    fn a_pause_is_spread_by_a_quarter() {
        let seconds = |chance| spread(Duration::from_secs(300), chance).as_secs();
        assert_eq!([seconds(0), seconds(250), seconds(500)], [225, 300, 375]);
    }
}
