//! A guest's serial port at this terminal until Ctrl-]. Here for a machine of a cluster; `garboard console` has its own
//! loop, which ends for signals and lets another run's console follow on the same terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use garboard_protocol::control::{ConsoleAccess, ControlRequest, Session};

use crate::exit;
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::line::{Incoming, Line, Outgoing};
use crate::options::ConsoleMode;
use crate::output::note;
use crate::stream::{self, Stream, Streams};

/// Ctrl-], as telnet and virtctl have it.
pub const ESCAPE: u8 = 0x1d;
/// Bytes that are taken at once.
const CHUNK_BYTES: usize = 4096;

/// What was asked for on the command line.
#[must_use]
pub fn access(mode: ConsoleMode) -> ConsoleAccess {
    match (mode.view, mode.take_over) {
        (true, _) => ConsoleAccess::View,
        (_, true) => ConsoleAccess::TakeOver,
        _ => ConsoleAccess::Write,
    }
}

/// How an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentEnd {
    /// The user pressed Ctrl-].
    Detached,
    /// The machine ended, or the viewer was too slow.
    MachineEnded,
    /// One of the awaited signals came.
    Signalled,
}

/// Prints how it ended.
pub fn report_end(left: AttachmentEnd, machine: &str) {
    match left {
        AttachmentEnd::Detached | AttachmentEnd::Signalled => note!("\r\ndetached; {machine} runs on"),
        AttachmentEnd::MachineEnded => note!("\r\nthe console of {machine} is closed"),
    }
}

/// The terminal in raw mode for as long as this lives.
pub struct RawTerminal {
    active: bool,
}

impl RawTerminal {
    /// Enters raw mode, if standard input is a terminal.
    pub fn enter() -> anyhow::Result<Self> {
        let active = io::stdin().is_terminal();
        if active {
            crossterm::terminal::enable_raw_mode()?;
            // The call switches on what the guest's escape sequences need.
            #[cfg(windows)]
            crossterm::ansi_support::supports_ansi();
        }
        Ok(Self { active })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if self.active {
            let _ = crossterm::terminal::disable_raw_mode();
        }
    }
}

/// Shows a machine's console at the terminal until one side leaves.
pub(crate) fn view(mut line: Line) -> anyhow::Result<AttachmentEnd> {
    line.open(ControlRequest::Console { access: ConsoleAccess::View, session: Session::None })?;
    line.incoming.set_patience(None);
    let _raw = RawTerminal::enter()?;
    relay(line.incoming, line.outgoing, io::stdin(), io::stdout())
}

/// Attaches the terminal to a machine's console until one side leaves, as the session of it, with these parameters.
pub(crate) fn session(kubectl: &Kubectl, name: &str, parameters: &str) -> anyhow::Result<u8> {
    let running = find::running(kubectl, name)?;
    let machine = running.machine();
    let streams = Streams::start(kubectl, running.subresource("console"))?;
    let Stream { incoming, outgoing, ending } = streams.open(parameters).map_err(|failure| failed(advised(failure)))?;
    let outcome = {
        let _raw = RawTerminal::enter()?;
        relay(incoming, outgoing, io::stdin(), io::stdout())
    };
    // Also where it shows first in what was typed.
    if !matches!(outcome, Ok(AttachmentEnd::Detached))
        && let Err(error) = stream::judge(&ending, &machine)
    {
        // The guest has left the cursor somewhere in a line.
        note!("\r");
        return Err(error);
    }
    report_end(outcome?, &machine);
    Ok(exit::OK)
}

/// What to do about a session that is there.
fn advised(failure: Failure) -> Failure {
    if let Failure::Refused(text) = &failure
        && text.contains("another client")
        && !text.contains("--take-over")
    {
        return Failure::Refused(format!("{text}; watch with --view or replace it with --take-over"));
    }
    failure
}

/// What happened at one of the two ends.
enum Happened {
    Printed(Vec<u8>),
    GuestEnded(io::Result<()>),
    Typed(Vec<u8>),
    /// Input from a pipe ended.
    TypedAll,
}

fn relay(
    incoming: Incoming,
    outgoing: Outgoing,
    keyboard: impl Read + Send + 'static,
    screen: impl Write,
) -> anyhow::Result<AttachmentEnd> {
    // One of each in flight: a slow terminal slows the guest's output down, as a serial port would.
    let (sender, happened) = sync_channel(2);
    let of_guest = sender.clone();
    std::thread::spawn(move || {
        let ended = forward(incoming, &of_guest, Happened::Printed);
        let _ = of_guest.send(Happened::GuestEnded(ended));
    });
    std::thread::spawn(move || {
        let _ = forward(keyboard, &sender, Happened::Typed);
        let _ = sender.send(Happened::TypedAll);
    });
    serve(outgoing, happened, screen)
}

