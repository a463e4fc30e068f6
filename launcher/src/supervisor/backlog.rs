//! What a viewer of the console has not taken yet, bounded in bytes.
//!
//! ```text
//!   console's task ─► Feed ─► scrollback, then what is printed ─► Output ─► viewer
//!                  ◄─ Hold ── where a session has too much: nothing is read from the guest until it takes some
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What a viewer takes at once, bytes. Nothing comes between: it is also the most that precedes the reason of an end.
const PIECE: usize = 16 * 1024;
/// The most that a viewer may be behind, bytes, without the scrollback that it began with.
const MOST: usize = 256 * 1024;
/// From so many bytes on a session holds its guest back.
const HELD_BACK: usize = 64 * 1024;
/// How long a session that holds its guest back may take nothing.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(10);

/// What waits.
struct Waiting {
    bytes: VecDeque<u8>,
    /// How many of them were there when the viewer came.
    scrollback: usize,
    /// When some were taken last, or became so many that a session holds its guest back.
    moved: Instant,
    /// Nothing more is put.
    is_over: bool,
    /// The viewer has left.
    is_left: bool,
}

impl Waiting {
    /// How many were printed since the viewer came.
    fn fresh(&self) -> usize {
        self.bytes.len().saturating_sub(self.scrollback)
    }

    fn holds_back(&self) -> bool {
        !self.is_left && self.fresh() >= HELD_BACK
    }
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// For the viewer: there is something.
    put: Notify,
    /// For the console: something was taken, or the viewer has left.
    taken: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends for a viewer, which begins with what was printed before.
pub(super) fn backlog(scrollback: Vec<u8>) -> (Feed, Output) {
    let waiting = Waiting {
        scrollback: scrollback.len(),
        bytes: scrollback.into(),
        moved: Instant::now(),
        is_over: false,
        is_left: false,
    };
    let shared = Arc::new(Shared { waiting: Mutex::new(waiting), put: Notify::new(), taken: Notify::new() });
    (Feed(Arc::clone(&shared)), Output(shared))
}

/// The console's end. Dropping it ends the output, when all of it was taken.
pub(super) struct Feed(Arc<Shared>);

impl Feed {
    /// Adds what was printed, unless too much waits. Whether it was added.
    pub(super) fn put(&self, bytes: &[u8]) -> bool {
        let mut waiting = self.0.lock();
        if waiting.fresh() + bytes.len() > MOST {
            return false;
        }
        let held_back = waiting.holds_back();
        waiting.bytes.extend(bytes);
        if !held_back && waiting.holds_back() {
            waiting.moved = Instant::now();
        }
        drop(waiting);
        self.0.put.notify_one();
        true
    }

    /// Ends the output, for a reason that the viewer is to read soon: where more than one piece waits, it is dropped, with its memory. Viewers that
    /// read nothing would keep it, and each makes room for the next one.
    pub(super) fn cut_short(&self) {
        let mut waiting = self.0.lock();
        if waiting.bytes.len() > PIECE {
            waiting.bytes = VecDeque::new();
        }
    }

    /// How much waits, bytes.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().bytes.len()
    }

    /// Whether the viewer has left.
    pub(super) fn is_left(&self) -> bool {
        self.0.lock().is_left
    }

    /// What a session is waited for by; nothing while it takes what is printed.
    pub(super) fn hold(&self) -> Option<Hold> {
        self.0.lock().holds_back().then(|| Hold(Arc::clone(&self.0)))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.put.notify_one();
    }
}

/// What came of waiting for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It has taken some, or has left.
    Made,
    /// It takes nothing.
    Stuck,
}

/// A session that holds its guest back.
pub(super) struct Hold(Arc<Shared>);

impl Hold {
    /// Waits for it. A call that is given up loses nothing: how long it takes nothing is not counted from here.
    pub(super) async fn room(&self) -> Room {
        loop {
            let stuck_at = {
                let waiting = self.0.lock();
                if !waiting.holds_back() {
                    return Room::Made;
                }
                waiting.moved + STUCK_AFTER
            };
            if Instant::now() >= stuck_at {
                return Room::Stuck;
            }
            tokio::select! {
                () = self.0.taken.notified() => {}
                () = sleep_until(stuck_at) => {}
            }
        }
    }
}

/// The viewer's end.
pub(crate) struct Output(Arc<Shared>);

/// What an output has.
enum Taken {
    Piece(Vec<u8>),
    NothingYet,
    Over,
}

