//! Exit codes, the contract with scripts. [`CODES`] is what both helps list.

use crate::output::{self, note};
use std::process::ExitCode;

/// Everything asked for was done.
pub const OK: u8 = 0;
/// It was tried and failed; standard error has the reason.
pub const FAILED: u8 = 1;
/// A manifest, file or option is wrong; nothing was started.
pub const BAD_INPUT: u8 = 2;
/// There is no such machine.
pub const NOT_FOUND: u8 = 3;
/// The machine's state does not allow it.
pub const REFUSED: u8 = 4;
/// `run` without `--detach`: the guest's run ended badly (crash, out of memory, panic).
pub const GUEST_FAILED: u8 = 5;
/// `why --exit-code`: something is wrong with the machine.
pub const UNHEALTHY: u8 = 6;
/// `why --exit-code`: the machine is not as it is meant to be yet, and gets there by itself.
pub const WAITING: u8 = 7;

/// Every code with its meaning, for the help of a command.
pub const CODES: [(u8, &str); 8] = [
    (OK, "done"),
    (FAILED, "tried and failed; standard error has the reason"),
    (BAD_INPUT, "a manifest, file or option is wrong; nothing was started"),
    (NOT_FOUND, "there is no such machine"),
    (REFUSED, "the machine's state, or your rights, do not allow it"),
    (GUEST_FAILED, "run without --detach: the guest's run ended badly"),
    (UNHEALTHY, "why --exit-code: something is wrong with the machine"),
    (WAITING, "why --exit-code: the machine gets to where it is meant to be by itself"),
];

/// The part of a help that lists the codes, without those that the command never ends with.
#[must_use]
pub fn help(never: &[u8]) -> String {
    let mut text = "Exit codes:\n".to_owned();
    for (code, meaning) in CODES.iter().filter(|(code, _)| !never.contains(code)) {
        text.push_str(&format!("  {code}  {meaning}\n"));
    }
    text
}

/// An error that has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExitError {
    /// One of the codes above.
    pub code: u8,
    /// What is wrong and what to do.
    pub message: String,
}

/// An error with a code.
pub fn exit_error(code: u8, message: impl Into<String>) -> anyhow::Error {
    ExitError { code, message: message.into() }.into()
}

/// Prints an error with its whole chain and picks the code.
pub fn report(outcome: anyhow::Result<u8>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            note!("garboard: {}", output::harmless(format!("{error:#}").as_bytes()));
            ExitCode::from(code_of(&error))
        }
    }
}

/// The code of an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<ExitError>().map_or(FAILED, |exit_error| exit_error.code)
}
