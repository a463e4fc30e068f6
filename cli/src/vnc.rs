//! `garboard vnc`: the guest's screen. QEMU listens nowhere; each client is handed to it by the supervisor.

use std::os::unix::net::UnixStream;

use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::paths;
use garboard_shim_client::places::{MachineId, Places};

use crate::args::VncArgs;
use crate::client;
use crate::exit::{self, REFUSED, complaint};
use crate::output::{note, outln};
use crate::screen::{self, Screen};

/// `garboard vnc MACHINE`.
pub(crate) fn run(args: &VncArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    // Asking first: a machine without a screen is refused before anybody starts a viewer.
    drop(open(&places, &machine)?);
    let Some(address) = args.listen else {
        let socket = places.layout(&machine).supervisor().join(paths::VNC_SOCKET);
        outln!("unix socket: {}", socket.display())?;
        outln!("for a viewer that wants TCP: garboard vnc {} --listen 127.0.0.1:5900", machine)?;
        return Ok(exit::OK);
    };
    let listener = screen::listen(address)?;
    note!("the screen of {} is at {}; Ctrl-C ends this proxy", machine, listener.local_addr()?);
    screen::serve(&listener, None, || Ok(Screen { stream: open(&places, &machine)?, way: () }))?;
    Ok(exit::OK)
}

fn open(places: &Places, id: &MachineId) -> anyhow::Result<UnixStream> {
    let stream = client::connect(places, id)?;
    match client::ask(&stream, &ControlRequest::Vnc)? {
        ControlReply::Streaming => {
            stream.set_read_timeout(None)?;
            Ok(stream)
        }
        ControlReply::Denied { reason } => Err(complaint(REFUSED, format!("{id}: {reason}"))),
        other @ (ControlReply::Status(_) | ControlReply::Queued | ControlReply::AlreadySo | ControlReply::Healthy) => {
            anyhow::bail!("unexpected answer {other:?}")
        }
    }
}
