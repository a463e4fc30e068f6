//! The processes of a machine, found by what they were started with: for machines whose shim is dead, and for a
//! supervisor that does not answer.
//!
//! Any user may give a process any command line, so that alone is not trusted. All user IDs of the process must be the machine's
//! user or ours, which no other user can bring about, and it must execute the program that it is called after, as far as the
//! kernel shows that. It is held by a descriptor from before it is looked at, so a signal reaches no other process that has its
//! number later.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use garboard_common::Pidfd;
use garboard_protocol::paths::Layout;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::{calls, pause_briefly, program};

/// How many user IDs a process has: real, effective, saved, of the file system.
const USER_IDS: usize = 4;
/// What the kernel adds to the name of a program whose file was replaced or removed (`proc_pid_exe(5)`).
const REPLACED: &str = " (deleted)";

/// A process of ours that lives as long as its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineProcess {
    /// `garboard-launcher MACHINE`.
    Supervisor,
    /// `garboard-init MACHINE/init …`.
    Init,
    /// `garboard-shim run MACHINE`; of builds before that program, `garboard keeper MACHINE/order.json`.
    Shim,
    /// `garboard-shim delete MACHINE`.
    Deleter,
}

/// A process that plays a part, held by a descriptor so that a signal reaches no other process.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    held: Pidfd,
}

impl Process {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

/// How a process begins its command line.
struct Start {
    program: &'static str,
    arguments: Vec<OsString>,
}

/// What the kernel reports of a process.
#[derive(Clone, Debug, Default)]
struct ProcessInfo {
    /// Its command line.
    line: Vec<u8>,
    /// Its user IDs.
    users: Vec<u32>,
    /// The file name of its program; `None` where that may not be seen.
    program: Option<OsString>,
}

impl MachineProcess {
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
            Self::Deleter => vec![start(program::SHIM, &[calls::DELETE.as_ref(), machine.as_os_str()])],
        }
    }

    /// The users it may run as: ours, and the machine's, to whom the shim has given the directories that these write to.
    fn users(self, machine: &Path) -> Vec<u32> {
        let layout = Layout::new(machine);
        let given = match self {
            Self::Supervisor => Some(layout.supervisor()),
            Self::Init => Some(layout.init()),
            Self::Shim | Self::Deleter => None,
        };
        let owner = given.and_then(|directory| Some(std::fs::symlink_metadata(directory).ok()?.uid()));
        owner.into_iter().chain([nix::unistd::geteuid().as_raw()]).collect()
    }
}

/// The processes that play a part for the machine of a directory. A process that has ended but was not waited for has
/// no command line any more and is not among them.
#[must_use]
pub fn find(machine: &Path, part: MachineProcess) -> Vec<Process> {
    let (starts, users) = (part.starts(machine), part.users(machine));
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|number| playing(Pid::from_raw(number), &starts, &users)).collect()
}

/// The numbers of all processes of a machine but QEMU and its helpers, which end with PID 1.
#[must_use]
pub fn all(machine: &Path) -> Vec<Pid> {
    let parts = [MachineProcess::Shim, MachineProcess::Deleter, MachineProcess::Supervisor, MachineProcess::Init];
    parts.into_iter().flat_map(|part| find(machine, part)).map(|process| process.pid).collect()
}

/// The process of a number, if it plays the part that begins so.
fn playing(pid: Pid, starts: &[Start], users: &[u32]) -> Option<Process> {
    // Most processes are of no concern, and need no descriptor.
    let line = command_line(pid);
    starts.iter().find(|start| begins(&line, start))?;
    let held = Pidfd::open(pid).ok()?;
    let info = read_info(pid)?;
    // As long as it lives, what was read under its number was its own.
    (plays(&info, starts, users) && !held.has_ended()).then_some(Process { pid, held })
}

fn read_info(pid: Pid) -> Option<ProcessInfo> {
    let program = match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => path.file_name().map(OsStr::to_owned),
        // No process can look inside PID 1, not even one of its own user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        Err(_) => return None,
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(ProcessInfo { line: command_line(pid), users: user_ids(&status), program })
}

fn command_line(pid: Pid) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// The user IDs in `/proc/PID/status` (`proc_pid_status(5)`).
fn user_ids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Whether a process is one of those that begin so and run as one of these users.
fn plays(info: &ProcessInfo, starts: &[Start], users: &[u32]) -> bool {
    let Some(first) = info.users.first() else { return false };
    // A set-user-ID program that another user starts, with any command line, keeps that user's ID among them.
    let is_one = info.users.len() == USER_IDS && info.users.iter().all(|user| user == first);
    let runs = |start: &Start| info.program.as_ref().is_none_or(|program| is_named(program, start.program));
    is_one && users.contains(first) && starts.iter().any(|start| begins(&info.line, start) && runs(start))
}

fn is_named(program: &OsStr, name: &str) -> bool {
    let bytes = program.as_bytes();
    bytes.strip_suffix(REPLACED.as_bytes()).unwrap_or(bytes) == name.as_bytes()
}

/// Whether a command line (`proc_pid_cmdline(5)`) begins so.
fn begins(line: &[u8], start: &Start) -> bool {
    let mut arguments = line.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let is_program = arguments.next().is_some_and(|first| Path::new(first).file_name() == Some(start.program.as_ref()));
    is_program && start.arguments.iter().all(|argument| arguments.next() == Some(argument))
}

/// Sends a signal to each; those that are gone meanwhile are fine.
pub fn send(processes: &[Process], signal: Signal) {
    for process in processes {
        let _ = process.held.send(signal);
    }
}

