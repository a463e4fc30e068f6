//! One message is one line: compact JSON and a newline. Lines are bounded, so a peer cannot make the reader grow.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::text::DecoderError;

/// The longest line either side accepts, in bytes. An argv of 256 disks is about 200 KiB.
pub const MAX_LINE_BYTES: usize = 2 * 1024 * 1024;

/// The longest answer of a supervisor that a controller reads, and that a supervisor makes of what its guest says, bytes. A controller
/// reads many at once, and a launcher that was taken over sends what it likes. A status has less than half of it.
pub const LONGEST_ANSWER_BYTES: usize = 512 * 1024;

/// The most descriptors one `sendmsg` carries (`SCM_MAX_FD` in the kernel's `include/net/scm.h`); a
/// longer list continues in the messages that follow.
pub const MAX_DESCRIPTORS_PER_MESSAGE: usize = 253;

/// Why a line was not understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The peer sent more than [`MAX_LINE_BYTES`] without a newline.
    #[error("the peer sent a line longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The line is not the JSON that was expected.
    #[error("the peer sent a line that is not a `{expected}` message")]
    Undecodable {
        /// The Rust name of the type that was expected.
        expected: &'static str,
        /// What serde found.
        #[source]
        source: DecoderError,
    },
}

/// Renders one message with its newline.
///
/// # Errors
/// Only if a map key of `message` is not a string, which no type of this crate has.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads one message from a line, with or without its newline.
///
/// # Errors
/// [`WireError`] if the line is too long or not a `T`.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, WireError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(WireError::TooLong);
    }
    serde_json::from_slice(line).map_err(|error| WireError::Undecodable {
        expected: short_type_name(std::any::type_name::<T>()),
        source: error.into(),
    })
}

fn short_type_name(full: &'static str) -> &'static str {
    full.rsplit("::").next().unwrap_or(full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlRequest, StopMode};

    #[test]
    fn a_message_survives_the_wire() {
        let request = ControlRequest::Stop { mode: StopMode::Graceful { within_seconds: Some(7) } };
        let line = encode(&request).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(decode::<ControlRequest>(&line).unwrap(), request);
    }

    #[test]
    fn garbage_names_the_expected_message() {
        let error = decode::<ControlRequest>(b"{\"nonsense\":1}").unwrap_err();
        assert!(error.to_string().contains("ControlRequest"), "{error}");
    }

    #[test]
    fn an_endless_line_is_refused() {
        assert!(matches!(decode::<ControlRequest>(&vec![b' '; MAX_LINE_BYTES + 1]), Err(WireError::TooLong)));
    }
}
