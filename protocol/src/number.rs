//! Numbers of requests that change a machine: by them a request may be sent again without being done twice.
//!
//! ```text
//!   client ─ status ─► supervisor        which run it is of; a supervisor without numbers names none, and nothing is sent to it twice
//!          ─ reset, number {id, run} ─►  done, and written down with its outcome
//!          ─ the same again ──────────►  the outcome that is written down
//! ```

use serde::{Deserialize, Serialize};

/// How long a client may send a request again, seconds from the first time. Supervisors remember it for twice this.
pub const REPEATED_WITHIN_SECONDS: u64 = 30;
/// The longest ID, bytes. It is printable ASCII.
pub const LONGEST_ID: usize = 64;
/// How many requests a supervisor remembers. Where all of them may still be sent again, one more is refused.
pub const REMEMBERED: usize = 128;

/// The number of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Number {
    /// Made by the client, and no other request's: a UUID.
    pub id: String,
    /// The run of the machine that it is for (`Status::run`). One of another run is refused.
    pub run: String,
}

impl Number {
    /// Whether the ID is one.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.id.is_empty() && self.id.len() <= LONGEST_ID && self.id.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_short_and_printable() {
        let valid = |id: &str| Number { id: id.to_owned(), run: String::new() }.is_valid();
        assert!(valid("6a1f0c52-7d3e-4b8a-9c11-2f4e5d6a7b80") && valid(&"x".repeat(LONGEST_ID)));
        for id in ["", "a b", "a\nb", "\u{e9}", &"x".repeat(LONGEST_ID + 1)] {
            assert!(!valid(id), "{id:?}");
        }
    }
}
