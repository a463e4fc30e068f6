//! The processes of a machine, found by what they were started with: for machines whose keeper is dead, and for a
//! supervisor that does not answer.

use std::path::Path;
use std::time::{Duration, Instant};

use garboard_protocol::paths::Layout;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::pause_briefly;

/// A supervisor that is told to go needs no longer than this.
const FAREWELL: Duration = Duration::from_secs(2);

/// A process of ours that lives as long as its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `garboard-launcher MACHINE`.
    Supervisor,
    /// `garboard-init MACHINE/init …`.
    Init,
    /// `garboard keeper MACHINE/order.json`.
    Keeper,
}

impl Part {
    fn program(self) -> &'static str {
        match self {
            Self::Supervisor => "garboard-launcher",
            Self::Init => "garboard-init",
            Self::Keeper => "garboard",
        }
    }

    fn argument(self, machine: &Path) -> std::path::PathBuf {
        match self {
            Self::Supervisor => machine.to_owned(),
            Self::Init => Layout::new(machine).init(),
            Self::Keeper => machine.join(super::ORDER),
        }
    }
}

/// The processes that play a part for the machine of a directory. A process that has ended but was not waited for has
/// no command line any more and is not among them.
pub(crate) fn find(machine: &Path, part: Part) -> Vec<Pid> {
    let argument = part.argument(machine);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| plays(*number, part.program(), &argument)).map(Pid::from_raw).collect()
}

fn plays(number: i32, program: &str, argument: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    let words: Vec<&str> = command.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let is_program = words.first().is_some_and(|first| Path::new(first).file_name() == Some(program.as_ref()));
    is_program && words.iter().skip(1).any(|word| Path::new(word) == argument)
}

/// Sends a signal to each; those that are gone meanwhile are fine.
pub(crate) fn send(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = kill(*process, signal);
    }
}

/// Waits until nobody plays the part any more; false when `limit` is over first.
pub(crate) fn wait_for_end(machine: &Path, part: Part, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while !find(machine, part).is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        pause_briefly();
    }
    true
}

/// Ends what is left of a machine without a keeper. QEMU goes with PID 1, whose PID namespace it is in.
pub(crate) fn end_all(machine: &Path) {
    send(&find(machine, Part::Supervisor), Signal::SIGTERM);
    if !wait_for_end(machine, Part::Supervisor, FAREWELL) {
        send(&find(machine, Part::Supervisor), Signal::SIGKILL);
    }
    send(&find(machine, Part::Init), Signal::SIGKILL);
    wait_for_end(machine, Part::Init, FAREWELL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_program_and_its_machine() {
        let own = std::env::current_exe().unwrap();
        let program = own.file_name().unwrap().to_str().unwrap();
        let number = i32::try_from(std::process::id()).unwrap();
        assert!(!plays(number, program, Path::new("/no/such/machine/shared")));
        assert!(!plays(number, "garboard-init", Path::new("/no/such/machine/shared")));
        assert_eq!(find(Path::new("/no/such/machine"), Part::Supervisor), Vec::new());
    }
}
