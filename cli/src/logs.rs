//! `garboard logs`: the recorder. What a run left behind is read from the machine's directories while
//! it runs and from its record afterwards; the names are the same.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;

use anyhow::Context;
use garboard_common::foreign;
use garboard_kubectl::log_line::{argv_of, for_person};
use garboard_protocol::paths::{self, Layout};
use garboard_shim_client::logs::SUPERVISOR_LOG;
use garboard_shim_client::pause_briefly;
use garboard_shim_client::places::{MachineId, Places};

use crate::args::{LogPart, LogsArgs};
use crate::exit::{self, BAD_INPUT, NOT_FOUND, exit_error};
use crate::output::{self, Reader, TerminalOutput, note};

/// Most of a file that is shown, bytes.
const MAX_SHOWN_BYTES: u64 = 256 << 20;

/// `garboard logs MACHINE`.
pub(crate) fn run(args: &LogsArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let id = args.here.id(&args.machine)?;
    let run = find(&places, &id, args.last)?;
    if args.follow {
        let layout = places.layout(&id);
        follow(&run, args.part, args.tail, || layout.supervisor().exists())?;
        return Ok(exit::OK);
    }
    let text = match args.part {
        LogPart::Events => events(&run)?.into_bytes(),
        LogPart::Argv => argv(&run)?,
        LogPart::Plan => bytes_of(&run, paths::PLAN)?,
        LogPart::Qmp => bytes_of(&run, paths::TRANSCRIPT)?,
        LogPart::Qemu => bytes_of(&run, paths::QEMU_LOG)?,
        LogPart::Serial => bytes_of(&run, &paths::serial_log(0))?,
        LogPart::Exit => bytes_of(&run, paths::EXIT)?,
    };
    output::write_foreign(last_lines(&text, args.tail))?;
    Ok(exit::OK)
}

/// The file of a part that grows.
fn file_of(part: LogPart) -> anyhow::Result<String> {
    match part {
        LogPart::Events => Ok(SUPERVISOR_LOG.to_owned()),
        LogPart::Qmp => Ok(paths::TRANSCRIPT.to_owned()),
        LogPart::Qemu => Ok(paths::QEMU_LOG.to_owned()),
        LogPart::Serial => Ok(paths::serial_log(0)),
        LogPart::Argv | LogPart::Plan | LogPart::Exit => {
            Err(exit_error(BAD_INPUT, "--follow: this part does not grow; follow events, qmp, qemu or serial"))
        }
    }
}

/// Shows what a file has and gets, until `goes_on` is false. The file may be moved meanwhile.
fn follow(run: &Run, part: LogPart, tail: Option<usize>, goes_on: impl Fn() -> bool) -> anyhow::Result<()> {
    let name = file_of(part)?;
    let file = run.open(&name)?;
    let mut file = file.ok_or_else(|| exit_error(NOT_FOUND, format!("this run has no {name} yet")))?;
    let mut shown = TerminalOutput::to_standard_output();
    let (mut rest, mut first) = (Vec::new(), true);
    loop {
        // Asked before the file is read: what is written before the end is shown.
        let is_last = !goes_on();
        if file.metadata()?.len() < file.stream_position()? {
            // The file was cut to its end, or to beginning and end, because it had become too long.
            note!("garboard: {name} was shortened; the rest of it follows");
            file.rewind()?;
            rest.clear();
        }
        (&mut file).take(MAX_SHOWN_BYTES).read_to_end(&mut rest).with_context(|| format!("read {name}"))?;
        // Half a line is not printed yet.
        let complete = if part == LogPart::Events && !is_last {
            rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
        } else {
            rest.len()
        };
        let ready: Vec<u8> = rest.drain(..complete).collect();
        let ready = if first { last_lines(&ready, tail) } else { &ready };
        first = false;
        let text = if part == LogPart::Events {
            for_persons(&String::from_utf8_lossy(ready)).into_bytes()
        } else {
            ready.to_vec()
        };
        if !text.is_empty() && shown.write(&text)? == Reader::Gone {
            return Ok(());
        }
        if is_last {
            return shown.finish().map(|_| ());
        }
        pause_briefly();
    }
}

