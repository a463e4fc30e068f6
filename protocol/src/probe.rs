//! The command with which a kubelet asks a guest: a program of the launcher's image, in the container of QEMU.

use crate::control::GuestQuestion;
use crate::pod::LAUNCHER_PROGRAM;

/// First argument of the command.
pub const WORD: &str = "--probe";

/// The command that puts a question, for the container's probe.
#[must_use]
pub fn command(question: &GuestQuestion, within_seconds: u32) -> Vec<String> {
    let mut words = vec![LAUNCHER_PROGRAM.to_owned(), WORD.to_owned(), within_seconds.to_string()];
    match question {
        GuestQuestion::Ping => words.push("ping".to_owned()),
        GuestQuestion::Exec { command } => {
            words.extend(["exec".to_owned(), "--".to_owned()]);
            words.extend(command.iter().cloned());
        }
    }
    words
}
