//! The end of a websocket that the API server refused. A browser hides the answer to a refused websocket from its page, so this server
//! opens the websocket, sends the `Status` as its one text, and closes it (RFC 6455). Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// RFC 6455, 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Close codes from here on are the application's: the code of HTTP is added.
pub const REFUSED: u16 = 4000;
/// The longest text that is sent; its length has 16 bits.
const LONGEST_TEXT: usize = 60 * 1024;

/// What `Sec-WebSocket-Accept` says to a key.
#[must_use]
pub fn accept(key: &str) -> String {
    STANDARD.encode(sha1_smol::Sha1::from(format!("{key}{GUID}")).digest().bytes())
}

/// A text frame and a close frame, as servers send them: whole and without a mask.
#[must_use]
pub fn refusal(code: u16, text: &str) -> Vec<u8> {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let text = text.get(..end).unwrap_or_default();
    let mut bytes = vec![0x81];
    match u8::try_from(text.len()) {
        Ok(length @ 0..=125) => bytes.push(length),
        Ok(_) | Err(_) => {
            bytes.push(126);
            bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    bytes.extend(text.as_bytes());
    bytes.extend([0x88, 2]);
    bytes.extend(REFUSED.saturating_add(code).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_accepted_as_the_standard_has_it() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_refusal_is_one_text_and_a_close_code() {
        assert_eq!(refusal(403, "no"), [0x81, 2, b'n', b'o', 0x88, 2, 0x11, 0x33]);
        let long = refusal(500, &"ä".repeat(100));
        assert_eq!(long[..4], [0x81, 126, 0, 200]);
        let longest = refusal(500, &format!("x{}", "ä".repeat(LONGEST_TEXT)));
        let length = usize::from(u16::from_be_bytes([longest[2], longest[3]]));
        assert_eq!((length, longest.len()), (LONGEST_TEXT - 1, 4 + length + 4));
    }
}
