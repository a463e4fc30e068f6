//! How a stream ended.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::failure::{Failure, bounded};

/// Close codes of RFC 6455, 7.4.1, as the controller uses them.
const NORMAL: u16 = 1000;
const AWAY: u16 = 1001;
/// What the controller writes before the reason of a session that is over, for programs that look for it.
const OVER: &str = "EOF: ";

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By a close frame of the other side.
    Closed {
        /// Its code.
        code: u16,
        /// For a person.
        reason: String,
    },
    /// Without one.
    Cut(String),
}

impl End {
    /// Code and reason of a close frame; one without them says nothing bad.
    pub(super) fn of_frame(frame: Option<(u16, String)>) -> Self {
        let (code, reason) = frame.unwrap_or((NORMAL, String::new()));
        Self::Closed { code, reason }
    }

    /// What that is for who used the stream; nothing if it was the machine that ended it.
    pub(crate) fn failure(&self, machine: &str) -> Option<Failure> {
        match self {
            Self::Closed { code: NORMAL, .. } => None,
            Self::Closed { code: AWAY, reason } if !reason.is_empty() => {
                let reason = reason.strip_prefix(OVER).unwrap_or(reason);
                Some(Failure::Refused(format!("{machine}: the session is over: {}", bounded(reason))))
            }
            Self::Closed { code, reason } if reason.is_empty() => {
                Some(Failure::Interrupted(format!("{machine}: it was closed with code {code}")))
            }
            Self::Closed { code, reason } => {
                Some(Failure::Interrupted(format!("{machine}: {} (code {code})", bounded(reason))))
            }
            Self::Cut(reason) => Some(Failure::Interrupted(format!("{machine}: {}", bounded(reason)))),
        }
    }
}

/// Where the reader of a stream says how it ended, and its writer waits for that.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    end: Mutex<Option<End>>,
    came: Condvar,
}

impl Ending {
    /// The first end counts.
    pub(super) fn set(&self, end: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
        self.came.notify_all();
    }

    /// It, if the stream has ended.
    pub(crate) fn now(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for it.
    pub(super) fn wait(&self, patience: Duration) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.came.wait_timeout_while(end, patience, |end| end.is_none()));
    }
}

#[cfg(test)]
impl Ending {
    /// One that came already: by a close frame with this code, or without one.
    pub(crate) fn came(code: Option<u16>, reason: &str) -> Self {
        let ending = Self::default();
        let reason = reason.to_owned();
        ending.set(match code {
            Some(code) => End::Closed { code, reason },
            None => End::Cut(reason),
        });
        ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::FAILED;

    #[test]
    fn an_end_of_the_machine_is_none_of_the_connection() {
        let closed = |code, reason: &str| End::Closed { code, reason: reason.to_owned() };
        assert_eq!(closed(NORMAL, "").failure("n/a"), None);
        assert_eq!(End::of_frame(None).failure("n/a"), None);
        let table = [
            (closed(AWAY, "another user has connected"), "n/a: the session is over: another user has connected"),
            (closed(AWAY, "EOF: another user has connected"), "n/a: the session is over: another user has connected"),
            (
                closed(AWAY, ""),
                "the connection to the machine was lost: n/a: it was closed with code 1001; the machine",
            ),
            (
                closed(1011, "the stream was cut"),
                "the connection to the machine was lost: n/a: the stream was cut (code 1011)",
            ),
            (
                End::Cut("nothing came for 60 s".into()),
                "the connection to the machine was lost: n/a: nothing came for 60 s;",
            ),
            (closed(1011, "\u{1b}[2J"), "the connection to the machine was lost: n/a: [2J (code 1011)"),
        ];
        for (end, text) in table {
            let failure = end.failure("n/a").unwrap();
            assert!(failure.to_string().starts_with(text), "{end:?}: {failure}");
        }
        assert_eq!(closed(1011, "x").failure("n/a").unwrap().code(), FAILED);
    }

    #[test]
    fn the_first_end_counts_and_is_waited_for() {
        let ending = std::sync::Arc::new(Ending::default());
        ending.wait(Duration::from_millis(1));
        assert_eq!(ending.now(), None);
        let other = std::sync::Arc::clone(&ending);
        let reader = std::thread::spawn(move || other.set(End::Cut("first".into())));
        ending.wait(Duration::from_secs(60));
        reader.join().unwrap();
        ending.set(End::Cut("second".into()));
        assert_eq!(ending.now(), Some(End::Cut("first".into())));
    }
}
