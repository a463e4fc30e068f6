//! Standard output and standard error: the only places where these programs write to them.
//!
//! A reader that has seen enough (`| head`) closes its end. That is no error: the rest of the output is dropped, and the command
//! ends with the code that it would have had. Any other failure to write (a full disk) is an error.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;

use crate::options::{ListOutput, Output};

/// Prints a line to standard output.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard error: progress, warnings, hints.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::output::remark(format_args!($($text)*)) };
}

pub use {note, out, outln};

/// Whether anything still reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It has taken everything.
    There,
    /// It has closed its end; nothing more will be read.
    Gone,
}

/// Writes to standard output, for callers that go on only while it is read.
pub fn write(bytes: &[u8]) -> anyhow::Result<Reader> {
    let mut out = std::io::stdout().lock();
    outcome(out.write_all(bytes).and_then(|()| out.flush()))
}

fn outcome(written: std::io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error).context("could not write to standard output"),
    }
}

/// Behind [`out!`] and [`outln!`].
pub fn print(text: Arguments<'_>) -> anyhow::Result<()> {
    write(text.to_string().as_bytes()).map(|_| ())
}

impl Output {
    /// Prints a value for programs, or does what people read.
    pub fn show(self, value: &impl Serialize, text: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Self::Text => text(),
            Self::Json => foreign(&format!("{}\n", serde_json::to_string_pretty(value)?)),
            Self::Yaml => foreign(&crate::yaml::write(value)?),
        }
    }
}

/// A list of things that have names.
pub trait Named: Serialize {
    /// What is written to mean this one.
    fn name(&self) -> String;
}

impl ListOutput {
    /// Prints a list for programs, as names, or as people read it: then `text` receives whether more columns are wanted.
    pub fn show<T: Named>(self, list: &[T], text: impl FnOnce(bool) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Self::Text => text(false),
            Self::Wide => text(true),
            Self::Name => list.iter().try_for_each(|one| outln!("{}", one.name())),
            Self::Json => foreign(&format!("{}\n", serde_json::to_string_pretty(list)?)),
            Self::Yaml => foreign(&crate::yaml::write(list)?),
        }
    }
}

/// A document whose values may be of a guest, or of a launcher.
fn foreign(document: &str) -> anyhow::Result<()> {
    write_foreign(document.as_bytes()).map(|_| ())
}

/// Behind [`note!`]. Where nothing reads standard error, there is no place for it.
pub fn remark(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Bytes of a guest, or of another untrusted source: on a terminal they are shown and have no effect; a file or a pipe gets them
/// as they are.
#[derive(Debug)]
pub struct TerminalOutput {
    is_terminal: bool,
    /// The beginning of a character, or a carriage return, whose rest has not come yet.
    pending: Vec<u8>,
}

impl TerminalOutput {
    /// For standard output.
    pub fn to_standard_output() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), pending: Vec::new() }
    }

    /// Writes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<Reader> {
        if !self.is_terminal {
            return write(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let complete = self.pending.len() - unfinished(&self.pending);
        let rest = self.pending.split_off(complete);
        let text = harmless(&std::mem::replace(&mut self.pending, rest));
        write(text.as_bytes())
    }

    /// Writes what was waiting for more.
    pub fn finish(&mut self) -> anyhow::Result<Reader> {
        let text = harmless(&std::mem::take(&mut self.pending));
        write(text.as_bytes())
    }
}

/// Writes foreign bytes that are all there.
pub fn write_foreign(bytes: &[u8]) -> anyhow::Result<Reader> {
    let mut foreign = TerminalOutput::to_standard_output();
    foreign.write(bytes)?;
    foreign.finish()
}

/// How many bytes at the end may become something else with the next ones.
fn unfinished(bytes: &[u8]) -> usize {
    if bytes.last() == Some(&b'\r') {
        return 1;
    }
    let tail = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_cut = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if is_cut { tail.len() } else { 0 }
}

/// The same as text in which nothing drives a terminal: lines and tabs stay, every other control character, whatever
/// reverses the direction of writing, and what is no UTF-8, is written as an escape.
pub fn harmless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut characters = chunk.valid().chars().peekable();
        while let Some(one) = characters.next() {
            match one {
                '\n' | '\t' => text.push(one),
                // The end of a line, as serial ports have it.
                '\r' if characters.peek() == Some(&'\n') => {}
                one if one.is_control() || is_direction(one) => text.extend(one.escape_default()),
                one => text.push(one),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Embeddings, overrides and isolates of Unicode's bidirectional algorithm: they show a line as what it is not.
fn is_direction(one: char) -> bool {
    matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_prints_cannot_drive_a_terminal() {
        let table: [(&[u8], &str); 7] = [
            (b"login:\r\n\tx\r\n", "login:\n\tx\n"),
            (b"\x1b]0;title\x07\x1b[2J", "\\u{1b}]0;title\\u{7}\\u{1b}[2J"),
            (b"secret\roverwritten", "secret\\roverwritten"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            ("\u{202e}txt.exe".as_bytes(), "\\u{202e}txt.exe"),
            (b"\xff\x9b2J", "\\xff\\x9b2J"),
            ("Grüße, 日本".as_bytes(), "Grüße, 日本"),
        ];
        for (bytes, expected) in table {
            assert_eq!(harmless(bytes), expected);
        }
    }

    #[test]
    fn a_character_that_comes_in_two_parts_is_one() {
        let bytes = "a日\r\n\u{1b}".as_bytes();
        for at in 0..=bytes.len() {
            let mut pending = bytes[..at].to_vec();
            let rest = pending.split_off(at - unfinished(&pending));
            let text = harmless(&pending) + &harmless(&[&rest, &bytes[at..]].concat());
            assert_eq!(text, "a日\n\\u{1b}", "cut at {at}");
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is_one() {
        assert_eq!(outcome(Err(ErrorKind::BrokenPipe.into())).unwrap(), Reader::Gone);
        let error = outcome(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert!(format!("{error:#}").starts_with("could not write to standard output: "), "{error:#}");
    }
}
