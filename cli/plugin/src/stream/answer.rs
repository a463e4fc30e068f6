//! The body of an answer that is no websocket: short, whole, and without the frames of a chunked one.

use std::io::Read;

/// Of a body, this much is read. A `Status` is shorter.
const LONGEST_BODY: usize = 64 * 1024;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// It has so many bytes.
    Known(usize),
    /// It comes in chunks.
    Chunked,
    /// It ends with the connection.
    UntilTheEnd,
}

/// Reads the rest of a body; what cannot be read is not there.
pub(super) fn body(begun: Vec<u8>, length: Length, socket: &mut impl Read) -> Vec<u8> {
    let mut body = begun;
    let is_whole = |body: &[u8]| match length {
        Length::Known(count) => body.len() >= count,
        Length::Chunked => body.ends_with(b"0\r\n\r\n"),
        Length::UntilTheEnd => false,
    };
    let mut buffer = [0; 4096];
    while !is_whole(&body) && body.len() < LONGEST_BODY {
        match socket.read(&mut buffer) {
            Ok(count) if count > 0 => body.extend_from_slice(&buffer[..count]),
            Ok(_) | Err(_) => break,
        }
    }
    match length {
        Length::Chunked => unchunked(&body),
        Length::Known(count) => {
            body.truncate(count);
            body
        }
        Length::UntilTheEnd => body,
    }
}

/// RFC 9112, 7.1: a length in hexadecimal, perhaps an extension, a line's end, so many bytes, a line's end. What is cut off is
/// read as far as it came.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let count = std::str::from_utf8(digits).ok().and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let Some(count) = count.filter(|count| *count > 0) else { break };
        let count = count.min(after.len());
        body.extend_from_slice(&after[..count]);
        rest = after.get(count + 2..).unwrap_or_default();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_to_its_end_and_no_further() {
        let read = |begun: &str, length, rest: &str| {
            let bytes = body(begun.into(), length, &mut std::io::Cursor::new(rest.as_bytes().to_vec()));
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(read("{\"a\"", Length::Known(8), ": 1}next"), "{\"a\": 1}");
        assert_eq!(read("", Length::UntilTheEnd, "until the end"), "until the end");
        assert_eq!(read("4\r\n{\"a\"\r\n", Length::Chunked, "4;x=y\r\n: 1}\r\n0\r\n\r\n"), "{\"a\": 1}");
        assert_eq!(read("ff\r\ncut", Length::Chunked, ""), "cut");
        assert_eq!(read("ffffffffffffffffffff\r\nx", Length::Chunked, ""), "");
        assert_eq!(read("", Length::Known(usize::MAX), &"x".repeat(1 << 20)).len(), LONGEST_BODY);
    }
}
