//! When a guest that an I/O error paused is resumed. Pure.
//!
//! Storage often recovers by itself: the guest is resumed after a while, and after a
//! longer one if the error is still there. A full storage is emptied by an administrator, which takes longer.

/// The first pause of a guest, and the longest it grows to, milliseconds.
const FIRST_MS: i64 = 10_000;
const LONGEST_MS: i64 = 180_000;
/// The same where the storage has no space left.
const FIRST_WHEN_FULL_MS: i64 = 60_000;
const LONGEST_WHEN_FULL_MS: i64 = 600_000;
/// A guest that ran for so long begins with the first pause again, milliseconds.
const CALM_MS: i64 = 60_000;

/// QEMU's report of an I/O error (`BLOCK_IO_ERROR`, `qapi/block-core.json`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoError {
    /// What failed, in short: operation, block node and the host's reason.
    pub what: String,
    /// The storage has no space left (`nospace`).
    pub is_full: bool,
}

/// The pauses of one machine. Times are milliseconds since the host's boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoRetry {
    pause_ms: i64,
    at_ms: Option<i64>,
    resumed_at_ms: Option<i64>,
    error: IoError,
}

impl IoRetry {
    /// When the guest is to be resumed next; `None` while no error holds it.
    #[must_use]
    pub fn at_ms(&self) -> Option<i64> {
        self.at_ms
    }

    /// What failed last, and how long the guest waits for it; `None` if QEMU has not reported it.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        let IoError { what, .. } = &self.error;
        (!what.is_empty()).then(|| format!("{what}; the guest is resumed until it works"))
    }

    /// An error stopped the guest. QEMU reports it once for each request that failed; only the first begins a pause.
    pub fn stopped(&mut self, error: Option<IoError>, now_ms: i64) {
        let was_full = self.at_ms.is_some() && self.error.is_full;
        if let Some(error) = error {
            self.error = error;
            self.error.is_full |= was_full;
        } else if self.at_ms.is_none() {
            self.error = IoError::default();
        }
        let (first, longest) = match self.error.is_full {
            true => (FIRST_WHEN_FULL_MS, LONGEST_WHEN_FULL_MS),
            false => (FIRST_MS, LONGEST_MS),
        };
        if let Some(at_ms) = self.at_ms {
            if self.error.is_full && !was_full {
                self.pause_ms = self.pause_ms.max(first);
                self.at_ms = Some(at_ms.max(now_ms.saturating_add(first)));
            }
            return;
        }
        let is_calm = self.resumed_at_ms.is_none_or(|at| now_ms.saturating_sub(at) >= CALM_MS);
        self.pause_ms = if is_calm { first } else { self.pause_ms.saturating_mul(2).clamp(first, longest) };
        self.at_ms = Some(now_ms.saturating_add(self.pause_ms));
    }

    /// The guest runs again.
    pub fn resumed(&mut self, now_ms: i64) {
        self.at_ms = None;
        self.resumed_at_ms = Some(now_ms);
    }

    /// It is not to be resumed automatically any more.
    pub fn give_up(&mut self) {
        self.at_ms = None;
    }

    /// Whether the guest is to be resumed now. Should QEMU not do it, the next time is as far away.
    pub fn is_due(&mut self, now_ms: i64) -> bool {
        let is_due = self.at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if is_due {
            self.at_ms = Some(now_ms.saturating_add(self.pause_ms.max(FIRST_MS)));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(is_full: bool) -> Option<IoError> {
        Some(IoError { what: "write".to_owned(), is_full })
    }

    /// The pauses of a guest that fails again at once.
    fn pauses(is_full: bool, count: usize) -> Vec<i64> {
        let mut retry = IoRetry::default();
        let mut now_ms = 0;
        let mut seen = Vec::new();
        for _ in 0..count {
            retry.stopped(error(is_full), now_ms);
            let at_ms = retry.at_ms().unwrap();
            seen.push((at_ms - now_ms) / 1000);
            assert!(!retry.is_due(at_ms - 1) && retry.is_due(at_ms));
            now_ms = at_ms + 5;
            retry.resumed(now_ms);
            assert_eq!(retry.at_ms(), None);
        }
        seen
    }

    #[test]
    fn pauses_grow_to_their_longest() {
        assert_eq!(pauses(false, 7), [10, 20, 40, 80, 160, 180, 180]);
        assert_eq!(pauses(true, 6), [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn a_minute_of_running_begins_anew() {
        let mut retry = IoRetry::default();
        for (stopped_at, expected) in [(0, 10_000), (10_100, 30_100), (30_200 + CALM_MS, 40_200 + CALM_MS)] {
            retry.stopped(error(false), stopped_at);
            assert_eq!(retry.at_ms(), Some(expected));
            retry.resumed(expected);
        }
    }

    #[test]
    fn many_requests_that_fail_at_once_are_one_error() {
        let mut retry = IoRetry::default();
        for now_ms in 0..9 {
            retry.stopped(error(false), now_ms);
            retry.stopped(None, now_ms);
        }
        assert_eq!(retry.at_ms(), Some(10_000));
        assert_eq!(retry.message().as_deref(), Some("write; the guest is resumed until it works"));
        retry.stopped(error(true), 9);
        retry.stopped(error(false), 9);
        assert_eq!(retry.at_ms(), Some(60_009), "no space left takes longer, whatever else failed");
    }

    #[test]
    fn a_resume_that_does_nothing_is_tried_again() {
        let mut retry = IoRetry::default();
        retry.stopped(None, 0);
        assert!(retry.is_due(10_000) && !retry.is_due(10_001));
        assert_eq!(retry.at_ms(), Some(20_000));
        retry.give_up();
        assert!(!retry.is_due(i64::MAX));
    }
}
