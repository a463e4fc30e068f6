//! `kubectl garboard vnc`: the guest's screen at a port of this computer, and a viewer that shows it.

use garboard_protocol::control::{ControlRequest, Session};

use crate::args::VncArgs;
use crate::exit;
use crate::find::{self, Place};
use crate::kubectl::Kubectl;
use crate::line::Line;
use crate::link::{Exec, Link};
use crate::output::{note, outln};
use crate::screen::{self, Screen};

/// A way that is closed when its viewer has gone.
struct Way(Option<Exec>);

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(exec) = self.0.take() {
            // The viewer has gone: how the way ends changes nothing.
            let _ = exec.close(Ok(()));
        }
    }
}

/// `kubectl garboard vnc MACHINE`.
pub(crate) fn run(kubectl: &Kubectl, args: &VncArgs) -> anyhow::Result<u8> {
    let place = find::place(kubectl, &args.machine)?;
    // Asking first: a machine without a screen is refused before a viewer is started.
    drop(open(kubectl, &place)?);
    let listener = screen::listen(args.listen)?;
    let address = listener.local_addr()?;
    let viewer = if args.proxy_only { None } else { screen::start_viewer(address) };
    match &viewer {
        Some(_) => note!("the screen of {} is at {address} until its viewer is closed", place.machine),
        None => {
            outln!("{address}")?;
            note!("the screen of {} is there for any VNC viewer; Ctrl-C ends this proxy", place.machine);
        }
    }
    screen::serve(&listener, viewer, || open(kubectl, &place))?;
    Ok(exit::OK)
}

fn open(kubectl: &Kubectl, place: &Place) -> anyhow::Result<Screen<Way>> {
    let Link { mut line, exec } = Link::open(kubectl, place)?;
    if let Err(error) = line.open(ControlRequest::Vnc { session: Session::None }) {
        drop(line);
        return exec.close(Err(error));
    }
    let Line { mut incoming, outgoing, .. } = line;
    incoming.set_patience(None);
    Ok(Screen { incoming: Box::new(incoming), outgoing, way: Way(Some(exec)) })
}
