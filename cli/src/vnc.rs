//! `garboard vnc`: the guest's screen. QEMU listens nowhere; each client is handed to it by the supervisor.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use anyhow::Context;
use garboard_protocol::control::{ControlReply, ControlRequest};
use garboard_protocol::paths;

use crate::args::VncArgs;
use crate::client;
use crate::exit::{self, REFUSED, complaint};
use crate::places::{MachineId, Places};

/// `garboard vnc MACHINE`.
pub(crate) fn run(args: &VncArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    // Asking first: a machine without a screen is refused before anybody starts a viewer.
    drop(open(&places, &args.machine)?);
    let Some(address) = args.listen else {
        let socket = places.shared(&args.machine).join(paths::VNC_SOCKET);
        println!("unix socket: {}", socket.display());
        println!("for a viewer that wants TCP: garboard vnc {} --listen 127.0.0.1:5900", args.machine);
        return Ok(exit::OK);
    };
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}; choose another port"))?;
    eprintln!("the screen of {} is at {}; Ctrl-C ends this proxy", args.machine, listener.local_addr()?);
    for viewer in listener.incoming() {
        let screen = open(&places, &args.machine)?;
        proxy(viewer?, screen)?;
    }
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

/// Copies both ways, each in a thread of its own, until one side hangs up.
fn proxy(viewer: TcpStream, screen: UnixStream) -> anyhow::Result<()> {
    let (mut viewer_out, mut screen_in) = (viewer.try_clone()?, screen.try_clone()?);
    let (mut viewer_in, mut screen_out) = (viewer, screen);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut viewer_in, &mut screen_out);
        let _ = screen_out.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut screen_in, &mut viewer_out);
        let _ = viewer_out.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}
