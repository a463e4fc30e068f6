//! Where rules put what they find, and the short names by which they make a [`Fault`].

use crate::fault::{Fault, FaultCode, FieldPath, SentText};

/// What the rules found so far. Nothing is ever taken back, so every rule is applied, also after another has refused.
#[derive(Default)]
pub(crate) struct Report {
    faults: Vec<Fault>,
}

impl Report {
    /// Adds a fault.
    pub(crate) fn push(&mut self, fault: Fault) {
        self.faults.push(printable(fault));
    }

    /// Adds a fault unless something is wrong at its place already.
    pub(crate) fn push_unless_known(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.path == fault.path) {
            self.push(fault);
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Everything found, in the order in which it was found.
    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }
}

/// The most characters of a text that quotes a manifest.
const TEXT_MAX: usize = 400;

/// The fault with texts that can be shown on a terminal: what they quote may be of any length and hold anything.
pub(crate) fn printable(mut fault: Fault) -> Fault {
    fault.path = FieldPath::from(shown(fault.path.as_str()));
    fault.message = shown(&fault.message);
    fault.instead = fault.instead.as_deref().map(shown);
    match fault.sent.as_deref_mut() {
        Some(SentText::NoVolume { name } | SentText::NoObject { name, .. }) => *name = shown(name),
        Some(
            SentText::Conflict
            | SentText::NoImage
            | SentText::NoKernel
            | SentText::Root
            | SentText::NotAbsolute
            | SentText::GateOff { .. },
        )
        | None => {}
    }
    fault
}

fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(TEXT_MAX));
    for (length, letter) in text.chars().enumerate() {
        if length == TEXT_MAX {
            shown.push('…');
            break;
        }
        if letter.is_control() || is_invisible(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Characters that change how the text around them is shown, or separate lines.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl From<Vec<Fault>> for Report {
    fn from(faults: Vec<Fault>) -> Self {
        Self { faults }
    }
}

/// A value that cannot be accepted, alone or together with another.
pub(crate) fn invalid(at: FieldPath, message: impl Into<String>) -> Fault {
    Fault::new(at, FaultCode::Invalid, message)
}

/// A value that is missing.
pub(crate) fn required(at: FieldPath, message: impl Into<String>) -> Fault {
    Fault::new(at, FaultCode::Required, message)
}

/// A value that is none of those that exist, or that this cluster does not permit.
pub(crate) fn unsupported(at: FieldPath, message: impl Into<String>) -> Fault {
    Fault::new(at, FaultCode::NotSupported, message)
}

/// A value that another element has already.
pub(crate) fn duplicate(at: FieldPath, message: impl Into<String>) -> Fault {
    Fault::new(at, FaultCode::Duplicate, message)
}

/// A name of something that is not in the manifest.
pub(crate) fn not_found(at: FieldPath, message: impl Into<String>) -> Fault {
    Fault::new(at, FaultCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fault_quotes_cannot_steer_a_terminal() {
        let mut report = Report::default();
        report.push(invalid(FieldPath::from("a[\u{1b}]"), "`x\u{1b}[2J\n\u{202e}`").instead("write `\r`"));
        let fault = &report.into_faults()[0];
        assert_eq!(fault.to_string(), "a[\\u{1b}]: `x\\u{1b}[2J\\u{a}\\u{202e}`; write `\\u{d}`");
    }

    #[test]
    fn what_a_fault_quotes_is_cut() {
        let fault = printable(invalid(FieldPath::from("a"), "ä".repeat(1_000_000)));
        assert_eq!(fault.message.chars().count(), TEXT_MAX + 1);
    }
}
