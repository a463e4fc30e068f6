//! A bound on log lines that are caused from outside: a guest that resets in a loop, a disk whose every request fails. Pure.

use std::time::{Duration, Instant};

/// How long a count lasts.
const WINDOW: Duration = Duration::from_secs(10);

/// Lines of one kind.
#[derive(Debug)]
pub(super) struct Flood {
    most: u32,
    began: Option<Instant>,
    seen: u32,
}

/// What is to be done with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It is written; before it, that so many were not (0: none).
    Write {
        /// How many lines were left out before it.
        left_out: u32,
    },
    /// It is left out.
    LeaveOut,
}

impl Flood {
    /// At most so many lines in ten seconds.
    pub(super) fn new(most: u32) -> Self {
        Self { most, began: None, seen: 0 }
    }

    /// Judges the next line.
    pub(super) fn judge(&mut self, now: Instant) -> Line {
        let is_new = self.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW);
        let left_out = if is_new { self.seen.saturating_sub(self.most) } else { 0 };
        if is_new {
            (self.began, self.seen) = (Some(now), 0);
        }
        self.seen = self.seen.saturating_add(1);
        if self.seen <= self.most { Line::Write { left_out } } else { Line::LeaveOut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let start = Instant::now();
        let mut flood = Flood::new(3);
        for count in 0..1000 {
            let expected = if count < 3 { Line::Write { left_out: 0 } } else { Line::LeaveOut };
            assert_eq!(flood.judge(start + Duration::from_millis(count)), expected);
        }
        assert_eq!(flood.judge(start + WINDOW), Line::Write { left_out: 997 });
        assert_eq!(flood.judge(start + WINDOW * 3), Line::Write { left_out: 0 });
    }
}
