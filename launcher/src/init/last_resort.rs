//! Power-down without a supervisor: PID 1's own monitor, four commands, blocking and bounded.
//!
//! The connection was made by the supervisor before QEMU ran, so PID 1 needs no path to it. Until its client has sent
//! `qmp_capabilities` QEMU sends nothing on it but its greeting.
//!
//! Follows QEMU's `docs/interop/qmp-spec.rst`: greeting, `qmp_capabilities`, then the commands. Replies are
//! read only to keep the order; their content does not change what PID 1 does next (the grace period runs).
//!
//! The commands have the names of the generated types, and their arguments are text: nothing is encoded, and nothing of an answer
//! decoded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use garboard_qmp::qmp::{self, QmpCommand};

const PATIENCE: Duration = Duration::from_secs(2);
const MAX_LINES: usize = 64;
/// Longest line that is read, bytes: QEMU may not be what it was.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// What is sent, and whether it may be refused.
const COMMANDS: [(Command, Refusal); 4] = [
    (Command::of::<qmp::qmp_capabilities>("{}"), Refusal::IsAnError),
    // A supervisor may have been lost in a soft reboot, in which QEMU stays when the guest is off.
    (Command::of::<qmp::set_action>(r#"{"shutdown":"poweroff"}"#), Refusal::IsIgnored),
    // It is refused for a guest that panicked or already shut down: the power-down is tried all the same.
    (Command::of::<qmp::cont>("{}"), Refusal::IsIgnored),
    (Command::of::<qmp::system_powerdown>("{}"), Refusal::IsAnError),
];

/// A command that needs no encoder.
struct Command {
    /// As QEMU's schema has it.
    name: &'static str,
    /// JSON.
    arguments: &'static str,
}

impl Command {
    const fn of<C: QmpCommand>(arguments: &'static str) -> Self {
        Self { name: C::NAME, arguments }
    }

    fn line(&self) -> String {
        let Self { name, arguments } = self;
        format!("{{\"execute\":\"{name}\",\"arguments\":{arguments}}}\n")
    }
}

/// Whether a command may be refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    IsAnError,
    IsIgnored,
}

/// Asks the guest to power down by ACPI (or wakes it first if its vCPUs are stopped).
///
/// # Errors
/// When QEMU's monitor is closed or does not answer in time.
pub(super) fn power_down(stream: &UnixStream) -> io::Result<()> {
    power_down_with(stream, PATIENCE)
}

/// The same with so much patience for each answer.
fn power_down_with(stream: &UnixStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut writer = stream;
    let mut reader = BufReader::new(stream);
    wait_for(&mut reader, "\"QMP\"")?;
    for (command, refusal) in COMMANDS {
        writer.write_all(command.line().as_bytes())?;
        match wait_for(&mut reader, "\"return\"") {
            Err(error) if refusal == Refusal::IsIgnored && error.kind() == io::ErrorKind::InvalidData => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

fn wait_for(reader: &mut impl BufRead, mark: &str) -> io::Result<()> {
    for _ in 0..MAX_LINES {
        let mut line = String::new();
        if reader.by_ref().take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU closed its monitor"));
        }
        if line.contains(mark) {
            return Ok(());
        }
        if line.contains("\"error\"") {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU refused the command"));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU did not answer the command"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const DONE: &str = "{\"return\":{}}\n";

    /// As it is asked where it answers, however busy the machine is.
    fn power_down(stream: &UnixStream) -> io::Result<()> {
        power_down_with(stream, Duration::from_secs(60))
    }

    fn monitor(replies: &'static [&'static str]) -> (tempfile::TempDir, std::thread::JoinHandle<Vec<String>>) {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("m")).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            (&stream).write_all(b"{\"QMP\":{}}\n").unwrap();
            let mut received = Vec::new();
            for (line, reply) in BufReader::new(&stream).lines().zip(replies) {
                received.push(line.unwrap());
                (&stream).write_all(reply.as_bytes()).unwrap();
            }
            received
        });
        (directory, thread)
    }

    #[test]
    fn the_guest_is_woken_and_asked() {
        let (directory, thread) = monitor(&[DONE, DONE, DONE, "{\"event\":\"X\"}\n{\"return\":{}}\n"]);
        power_down(&UnixStream::connect(directory.path().join("m")).unwrap()).unwrap();
        let received = thread.join().unwrap();
        assert!(received[1].contains(r#""shutdown":"poweroff""#), "QEMU would stay: {received:?}");
        assert_eq!(received.last().unwrap(), r#"{"execute":"system_powerdown","arguments":{}}"#);
    }

    #[test]
    fn a_panicked_guest_that_refuses_cont_is_still_asked() {
        let (directory, thread) = monitor(&[DONE, "{\"error\":{}}\n", "{\"error\":{}}\n", DONE]);
        power_down(&UnixStream::connect(directory.path().join("m")).unwrap()).unwrap();
        assert_eq!(thread.join().unwrap().len(), 4);
    }

    #[test]
    fn a_line_without_an_end_is_not_read_for_ever() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            let chunk = vec![b'x'; 1 << 16];
            while (&theirs).write_all(&chunk).is_ok() {}
        });
        assert!(power_down(&ours).is_err());
        drop(ours);
        writer.join().unwrap();
    }

    #[test]
    fn a_monitor_that_hangs_up_is_an_error() {
        let (directory, _thread) = monitor(&[]);
        assert!(power_down(&UnixStream::connect(directory.path().join("m")).unwrap()).is_err());
    }
}