impl Output {
    /// The next bytes; nothing after the last ones. A call that is given up loses nothing.
    pub(crate) async fn recv(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.take() {
                Taken::Piece(bytes) => return Some(bytes),
                Taken::Over => return None,
                Taken::NothingYet => self.0.put.notified().await,
            }
        }
    }

    fn take(&self) -> Taken {
        let mut waiting = self.0.lock();
        let count = waiting.bytes.len().min(PIECE);
        if count == 0 {
            return if waiting.is_over { Taken::Over } else { Taken::NothingYet };
        }
        let piece = waiting.bytes.drain(..count).collect();
        waiting.scrollback = waiting.scrollback.saturating_sub(count);
        if waiting.scrollback == 0 {
            // Megabytes, perhaps, that a viewer would keep as long as it stays.
            waiting.bytes.shrink_to(MOST);
        }
        waiting.moved = Instant::now();
        drop(waiting);
        self.0.taken.notify_one();
        Taken::Piece(piece)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.lock().is_left = true;
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything until the end.
    async fn rest(output: &mut Output) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = output.recv().await {
            all.extend(bytes);
        }
        all
    }

    #[tokio::test]
    async fn it_is_bounded_in_bytes_and_not_in_how_many_times_something_was_printed() {
        let (feed, mut output) = backlog(vec![b'-'; MOST]);
        for _ in 0..MOST {
            assert!(feed.put(b"x"));
        }
        assert!(!feed.put(b"y"), "the scrollback does not count");
        drop(feed);
        let all = rest(&mut output).await;
        assert_eq!(
            (all.len(), all[MOST - 1], all[MOST]),
            (2 * MOST, b'-', b'x'),
            "the end of the machine loses nothing"
        );
    }

    #[tokio::test]
    async fn a_reason_comes_after_one_piece_at_most() {
        for (count, read) in [(PIECE, PIECE), (PIECE + 1, 0)] {
            let (feed, mut output) = backlog(Vec::new());
            assert!(feed.put(&vec![b'x'; count]));
            feed.cut_short();
            drop(feed);
            assert_eq!(rest(&mut output).await.len(), read);
        }
    }

    #[tokio::test]
    async fn memory_is_given_back_when_scrollback_was_read_and_when_nobody_will_read_it() {
        let (feed, mut output) = backlog(vec![b'x'; 8 * MOST]);
        let held = |feed: &Feed| feed.0.lock().bytes.capacity();
        assert!(held(&feed) >= 8 * MOST);
        while feed.waiting() > 0 {
            output.recv().await.unwrap();
        }
        assert!(held(&feed) <= MOST, "{}", held(&feed));
        let (feed, _output) = backlog(vec![b'x'; 8 * MOST]);
        feed.cut_short();
        assert_eq!(held(&feed), 0, "its viewer takes nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_waited_for_as_long_as_it_takes_something() {
        let (feed, mut output) = backlog(Vec::new());
        assert!(feed.hold().is_none());
        assert!(feed.put(&vec![b'x'; MOST]));
        // Slowly, and longer than one that takes nothing is waited for.
        let slow = tokio::spawn(async move {
            for _ in 0..MOST / PIECE {
                tokio::time::sleep(STUCK_AFTER - Duration::from_secs(1)).await;
                output.recv().await.unwrap();
            }
            output
        });
        assert_eq!(feed.hold().unwrap().room().await, Room::Made);
        let output = slow.await.unwrap();
        assert!(feed.put(&vec![b'x'; HELD_BACK]));
        let begun = Instant::now();
        assert_eq!(feed.hold().unwrap().room().await, Room::Stuck);
        assert!(begun.elapsed() >= STUCK_AFTER - Duration::from_secs(1));
        drop(output);
        assert!(feed.hold().is_none() && feed.is_left(), "who has left holds nothing back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_took_nothing_before_is_waited_for_as_long_as_another() {
        let (feed, _output) = backlog(Vec::new());
        assert!(feed.put(&vec![b'x'; HELD_BACK - 1]));
        tokio::time::sleep(STUCK_AFTER * 2).await;
        assert!(feed.hold().is_none() && feed.put(b"x"));
        let begun = Instant::now();
        assert_eq!(feed.hold().unwrap().room().await, Room::Stuck);
        assert!(begun.elapsed() >= STUCK_AFTER, "{:?}", begun.elapsed());
    }
}
