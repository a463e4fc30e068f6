//! The processes of a machine, found by what they were started with: for machines whose shim is dead, and for a
//! supervisor that does not answer.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use garboard_protocol::paths::Layout;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{calls, pause_briefly, program};

/// A process of ours that lives as long as its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `garboard-launcher MACHINE`.
    Supervisor,
    /// `garboard-init MACHINE/init …`.
    Init,
    /// `garboard-shim run MACHINE`; of builds before that program, `garboard keeper MACHINE/order.json`.
    Shim,
}

/// How a process begins its command line.
struct Start {
    program: &'static str,
    arguments: Vec<OsString>,
}

impl Part {
    fn starts(self, machine: &Path) -> Vec<Start> {
        let start = |program, arguments: &[&OsStr]| Start {
            program,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        match self {
            Self::Supervisor => vec![start(program::SUPERVISOR, &[machine.as_os_str()])],
            Self::Init => vec![start(program::INIT, &[Layout::new(machine).init().as_os_str()])],
            Self::Shim => vec![
                start(program::SHIM, &[calls::RUN.as_ref(), machine.as_os_str()]),
                start("garboard", &["keeper".as_ref(), machine.join("order.json").as_os_str()]),
            ],
        }
    }
}

/// The processes that play a part for the machine of a directory. A process that has ended but was not waited for has
/// no command line any more and is not among them.
#[must_use]
pub fn find(machine: &Path, part: Part) -> Vec<Pid> {
    let starts = part.starts(machine);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let plays = |number: &i32| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        starts.iter().any(|start| begins(&line, start))
    };
    numbers.filter(plays).map(Pid::from_raw).collect()
}

/// Whether a command line (`proc_pid_cmdline(5)`) begins so.
fn begins(line: &[u8], start: &Start) -> bool {
    let mut words = line.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let is_program = words.next().is_some_and(|first| Path::new(first).file_name() == Some(start.program.as_ref()));
    is_program && start.arguments.iter().all(|argument| words.next() == Some(argument))
}

/// Sends a signal to each; those that are gone meanwhile are fine.
pub fn send(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = kill(*process, signal);
    }
}

/// Waits until no process plays the part any more; false when `limit` is over first.
#[must_use]
pub fn wait_for_end(machine: &Path, part: Part, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while !find(machine, part).is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        pause_briefly();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_by_its_program_and_its_machine() {
        let line = |words: &[&str]| words.join("\0").into_bytes();
        let machine = Path::new("/run/garboard/default/vm");
        let table: [(Part, &[&str], bool); 8] = [
            (Part::Supervisor, &["/usr/bin/garboard-launcher", "/run/garboard/default/vm"], true),
            (Part::Supervisor, &["/usr/bin/garboard-launcher", "/run/garboard/default/vm2"], false),
            (Part::Init, &["garboard-init", "/run/garboard/default/vm/init", "--own-root"], true),
            (Part::Shim, &["/usr/bin/garboard-shim", "run", "/run/garboard/default/vm"], true),
            (Part::Shim, &["/usr/bin/garboard-shim", "delete", "/run/garboard/default/vm"], false),
            (Part::Shim, &["/usr/bin/garboard", "keeper", "/run/garboard/default/vm/order.json"], true),
            (Part::Shim, &["/usr/bin/garboard", "logs", "/run/garboard/default/vm/order.json"], false),
            (Part::Shim, &["vi", "run", "/run/garboard/default/vm"], false),
        ];
        for (part, words, wanted) in table {
            let found = part.starts(machine).iter().any(|start| begins(&line(words), start));
            assert_eq!(found, wanted, "{part:?}: {words:?}");
        }
    }

    /// What an earlier build has started is found, too. A shell plays it: its script is called as the subcommand was.
    #[test]
    fn the_shim_of_this_build_and_the_keeper_of_earlier_ones_are_found() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let request = machine.join("order.json");
        for (program, script, argument) in [("garboard-shim", "run", &machine), ("garboard", "keeper", &request)] {
            std::fs::write(room.path().join(script), "read line").unwrap();
            let mut command = Command::new("sh");
            command.arg0(program).arg(script).arg(argument).current_dir(room.path()).stdin(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let number = Pid::from_raw(i32::try_from(child.id()).unwrap());
            let deadline = Instant::now() + Duration::from_secs(60);
            while find(&machine, Part::Shim) != [number] {
                assert!(Instant::now() < deadline, "{program} is not found");
                pause_briefly();
            }
            drop(child.stdin.take());
            child.wait().unwrap();
            assert!(wait_for_end(&machine, Part::Shim, Duration::from_secs(60)));
        }
    }
}
