//! `garboard console`: the terminal becomes the guest's serial port until Ctrl-].

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

pub(crate) use garboard_kubectl::console::AttachmentEnd;
use garboard_kubectl::console::{ESCAPE, RawTerminal, access, report_end};
use garboard_protocol::control::{ConsoleAccess, ControlRequest, Session};
use garboard_shim_client::places::{MachineId, Places};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::args::ConsoleArgs;
use crate::client;
use crate::exit;

/// `garboard console MACHINE`.
pub(crate) fn run(args: &ConsoleArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    let left = attend(&places, &machine, access(args.mode), &SigSet::empty())?;
    report_end(left, &machine.to_string());
    Ok(exit::OK)
}

/// Attaches the terminal to a machine. `signals` are blocked by the caller and end the attachment.
pub(crate) fn attend(
    places: &Places,
    id: &MachineId,
    access: ConsoleAccess,
    signals: &SigSet,
) -> anyhow::Result<AttachmentEnd> {
    let request = ControlRequest::Console { access, session: Session::None, resume: None };
    let stream = client::stream(places, id, &request)?;
    let signals = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let _raw = RawTerminal::enter()?;
    relay(&stream, &signals)
}

fn relay(mut stream: &UnixStream, signals: &SignalFd) -> anyhow::Result<AttachmentEnd> {
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
            return Ok(AttachmentEnd::Signalled);
        }
        if guest_ready {
            match stream.read(&mut buffer)? {
                0 => return Ok(AttachmentEnd::MachineEnded),
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
                stream.write_all(&typed[..at])?;
                return Ok(AttachmentEnd::Detached);
            }
            if count == 0 {
                // Input from a pipe ended: keep showing output until the machine closes the console.
                stdin_open = false;
                let _ = stream.shutdown(Shutdown::Write);
            } else {
                stream.write_all(typed)?;
            }
        }
    }
}
