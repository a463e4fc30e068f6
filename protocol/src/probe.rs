//! The command with which a kubelet asks a guest: a program of the launcher's image, in the container of QEMU.

use crate::control::GuestQuestion;
use crate::pod::LAUNCHER_PROGRAM;

/// First argument of the command.
pub const ARGUMENT: &str = "--probe";

/// The command that puts a question, for the container's probe.
#[must_use]
pub fn command(question: &GuestQuestion, within_seconds: u32) -> Vec<String> {
    let mut command_line = vec![LAUNCHER_PROGRAM.to_owned(), ARGUMENT.to_owned(), within_seconds.to_string()];
    match question {
        GuestQuestion::Ping => command_line.push("ping".to_owned()),
        GuestQuestion::Exec { command } => {
            command_line.extend(["exec".to_owned(), "--".to_owned()]);
            command_line.extend(command.iter().cloned());
        }
    }
    command_line
}
