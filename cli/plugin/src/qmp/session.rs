//! `garboard qmp VM` without a command: a session with history, completion and documentation from the schema of
//! this very QEMU.

use std::path::Path;

use anyhow::Context;
use garboard_qmp_commands::schema::Schema;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};
use serde_json::Value;

use super::{Connection, parse_arguments};
use crate::exit;
use crate::output::outln;

const HELP: &str = "COMMAND [JSON]   execute it, for example: query-block
help             this text
help COMMAND     its arguments, from QEMU's schema
quit, Ctrl-D     leave (`execute quit` would end QEMU: garboard stop does that)";

/// Reads commands until the user leaves.
pub(super) fn run(connection: &mut Connection, machine: &str, history: Option<&Path>) -> anyhow::Result<u8> {
    let schema = connection.execute("query-qmp-schema", None).ok();
    let schema = schema.and_then(|reply| Schema::parse(&reply["return"].to_string()).ok());
    let commands = schema.iter().flat_map(|schema| schema.commands().map(str::to_owned)).collect();
    let mut editor: Editor<Commands, FileHistory> = Editor::new().context("open the terminal")?;
    editor.set_helper(Some(Commands { names: commands }));
    if let Some(history) = history {
        // A first session has none.
        let _ = editor.load_history(history);
    }
    loop {
        match editor.readline(&format!("{machine}> ")) {
            Ok(line) => {
                // A history that cannot be kept is no reason to stop.
                let _ = editor.add_history_entry(line.as_str());
                if !execute(connection, schema.as_ref(), line.trim())? {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("read the terminal"),
        }
    }
    if let Some(history) = history {
        let _ = editor.save_history(history);
    }
    Ok(exit::OK)
}

/// Answers whether to go on.
fn execute(connection: &mut Connection, schema: Option<&Schema>, line: &str) -> anyhow::Result<bool> {
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (command, rest.trim()) {
        ("", _) => {}
        ("quit" | "exit", "") => return Ok(false),
        ("help", "") => outln!("{HELP}")?,
        ("help", command) => match schema.and_then(|schema| schema.describe(command)) {
            Some(text) => outln!("{text}")?,
            None => outln!("QEMU has no `{command}`")?,
        },
        (command, "") => show(&connection.execute(command, None)?)?,
        (command, json) => match parse_arguments(json) {
            Ok(arguments) => show(&connection.execute(command, Some(arguments))?)?,
            Err(error) => outln!("{error}")?,
        },
    }
    Ok(true)
}

fn show(reply: &Value) -> anyhow::Result<()> {
    let shown = reply.get("return").or_else(|| reply.get("error")).unwrap_or(reply);
    outln!("{}", serde_json::to_string_pretty(shown)?)?;
    Ok(())
}

/// Completes the first word.
struct Commands {
    names: Vec<String>,
}

impl Completer for Commands {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or(line);
        let start = if typed.starts_with("help ") { 5 } else { 0 };
        let word = typed.get(start..).unwrap_or_default();
        if word.contains(char::is_whitespace) {
            return Ok((position, Vec::new()));
        }
        Ok((start, self.names.iter().filter(|name| name.starts_with(word)).cloned().collect()))
    }
}

impl Hinter for Commands {
    type Hint = String;
}
impl Highlighter for Commands {}
impl Validator for Commands {}
impl Helper for Commands {}