/// Waits until no process plays the part any more; false when `limit` is over first.
#[must_use]
pub fn wait_for_end(machine: &Path, part: MachineProcess, limit: Duration) -> bool {
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
    use std::process::{Child, Command, Stdio};

    use super::*;

    const MACHINE: &str = "/run/garboard/default/vm";

    fn line(arguments: &[&str]) -> Vec<u8> {
        arguments.join("\0").into_bytes()
    }

    #[test]
    fn a_process_is_known_by_its_program_and_its_machine() {
        let machine = Path::new(MACHINE);
        let table: [(MachineProcess, &[&str], bool); 9] = [
            (MachineProcess::Supervisor, &["/usr/bin/garboard-launcher", "/run/garboard/default/vm"], true),
            (MachineProcess::Supervisor, &["/usr/bin/garboard-launcher", "/run/garboard/default/vm2"], false),
            (MachineProcess::Init, &["garboard-init", "/run/garboard/default/vm/init", "--own-root"], true),
            (MachineProcess::Shim, &["/usr/bin/garboard-shim", "run", "/run/garboard/default/vm"], true),
            (MachineProcess::Shim, &["/usr/bin/garboard-shim", "delete", "/run/garboard/default/vm"], false),
            (
                MachineProcess::Deleter,
                &["/usr/bin/garboard-shim", "delete", "/run/garboard/default/vm", "--forced"],
                true,
            ),
            (MachineProcess::Shim, &["/usr/bin/garboard", "keeper", "/run/garboard/default/vm/order.json"], true),
            (MachineProcess::Shim, &["/usr/bin/garboard", "logs", "/run/garboard/default/vm/order.json"], false),
            (MachineProcess::Shim, &["vi", "run", "/run/garboard/default/vm"], false),
        ];
        for (part, arguments, wanted) in table {
            let found = part.starts(machine).iter().any(|start| begins(&line(arguments), start));
            assert_eq!(found, wanted, "{part:?}: {arguments:?}");
        }
    }

    #[test]
    fn a_command_line_of_another_user_or_program_is_not_trusted() {
        let starts = MachineProcess::Init.starts(Path::new(MACHINE));
        let users = [0, 2_000_000_007];
        let with_ids = |ids: &[u32], program: Option<&str>| ProcessInfo {
            line: line(&["garboard-init", "/run/garboard/default/vm/init", "--own-root"]),
            users: ids.to_vec(),
            program: program.map(OsString::from),
        };
        let table: [(&str, ProcessInfo, bool); 8] = [
            ("ours", with_ids(&[0; 4], Some("garboard-init")), true),
            ("of the machine's user", with_ids(&[2_000_000_007; 4], Some("garboard-init")), true),
            ("of an earlier version", with_ids(&[0; 4], Some("garboard-init (deleted)")), true),
            ("a program that is not to be seen", with_ids(&[0; 4], None), true),
            ("of another user", with_ids(&[1000; 4], Some("garboard-init")), false),
            ("of another user, set-user-ID", with_ids(&[1000, 0, 0, 0], None), false),
            ("another program", with_ids(&[0; 4], Some("sudo")), false),
            ("nothing is known of it", with_ids(&[], None), false),
        ];
        for (name, info, wanted) in table {
            assert_eq!(plays(&info, &starts, &users), wanted, "{name}");
        }
    }

    #[test]
    fn user_ids_are_read_from_the_status() {
        assert_eq!(user_ids("Name:\tUid: 7\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n"), [1000, 0, 0, 0]);
        assert!(user_ids("Name:\tx\n").is_empty());
    }

    /// A shell under another name, which waits for its standard input: its script is called as the first argument.
    fn playing_process(room: &Path, program: &str, arguments: [&OsStr; 2], called: &str) -> Child {
        let shell = room.join(program);
        std::fs::copy("/bin/sh", &shell).unwrap();
        std::fs::write(room.join(arguments[0]), "read line").unwrap();
        let mut command = Command::new(shell);
        command.arg0(called).args(arguments).current_dir(room).stdin(Stdio::piped());
        loop {
            match command.spawn() {
                // A child of another test holds the new file open until it executes something.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => pause_briefly(),
                other => return other.unwrap(),
            }
        }
    }

    fn found(machine: &Path, part: MachineProcess) -> Vec<Pid> {
        find(machine, part).iter().map(Process::pid).collect()
    }

    /// What an earlier build has started is found, too.
    #[test]
    fn the_shim_of_this_build_and_the_keeper_of_earlier_ones_are_found() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let request = machine.join("order.json");
        for (program, script, argument) in [("garboard-shim", "run", &machine), ("garboard", "keeper", &request)] {
            let mut child = playing_process(room.path(), program, [script.as_ref(), argument.as_ref()], program);
            let number = Pid::from_raw(i32::try_from(child.id()).unwrap());
            let deadline = Instant::now() + Duration::from_secs(60);
            while found(&machine, MachineProcess::Shim) != [number] {
                assert!(Instant::now() < deadline, "{program} is not found");
                pause_briefly();
            }
            drop(child.stdin.take());
            child.wait().unwrap();
            assert!(wait_for_end(&machine, MachineProcess::Shim, Duration::from_secs(60)));
        }
    }

    #[test]
    fn another_program_that_is_called_as_ours_is_not_found() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let arguments = ["run".as_ref(), machine.as_os_str()];
        let mut child = playing_process(room.path(), "stranger", arguments, program::SHIM);
        let number = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !MachineProcess::Shim.starts(&machine).iter().any(|start| begins(&command_line(number), start)) {
            assert!(Instant::now() < deadline, "the stranger has no command line");
            pause_briefly();
        }
        assert!(found(&machine, MachineProcess::Shim).is_empty());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
