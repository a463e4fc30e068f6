//! Texts of other programs, made safe for logs, messages and terminals: escaped and bounded. Pure.

/// The most characters of a decoder's error.
const DECODER_ERROR: usize = 300;

/// At most `longest` characters of a text, those that are not printable escaped as in Rust; `…` where it was cut.
#[must_use]
pub fn printable(text: &str, longest: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(longest));
    for (position, letter) in text.chars().enumerate() {
        match letter {
            _ if position == longest => {
                shown.push('…');
                break;
            }
            // A text is not quoted again.
            '"' | '\'' => shown.push(letter),
            _ => shown.extend(letter.escape_debug()),
        }
    }
    shown
}

/// A decoder's error. It quotes what it read, which may be of any length and hold anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecoderError(String);

impl From<serde_json::Error> for DecoderError {
    fn from(error: serde_json::Error) -> Self {
        Self(printable(&error.to_string(), DECODER_ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped_and_cut_with_a_mark() {
        assert_eq!(printable("it's \"x\"", 20), "it's \"x\"");
        assert_eq!(printable("\u{1b}[2J\n", 20), "\\u{1b}[2J\\n");
        assert_eq!(printable("äöü", 2), "äö…");
    }

    #[test]
    fn a_decoders_error_is_bounded_and_printable() {
        let foreign = format!("\"\u{1b}[2J{}\"", "x".repeat(100_000));
        #[derive(Debug, serde::Deserialize)]
        enum Known {
            One,
        }
        // An unknown variant is quoted as it was received.
        assert!(matches!(serde_json::from_str("\"One\""), Ok(Known::One)));
        let raw = serde_json::from_str::<Known>(&foreign.replace('\u{1b}', "\\u001b")).unwrap_err();
        assert!(raw.to_string().len() > 100_000 && raw.to_string().contains('\u{1b}'));
        let shown = DecoderError::from(raw).to_string();
        assert!(shown.chars().count() <= DECODER_ERROR + 10 && !shown.contains('\u{1b}'), "{shown}");
    }
}
