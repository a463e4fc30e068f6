//! One moment, as a value, and what a deadline of the journal is on its clocks. Deadlines count on the clock that no process
//! can set and that goes on while the host sleeps; users read the time of day.

use garboard_protocol::journal::Deadline;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the host was booted, the time it slept included.
    pub boot_ms: i64,
    /// Milliseconds since 1970 by the host's clock.
    pub wall_ms: i64,
}

impl Now {
    /// A deadline of the journal on this boot's clock: where an earlier build wrote only the time of day, or the host was
    /// booted since, at most `longest_ms` from now.
    #[must_use]
    pub fn on_boot_clock(
        self,
        deadline: Option<&Deadline>,
        wall_ms: Option<i64>,
        boot_id: &str,
        longest_ms: i64,
    ) -> Option<i64> {
        match deadline {
            Some(deadline) if deadline.boot_id == boot_id => Some(deadline.at_ms),
            Some(_) | None => {
                let left = wall_ms?.saturating_sub(self.wall_ms).clamp(0, longest_ms.max(0));
                Some(self.boot_ms.saturating_add(left))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { boot_ms: 1_000, wall_ms: 90_000_000 };

    fn deadline(boot_id: &str) -> Deadline {
        Deadline { boot_id: boot_id.to_owned(), at_ms: 4_000 }
    }

    #[test]
    fn a_clock_that_was_set_does_not_move_a_deadline() {
        let moved = Now { wall_ms: 5, ..NOW };
        for now in [NOW, moved] {
            assert_eq!(now.on_boot_clock(Some(&deadline("here")), Some(90_003_000), "here", 30_000), Some(4_000));
        }
    }

    #[test]
    fn a_deadline_from_the_time_of_day_alone_is_at_most_the_longest_away() {
        let cases =
            [(Some(90_003_000), Some(4_000)), (Some(5), Some(1_000)), (Some(i64::MAX), Some(31_000)), (None, None)];
        for (wall_ms, expected) in cases {
            assert_eq!(NOW.on_boot_clock(None, wall_ms, "here", 30_000), expected, "{wall_ms:?}");
            assert_eq!(NOW.on_boot_clock(Some(&deadline("before")), wall_ms, "here", 30_000), expected, "{wall_ms:?}");
        }
    }
}
