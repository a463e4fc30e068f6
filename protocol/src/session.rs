//! What a supervisor sends in a session of the subresource API ([`crate::control::ControlReply::Session`], `Resumed`): the bytes of the
//! console or the screen, and why the session ended.
//!
//! ```text
//!   part   length, two bytes, the more significant first   so many bytes
//!   end    0, 0                                             a SessionEnd, as a line
//! ```
//!
//! What a client sends is bytes without borders, as in any stream. Without an end the supervisor was replaced, or the client took nothing
//! for too long. A supervisor of a version before [`SessionEnd::machine_ended`] does not say that the machine ended, either.

use serde::{Deserialize, Serialize};

use crate::wire::{self, WireError};

/// The most bytes of a part.
pub const LONGEST_PART: usize = u16::MAX as usize;
/// The longest line of an end.
const LONGEST_END: usize = 4096;
/// The bytes of a length.
const HEAD: usize = 2;

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEnd {
    /// For a person.
    pub reason: String,
    /// It was the machine that ended, or its console or screen, and nobody ended the session alone.
    #[serde(default)]
    pub machine_ended: bool,
}

/// For who does not know [`SessionEnd::machine_ended`].
const MACHINE_ENDED: &str = "the machine has ended";

/// Appends bytes in parts. None are no part: that would be an end.
pub fn encode(bytes: &[u8], to: &mut Vec<u8>) {
    for part in bytes.chunks(LONGEST_PART) {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        to.extend(length.to_be_bytes());
        to.extend(part);
    }
}

/// Appends an end, with the reason why the session was ended.
///
/// # Errors
/// None, as [`wire::encode`].
pub fn encode_end(reason: &str, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    append(&SessionEnd { reason: reason.to_owned(), machine_ended: false }, to)
}

/// Appends the end of the machine.
///
/// # Errors
/// None, as [`wire::encode`].
pub fn encode_end_of_machine(to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    append(&SessionEnd { reason: MACHINE_ENDED.to_owned(), machine_ended: true }, to)
}

fn append(end: &SessionEnd, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    to.extend([0; HEAD]);
    to.extend(wire::encode(end)?);
    Ok(())
}

/// What has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the console or the screen.
    Bytes(Vec<u8>),
    /// Nothing more.
    End(SessionEnd),
}

/// Why it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The end is too long.
    #[error("the launcher ended a session with more than {LONGEST_END} bytes")]
    LongEnd,
    /// The end is not one.
    #[error("the launcher ended a session with a line that cannot be parsed")]
    End(#[from] WireError),
}

/// Takes apart what arrives, in whatever pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    waiting: Vec<u8>,
}

impl Decoder {
    /// Takes what has arrived. Little is kept: a part is at most [`LONGEST_PART`] bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    /// The next part that is whole.
    ///
    /// # Errors
    /// [`SessionError`]: nothing after it can be read.
    pub fn next_part(&mut self) -> Result<Option<Part>, SessionError> {
        let Some((head, rest)) = self.waiting.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*head));
        if length == 0 {
            return match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => Ok(Some(Part::End(wire::decode(&rest[..end])?))),
                None if rest.len() > LONGEST_END => Err(SessionError::LongEnd),
                None => Ok(None),
            };
        }
        if rest.len() < length {
            return Ok(None);
        }
        let bytes = rest[..length].to_vec();
        self.waiting.drain(..HEAD + length);
        Ok(Some(Part::Bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All parts of what arrives in pieces of a size.
    fn decoded(sent: &[u8], piece: usize) -> Result<Vec<Part>, SessionError> {
        let (mut decoder, mut parts) = (Decoder::default(), Vec::new());
        for bytes in sent.chunks(piece) {
            decoder.push(bytes);
            while let Some(part) = decoder.next_part()? {
                let is_end = matches!(part, Part::End(_));
                parts.push(part);
                if is_end {
                    return Ok(parts);
                }
            }
        }
        Ok(parts)
    }

    #[test]
    fn bytes_and_the_end_arrive_in_whatever_pieces() {
        let screen: Vec<u8> = (0..=255).cycle().take(LONGEST_PART + 1000).collect();
        let mut sent = Vec::new();
        encode(b"login: ", &mut sent);
        encode(b"", &mut sent);
        encode(&screen, &mut sent);
        encode_end("another client", &mut sent).unwrap();
        let end = Part::End(SessionEnd { reason: "another client".to_owned(), machine_ended: false });
        let parts = [&b"login: "[..], &screen[..LONGEST_PART], &screen[LONGEST_PART..]];
        let expected: Vec<Part> = parts.map(|bytes| Part::Bytes(bytes.to_vec())).into_iter().chain([end]).collect();
        for piece in [1, 2, 3, 1000, sent.len()] {
            assert_eq!(decoded(&sent, piece).unwrap(), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn the_end_of_the_machine_is_another_one_than_that_of_a_session() {
        let mut sent = Vec::new();
        encode_end_of_machine(&mut sent).unwrap();
        let end = SessionEnd { reason: "the machine has ended".to_owned(), machine_ended: true };
        assert_eq!(decoded(&sent, 7).unwrap(), [Part::End(end)]);
        // Of a version before.
        let before = SessionEnd { reason: "another client".to_owned(), machine_ended: false };
        assert_eq!(decoded(b"\0\0{\"reason\":\"another client\"}\n", 100).unwrap(), [Part::End(before)]);
    }

    #[test]
    fn an_end_that_cannot_be_read_is_an_error_and_half_a_part_is_none() {
        assert!(matches!(decoded(b"\0\0{}\n", 9), Err(SessionError::End(_))));
        assert!(matches!(decoded(&[0; 5000], 100), Err(SessionError::LongEnd)));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 5, 1]);
        assert!(decoder.next_part().unwrap().is_none());
    }

    #[test]
    fn whatever_a_launcher_sends_is_taken_apart() {
        // Bytes in no order, with many zeros: lengths, ends and halves of both.
        let mut state = 1_u32;
        let mut byte = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [high, _, _, _] = state.to_be_bytes();
            if high.is_multiple_of(3) { 0 } else { high }
        };
        for piece in 1..200 {
            let sent: Vec<u8> = (0..300).map(|_| byte()).collect();
            let taken: usize = decoded(&sent, piece).map_or(0, |parts| {
                let length = |part: &Part| match part {
                    Part::Bytes(bytes) => bytes.len() + HEAD,
                    Part::End(_) => HEAD,
                };
                parts.iter().map(length).sum()
            });
            assert!(taken <= sent.len(), "more is taken than was sent");
        }
    }
}
