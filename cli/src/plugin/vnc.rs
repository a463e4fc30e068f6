//! `kubectl garboard vnc`: the guest's screen at a port of this computer, and a viewer that shows it.

use garboard_protocol::control::ControlRequest;

use super::args::VncArgs;
use super::find::{self, Place};
use super::kubectl::Kubectl;
use super::link::Link;
use crate::exit;
use crate::output::{note, outln};
use crate::screen::{self, Screen};

/// A way that is closed when its viewer has gone.
struct Way(Option<Link>);

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            // The viewer has gone: how the way ends is of no interest to anybody.
            let _ = link.close(Ok(()));
        }
    }
}

/// `kubectl garboard vnc MACHINE`.
pub(super) fn run(kubectl: &Kubectl, args: &VncArgs) -> anyhow::Result<u8> {
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
    let link = Link::open(kubectl, place)?;
    if let Err(error) = link.line.open(ControlRequest::Vnc) {
        return link.close(Err(error));
    }
    link.line.stream.set_read_timeout(None)?;
    let stream = link.line.stream.try_clone()?;
    Ok(Screen { stream, way: Way(Some(link)) })
}
