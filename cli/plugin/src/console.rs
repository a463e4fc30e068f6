//! A guest's serial port at this terminal until Ctrl-]. Here for a machine of a cluster; `garboard console` has its own
//! loop, which ends for signals and lets another run's console follow on the same terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use garboard_protocol::control::{ConsoleAccess, ControlRequest, Session};

use crate::line::{Incoming, Line, Outgoing};
use crate::options::ConsoleMode;
use crate::output::note;

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
    line.open(ControlRequest::Console { access: ConsoleAccess::View, session: Session::None, resume: None })?;
    line.incoming.set_patience(None);
    let _raw = RawTerminal::enter()?;
    relay(line.incoming, line.outgoing, io::stdin(), io::stdout())
}

/// What happened at one of the two ends.
enum Happened {
    /// The guest printed, over the connection of this number.
    Printed(u32, Vec<u8>),
    GuestEnded(u32, io::Result<()>),
    Typed(Vec<u8>),
    /// Input from a pipe ended.
    TypedAll,
}

/// Keyboard and screen, for one connection to a guest after another.
pub(crate) struct Terminal<S> {
    sender: SyncSender<Happened>,
    happened: Receiver<Happened>,
    screen: S,
    /// The number of the last one.
    connection: u32,
}

/// A connection that is over, or was left.
pub(crate) struct Served {
    /// Which of both.
    pub(crate) over: Over,
    /// The way to the guest. Dropping it closes the connection: before, nothing more should be taken from there.
    pub(crate) guest: Outgoing,
}

/// How a connection was served.
pub(crate) enum Over {
    /// The user pressed Ctrl-].
    Detached,
    /// It ended, or broke.
    Ended(io::Result<()>),
}

impl<S: Write> Terminal<S> {
    /// Listens to the keyboard from now on.
    pub(crate) fn new(keyboard: impl Read + Send + 'static, screen: S) -> Self {
        // One of each in flight: a slow terminal slows the guest's output down, as a serial port would.
        let (sender, happened) = sync_channel(2);
        let typed = sender.clone();
        std::thread::spawn(move || {
            let _ = forward(keyboard, &typed, Happened::Typed);
            let _ = typed.send(Happened::TypedAll);
        });
        Self { sender, happened, screen, connection: 0 }
    }

    /// Serves a connection until one side leaves.
    pub(crate) fn serve(&mut self, incoming: Incoming, mut guest: Outgoing) -> anyhow::Result<Served> {
        self.connection = self.connection.wrapping_add(1);
        let (number, sender) = (self.connection, self.sender.clone());
        std::thread::spawn(move || {
            let ended = forward(incoming, &sender, |bytes| Happened::Printed(number, bytes));
            let _ = sender.send(Happened::GuestEnded(number, ended));
        });
        // Of a connection that breaks what was printed before is shown, also where it shows first in what is typed.
        let mut sent = Ok(());
        loop {
            match self.happened.recv()? {
                Happened::Printed(from, bytes) if from == number => {
                    self.screen.write_all(&bytes)?;
                    self.screen.flush()?;
                }
                Happened::GuestEnded(from, ended) if from == number => {
                    return Ok(Served { over: Over::Ended(ended.and(sent)), guest });
                }
                // Of a connection before.
                Happened::Printed(..) | Happened::GuestEnded(..) => {}
                Happened::Typed(bytes) => {
                    let escape = bytes.iter().position(|byte| *byte == ESCAPE);
                    if sent.is_ok() {
                        let typed = &bytes[..escape.unwrap_or(bytes.len())];
                        sent = guest.write_all(typed).and_then(|()| guest.flush());
                    }
                    if escape.is_some() {
                        return Ok(Served { over: Over::Detached, guest });
                    }
                }
                // Output is shown on until the machine closes the console. Neither a websocket nor the way through kubectl can be
                // closed in one direction only.
                Happened::TypedAll => {}
            }
        }
    }

    /// Waits without a connection; what is typed is dropped. Whether the user leaves.
    pub(crate) fn leaves_within(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        loop {
            match self.happened.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Happened::Typed(bytes)) if bytes.contains(&ESCAPE) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
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

/// Serves one connection.
fn relay(
    incoming: Incoming,
    outgoing: Outgoing,
    keyboard: impl Read + Send + 'static,
    screen: impl Write,
) -> anyhow::Result<AttachmentEnd> {
    let mut terminal = Terminal::new(keyboard, screen);
    let Served { over, guest } = terminal.serve(incoming, outgoing)?;
    // Nothing more is taken from the guest, and then the way to it is closed.
    drop(terminal);
    drop(guest);
    match over {
        Over::Detached => Ok(AttachmentEnd::Detached),
        Over::Ended(ended) => {
            ended?;
            Ok(AttachmentEnd::MachineEnded)
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
}
