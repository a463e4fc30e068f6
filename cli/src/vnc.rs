//! `garboard vnc`: the guest's screen. QEMU listens nowhere; each client is handed to it by the supervisor.

use garboard_protocol::control::{ControlRequest, Session};
use garboard_protocol::paths;
use garboard_shim_client::places::{MachineId, Places};

use crate::args::VncArgs;
use crate::client;
use crate::exit;
use crate::output::{note, outln};
use crate::screen::{self, Screen};

/// `garboard vnc MACHINE`.
pub(crate) fn run(args: &VncArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    // Asking first: a machine without a screen is refused before a viewer is started.
    drop(open(&places, &machine)?);
    let Some(address) = args.listen else {
        let socket = places.layout(&machine).supervisor().join(paths::VNC_SOCKET);
        outln!("unix socket: {}", socket.display())?;
        outln!("for a viewer that needs TCP: garboard vnc {} --listen 127.0.0.1:5900", machine)?;
        return Ok(exit::OK);
    };
    let listener = screen::listen(address)?;
    note!("the screen of {} is at {}; Ctrl-C ends this proxy", machine, listener.local_addr()?);
    screen::serve(listener, None, || open(&places, &machine))?;
    Ok(exit::OK)
}

fn open(places: &Places, id: &MachineId) -> anyhow::Result<Screen<()>> {
    let stream = client::stream(places, id, &ControlRequest::Vnc { session: Session::None })?;
    let incoming = Box::new(stream.try_clone()?);
    Ok(Screen { incoming, outgoing: Box::new(client::WritingEnd(stream)), way: () })
}
