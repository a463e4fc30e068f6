//! `garboard console`: the terminal becomes the guest's serial port until Ctrl-].

use std::io::{IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use garboard_protocol::control::{ConsoleAccess, ControlRequest};
use garboard_shim_client::places::{MachineId, Places};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::args::{ConsoleArgs, ConsoleMode};
use crate::client::Line;
use crate::exit;
use crate::output::note;

/// Ctrl-], as telnet and virtctl have it.
const ESCAPE: u8 = 0x1d;

/// `garboard console MACHINE`.
pub(crate) fn run(args: &ConsoleArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    let left = attend(&places, &machine, access(args.mode), &SigSet::empty())?;
    tell(left, &machine.to_string());
    Ok(exit::OK)
}

/// What was asked for on the command line.
pub(crate) fn access(mode: ConsoleMode) -> ConsoleAccess {
    match (mode.view, mode.take_over) {
        (true, _) => ConsoleAccess::View,
        (_, true) => ConsoleAccess::TakeOver,
        _ => ConsoleAccess::Write,
    }
}

/// Says how it ended.
pub(crate) fn tell(left: Left, machine: &str) {
    match left {
        Left::Detached | Left::Signalled => note!("\r\ndetached; {machine} runs on"),
        Left::MachineEnded => note!("\r\nthe console of {machine} is closed"),
    }
}

/// How an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The user pressed Ctrl-] or standard input ended.
    Detached,
    /// The machine ended, or the viewer was too slow.
    MachineEnded,
    /// One of the awaited signals came.
    Signalled,
}

/// Attaches the terminal to a machine. `signals` are blocked by the caller and end the attachment.
pub(crate) fn attend(places: &Places, id: &MachineId, access: ConsoleAccess, signals: &SigSet) -> anyhow::Result<Left> {
    attend_on(&Line::to(places, id)?, access, signals)
}

/// The same over a connection that is there.
pub(crate) fn attend_on(line: &Line, access: ConsoleAccess, signals: &SigSet) -> anyhow::Result<Left> {
    line.open(ControlRequest::Console { access })?;
    line.stream.set_read_timeout(None)?;
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let _raw = RawTerminal::enter()?;
    relay(line, &signals)
}

/// The terminal in raw mode for as long as this lives.
struct RawTerminal {
    active: bool,
}

impl RawTerminal {
    fn enter() -> anyhow::Result<Self> {
        let active = std::io::stdin().is_terminal();
        if active {
            crossterm::terminal::enable_raw_mode()?;
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

fn relay(line: &Line, signals: &SignalFd) -> anyhow::Result<Left> {
    let stream = &line.stream;
    let stdin = std::io::stdin();
    let mut stdout = std::io::stdout();
    let mut buffer = [0; 4096];
    let mut stdin_open = true;
    loop {
        let mut watched =
            vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if stdin_open {
            watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = |index: usize| watched.get(index).and_then(PollFd::any).unwrap_or(false);
        let (guest_ready, signalled, typed_ready) = (ready(0), ready(1), ready(2));
        if signalled {
            return Ok(Left::Signalled);
        }
        if guest_ready {
            match (&mut &*stream).read(&mut buffer)? {
                0 => return Ok(Left::MachineEnded),
                count => {
                    stdout.write_all(&buffer[..count])?;
                    stdout.flush()?;
                }
            }
        }
        if typed_ready {
            let count = nix::unistd::read(stdin.as_fd(), &mut buffer)?;
            let typed = &buffer[..count];
            if let Some(at) = typed.iter().position(|byte| *byte == ESCAPE) {
                (&mut &*stream).write_all(&typed[..at])?;
                return Ok(Left::Detached);
            }
            if count == 0 {
                // Input from a pipe ended: keep showing output until the machine closes the console.
                stdin_open = false;
                if line.may_half_close {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            } else {
                (&mut &*stream).write_all(typed)?;
            }
        }
    }
}