/// Until the reader has no more, or the receiver is gone.
fn forward(
    mut reader: impl Read,
    happened: &SyncSender<Happened>,
    as_what: impl Fn(Vec<u8>) -> Happened,
) -> io::Result<()> {
    let mut buffer = [0; CHUNK_BYTES];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if happened.send(as_what(buffer[..count].to_vec())).is_err() {
            return Ok(());
        }
    }
}

/// At the end nothing more is taken from the guest, and then the way to it is closed: of the parameters the first is dropped last.
fn serve(mut guest: Outgoing, happened: Receiver<Happened>, mut screen: impl Write) -> anyhow::Result<AttachmentEnd> {
    loop {
        match happened.recv()? {
            Happened::Printed(bytes) => {
                screen.write_all(&bytes)?;
                screen.flush()?;
            }
            Happened::GuestEnded(ended) => {
                ended?;
                return Ok(AttachmentEnd::MachineEnded);
            }
            Happened::Typed(bytes) => {
                let escape = bytes.iter().position(|byte| *byte == ESCAPE);
                guest.write_all(&bytes[..escape.unwrap_or(bytes.len())])?;
                guest.flush()?;
                if escape.is_some() {
                    return Ok(AttachmentEnd::Detached);
                }
            }
            // Output is shown on until the machine closes the console. Neither a websocket nor the way through kubectl can be
            // closed in one direction only.
            Happened::TypedAll => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keyboard that stays silent after these bytes, so that nothing ends by it.
    struct Keyboard(io::Cursor<Vec<u8>>, std::io::PipeReader);

    impl Read for Keyboard {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => self.1.read(buffer),
                count => Ok(count),
            }
        }
    }

    fn ends(guest: impl Read + Send + 'static) -> (Incoming, Outgoing, std::io::PipeReader) {
        let (typed, outgoing) = std::io::pipe().unwrap();
        (Incoming::of(guest), Box::new(outgoing), typed)
    }

    #[test]
    fn the_escape_detaches_and_what_was_typed_before_it_arrives() {
        let (guest, _guest_runs) = std::io::pipe().unwrap();
        let (silent, _held) = std::io::pipe().unwrap();
        let (incoming, outgoing, mut typed) = ends(guest);
        let keyboard = Keyboard(io::Cursor::new(b"ls\r\x1dnever".to_vec()), silent);
        assert_eq!(relay(incoming, outgoing, keyboard, io::sink()).unwrap(), AttachmentEnd::Detached);
        let mut arrived = String::new();
        typed.read_to_string(&mut arrived).unwrap();
        assert_eq!(arrived, "ls\r");
    }

    #[test]
    fn input_that_ends_leaves_the_console_open_until_the_machine_closes_it() {
        let (mut guest, guest_writes) = (io::Cursor::new(b"bye".to_vec()), std::io::pipe().unwrap());
        let mut out = Vec::new();
        // The guest answers only when it has been asked to.
        let (incoming, outgoing, mut typed) = ends(guest_writes.0);
        let mut writer = guest_writes.1;
        let machine = std::thread::spawn(move || {
            let mut order = [0; 8];
            typed.read_exact(&mut order).unwrap();
            io::copy(&mut guest, &mut writer).unwrap();
            order
        });
        let left = relay(incoming, outgoing, io::Cursor::new(b"poweroff".to_vec()), &mut out).unwrap();
        assert_eq!((left, out.as_slice()), (AttachmentEnd::MachineEnded, &b"bye"[..]));
        assert_eq!(&machine.join().unwrap(), b"poweroff");
    }

    #[test]
    fn a_refusal_of_a_session_says_how_to_get_the_console() {
        let advised = |text: &str| advised(Failure::Refused(text.into())).to_string();
        let hint = "watch with --view or replace it with --take-over";
        assert_eq!(
            advised("n/a: another client has opened this console"),
            format!("n/a: another client has opened this console; {hint}")
        );
        let ours = format!("n/a: another client writes to this console; {hint}");
        assert_eq!(advised(&ours), ours);
        assert_eq!(advised("n/a: VMI is not running"), "n/a: VMI is not running");
    }
}
