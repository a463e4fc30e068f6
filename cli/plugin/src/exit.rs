//! Exit codes, the contract with scripts. [`CODES`] is what both helps list.

use crate::output::{self, note};
use std::process::ExitCode;

/// Which commands end with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Each of them.
    Every,
    /// `garboard run` that stays attached.
    Run,
    /// `why --exit-code`, here and on a bare host.
    Why,
    /// `explain` where it compares, here and on a bare host.
    Explain,
}

impl Of {
    /// As the user writes it.
    #[must_use]
    pub const fn option(self) -> Option<&'static str> {
        match self {
            Self::Every => None,
            Self::Run => Some("run without --detach"),
            Self::Why => Some("why --exit-code"),
            Self::Explain => Some("explain --diff, --against-running"),
        }
    }

    /// Whether the plugin has such a command.
    #[must_use]
    pub const fn is_of_plugin(self) -> bool {
        match self {
            Self::Every | Self::Why | Self::Explain => true,
            Self::Run => false,
        }
    }
}

/// A code, and its text in helps and documents.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The code.
    pub number: u8,
    /// The commands that end with it.
    pub of: Of,
    /// What it means, beside that.
    pub meaning: &'static str,
}

/// Defines the codes and their texts in one place.
macro_rules! codes {
    ($($name:ident = $number:literal, $of:ident, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: u8 = $number;)*

        /// Every code.
        pub const CODES: &[Code] = &[$(Code { number: $number, of: Of::$of, meaning: $meaning },)*];
    };
}

codes! {
    OK = 0, Every, "done";
    FAILED = 1, Every, "tried and failed; standard error has the reason";
    BAD_INPUT = 2, Every, "a manifest, file or option is wrong; nothing was started";
    NOT_FOUND = 3, Every, "there is no such machine";
    REFUSED = 4, Every, "the machine's state, or your rights, do not allow it";
    GUEST_FAILED = 5, Run, "the guest's run ended badly";
    UNHEALTHY = 6, Why, "something is wrong with the machine";
    WAITING = 7, Why, "the machine gets to where it is meant to be by itself";
    CHANGED = 8, Explain, "its guest would find another machine";
}

/// The part of a help that lists the codes: of the command that runs machines on this host, or of the plugin.
#[must_use]
pub fn help(is_of_plugin: bool) -> String {
    let mut text = "Exit codes:\n".to_owned();
    for Code { number, of, meaning } in CODES.iter().filter(|code| !is_of_plugin || code.of.is_of_plugin()) {
        let option = of.option().map(|option| format!("{option}: ")).unwrap_or_default();
        text.push_str(&format!("  {number}  {option}{meaning}\n"));
    }
    text
}

/// The help of `why --exit-code`, of both commands.
#[must_use]
pub fn help_of_why() -> String {
    format!(
        "Exit with {OK} if the machine is as it should be, {WAITING} if it will be by itself, {UNHEALTHY} if something is wrong, \
         {NOT_FOUND} if there is no such machine"
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_listed_once_and_the_documents_have_its_row() {
        let (_, table) = include_str!("../../../docs/kubectl.md").split_once("| code | of | meaning |\n").unwrap();
        let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let row = |Code { number, of, meaning }: &Code| match of.option() {
            None => format!("| {number} | every command | {meaning} |"),
            Some(option) => format!("| {number} | `{option}` | {meaning} |"),
        };
        assert_eq!(rows, CODES.iter().map(row).collect::<Vec<_>>(), "docs/kubectl.md");
        assert!(CODES.iter().zip(0..).all(|(code, number)| code.number == number), "in order, without a gap");
        assert!(help(false).contains("  5  run without --detach: the guest's run ended badly\n"));
        assert!(!help(true).contains("run without --detach"), "the plugin has no such command");
    }

    /// The help and both pages list what `why --exit-code` ends with: the codes of this option alone, and two of those that each
    /// command has.
    #[test]
    fn the_codes_of_why_are_in_its_help_and_in_the_documents() {
        let (_, table) = include_str!("../../../docs/kubectl.md").split_once("| code | `health` in").unwrap();
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        let expected =
            [(OK, "`well`"), (WAITING, "`waiting`"), (UNHEALTHY, "`wrong`"), (NOT_FOUND, "`wrong`"), (FAILED, "")];
        let judged = expected.map(|(number, _)| number);
        assert_eq!(rows.len(), expected.len(), "docs/kubectl.md: {rows:#?}");
        for (row, (number, health)) in rows.iter().zip(expected) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!((cells[1], cells[2]), (number.to_string().as_str(), health), "docs/kubectl.md: {row}");
        }
        let monitoring = include_str!("../../../docs/monitoring.md");
        let sentence = format!(
            "--exit-code` ends with {OK} (well), {WAITING} (it will change by itself), {UNHEALTHY} (something is wrong) or {NOT_FOUND} (not found)"
        );
        assert!(monitoring.contains(&sentence), "docs/monitoring.md: {sentence}");
        let help = help_of_why();
        for Code { number, .. } in CODES.iter().filter(|code| code.of == Of::Why) {
            assert!(judged.contains(number) && help.contains(&format!(" {number} if ")), "{number}: {help}");
            assert!(sentence.contains(&format!(" {number} (")), "{number}: {sentence}");
        }
    }
}