/// So many lines from the end, or all.
fn last_lines(text: &[u8], count: Option<usize>) -> &[u8] {
    let Some(count) = count else { return text };
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    match count {
        0 => &[],
        count => ends.nth(count - 1).map_or(text, |at| &text[at + 1..]),
    }
}

/// Where the files of a run are.
pub(crate) enum Run {
    /// The run goes on: each file is in the directory of the process that writes it.
    Running(Layout),
    /// The run has ended: all files are in its record.
    Ended(PathBuf),
}

impl Run {
    fn directory_of(&self, name: &str) -> PathBuf {
        match self {
            // The shim's, like its own log.
            Self::Running(layout) if name == SUPERVISOR_LOG => layout.machine().to_owned(),
            Self::Running(layout) => layout.directory_of(name),
            Self::Ended(record) => record.clone(),
        }
    }

    /// A file of the run, if it exists yet.
    fn open(&self, name: &str) -> anyhow::Result<Option<File>> {
        let directory = self.directory_of(name);
        foreign::open_file(&directory, name).with_context(|| format!("read {name} in {}", directory.display()))
    }

    /// The text of a file, as far as it is shown.
    fn text(&self, name: &str) -> anyhow::Result<String> {
        let mut text = Vec::new();
        if let Some(file) = self.open(name)? {
            file.take(MAX_SHOWN_BYTES).read_to_end(&mut text).with_context(|| format!("read {name}"))?;
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// The current run, or the last one that ended.
pub(crate) fn find(places: &Places, id: &MachineId, last: bool) -> anyhow::Result<Run> {
    let running = places.layout(id);
    if !last && running.supervisor().exists() {
        return Ok(Run::Running(running));
    }
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(places.records(id)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    runs.sort();
    runs.pop().map(Run::Ended).ok_or_else(|| {
        let text = format!("{id} has no record; check that it was started by this user, with this --state-dir");
        exit_error(NOT_FOUND, text)
    })
}

pub(crate) fn bytes_of(run: &Run, name: &str) -> anyhow::Result<Vec<u8>> {
    let file = run.open(name)?;
    let file =
        file.ok_or_else(|| exit_error(NOT_FOUND, format!("this run has no {name}: it ended before there was one")))?;
    let mut bytes = Vec::new();
    file.take(MAX_SHOWN_BYTES).read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
    Ok(bytes)
}

fn argv(run: &Run) -> anyhow::Result<Vec<u8>> {
    let plan = run.text(paths::PLAN)?;
    anyhow::ensure!(!plan.is_empty(), "this run has no plan: it ended before it was made");
    argv_of(plan.as_bytes())
}

/// The supervisor's lines for a person: time, level, message, fields, then the request and the QMP command that a line belongs
/// to. Which machine it belongs to is known.
fn events(run: &Run) -> anyhow::Result<String> {
    Ok(for_persons(&run.text(SUPERVISOR_LOG)?))
}

fn for_persons(text: &str) -> String {
    text.lines().map(|line| for_person(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_lines() {
        let table: [(&[u8], usize, &[u8]); 6] = [
            (b"a\nb\nc\n", 2, b"b\nc\n"),
            (b"a\nb\nc", 1, b"c"),
            (b"a\n", 5, b"a\n"),
            (b"a\nb\n", 0, b""),
            (b"\n\n", 1, b"\n"),
            (b"", 1, b""),
        ];
        for (text, count, expected) in table {
            assert_eq!(last_lines(text, Some(count)), expected, "{text:?} {count}");
        }
        assert_eq!(last_lines(b"a\nb", None), b"a\nb");
    }
}
