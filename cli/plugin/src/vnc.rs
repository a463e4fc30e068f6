//! `kubectl garboard vnc`: the guest's screen at a port of this computer, and a viewer that shows it.

use std::io::{self, Read};
use std::sync::Arc;

use crate::args::VncArgs;
use crate::exit;
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::line::Incoming;
use crate::output::{harmless, note, outln};
use crate::screen::{self, Screen};
use crate::stream::{self, Ending, PRESERVE_SESSION, Stream, Streams};

/// `kubectl garboard vnc MACHINE`.
pub(crate) fn run(kubectl: &Kubectl, args: &VncArgs) -> anyhow::Result<u8> {
    let running = find::running(kubectl, &args.machine)?;
    let machine = running.machine();
    let streams = Streams::start(kubectl, running.subresource("vnc"))?;
    ask_first(&streams, &machine)?;
    let listener = screen::listen(args.listen)?;
    let address = listener.local_addr()?;
    let viewer = if args.proxy_only { None } else { screen::start_viewer(address) };
    match &viewer {
        Some(_) => note!("the screen of {machine} is at {address} until its viewer is closed"),
        None => {
            outln!("{address}")?;
            note!("the screen of {machine} is there for any VNC viewer; Ctrl-C ends this proxy");
        }
    }
    screen::serve(listener, viewer, || open(&streams, &machine))?;
    Ok(exit::OK)
}

/// A machine without a screen is refused before a viewer is started, and nobody's session ends for the question.
fn ask_first(streams: &Streams, machine: &str) -> anyhow::Result<()> {
    match streams.open(PRESERVE_SESSION) {
        Ok(_) => Ok(()),
        Err(Failure::Refused(text)) if text.contains(ANOTHER_SESSION) => {
            note!("garboard: another client shows the screen of {machine}; a viewer here ends its session");
            Ok(())
        }
        Err(failure) => Err(failed(failure)),
    }
}

/// KubeVirt's message where a session is to be preserved.
const ANOTHER_SESSION: &str = "Active VNC connection";

fn open(streams: &Streams, machine: &str) -> anyhow::Result<Screen<()>> {
    let Stream { incoming, outgoing, ending } = streams.open("").map_err(failed)?;
    let incoming = Shown { incoming, ending, machine: machine.to_owned() };
    Ok(Screen { incoming: Box::new(incoming), outgoing, way: () })
}

/// What the guest sends to a viewer. Why nothing more comes is printed here: RFB has no message for it.
struct Shown {
    incoming: Incoming,
    ending: Arc<Ending>,
    machine: String,
}

impl Read for Shown {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.incoming.read(buffer)?;
        if read == 0
            && !buffer.is_empty()
            && let Err(error) = stream::judge(&self.ending, &self.machine)
        {
            note!("garboard: {}", harmless(format!("{error:#}").as_bytes()));
        }
        Ok(read)
    }
}
