//! Strings of others, made safe to show: bounded, and without characters that move a cursor or reverse a line.

use std::fmt::Write as _;

/// `text` with everything unprintable (control characters, line breaks, direction overrides, unassigned code points)
/// and the backslash escaped as Rust escapes them, cut after `limit` characters of the original.
pub fn printable(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for (position, character) in text.chars().enumerate() {
        if position == limit {
            let _ = write!(shown, "… ({} bytes)", text.len());
            break;
        }
        match character {
            '"' | '\'' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// The same for bytes that may be no text: those are shown as `\xNN`.
pub fn printable_bytes(bytes: &[u8], limit: usize) -> String {
    let mut shown = String::new();
    let kept = &bytes[..bytes.len().min(limit)];
    for chunk in kept.utf8_chunks() {
        shown.push_str(&printable(chunk.valid(), usize::MAX));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    if kept.len() < bytes.len() {
        let _ = write!(shown, "… ({} bytes)", bytes.len());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_control_is_escaped_and_letters_of_any_script_stay() {
        assert_eq!(printable("a\x1b[31m\r\n\u{202e}b\\", 99), "a\\u{1b}[31m\\r\\n\\u{202e}b\\\\");
        assert_eq!(printable("Käsebrot \"日本\"", 99), "Käsebrot \"日本\"");
    }

    #[test]
    fn long_text_is_cut_and_shows_how_long_it_was() {
        assert_eq!(printable("abcdef", 3), "abc… (6 bytes)");
        assert_eq!(printable("abc", 3), "abc");
        assert_eq!(printable_bytes(b"ab\xff\x00cd", 5), "ab\\xff\\0c… (6 bytes)");
    }

    proptest! {
        #[test]
        fn no_control_character_gets_through(bytes in proptest::collection::vec(any::<u8>(), 0..100), limit in 0usize..50) {
            for shown in [printable_bytes(&bytes, limit), printable(&String::from_utf8_lossy(&bytes), limit)] {
                prop_assert!(!shown.chars().any(char::is_control), "{shown:?}");
            }
        }
    }
}
