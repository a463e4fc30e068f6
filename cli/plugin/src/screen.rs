//! A guest's screen for viewers that need TCP: a listener, a connection to the supervisor for each viewer, and a viewer to
//! start if this computer has one.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::Context;

use crate::exit::ExitError;
use crate::line::Outgoing;
use crate::output::note;
use crate::peer;

/// How often it is looked whether the viewer that was started is still there.
const LOOK: Duration = Duration::from_millis(250);

/// A screen that was opened for one viewer.
pub struct Screen<K> {
    /// RFB, from the guest.
    pub incoming: Box<dyn Read + Send>,
    /// RFB, to it.
    pub outgoing: Outgoing,
    /// What has to live as long as it.
    pub way: K,
}

/// Listens where viewers are to connect.
pub fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("listen on {address}; choose another port"))
}

/// Serves the viewer that was started, alone and until it is closed; without one, all that come, for ever. A viewer that fails fails alone,
/// unless the machine itself is of no use any more.
///
/// RFB begins with the server, so that a screen is opened, and another session with it ended, as soon as a client connects.
pub fn serve<K: Send + 'static>(
    listener: TcpListener,
    mut viewer: Option<Child>,
    open: impl Fn() -> anyhow::Result<Screen<K>>,
) -> anyhow::Result<()> {
    let viewers = accepted(listener, viewer.is_some())?;
    loop {
        if let Some(viewer) = &mut viewer
            && viewer.try_wait().context("wait for the viewer")?.is_some()
        {
            return Ok(());
        }
        let came = match viewers.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => continue,
            // The viewer that was started has come.
            Err(RecvTimeoutError::Disconnected) if viewer.is_some() => {
                std::thread::park_timeout(LOOK);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the port for viewers was closed"),
            Ok(came) => came,
        };
        match came.map_err(anyhow::Error::from).and_then(|viewer| proxy(viewer, open()?)) {
            Ok(()) => {}
            Err(error) if error.downcast_ref::<ExitError>().is_some() => return Err(error),
            Err(error) => note!("garboard: a viewer could not be served: {error:#}"),
        }
    }
}

/// Viewers as they come, or the first one. Waiting for one cannot be limited in time, so a thread does it, and closes the port at the end.
fn accepted(listener: TcpListener, is_one: bool) -> anyhow::Result<Receiver<io::Result<TcpStream>>> {
    let (sender, viewers) = sync_channel(1);
    let accepting = move || {
        let mut is_known = false;
        loop {
            let came = listener.accept().map(|(viewer, _)| viewer);
            if came.as_ref().is_ok_and(|viewer| !peer::is_admitted(viewer)) {
                if !is_known {
                    note!(
                        "garboard: a connection to the port for viewers was refused: it is of another user of this computer, or was closed at once"
                    );
                }
                is_known = true;
                continue;
            }
            let is_last = is_one && came.is_ok();
            if sender.send(came).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().spawn(accepting).context("wait for viewers")?;
    Ok(viewers)
}

/// Copies both ways, each in a thread of its own, until one side closes its end.
fn proxy<K: Send + 'static>(viewer: TcpStream, screen: Screen<K>) -> anyhow::Result<()> {
    let Screen { mut incoming, mut outgoing, way } = screen;
    // The end of a picture would wait until the viewer has acknowledged what came before.
    viewer.set_nodelay(true)?;
    let (mut viewer_out, mut viewer_in) = (viewer.try_clone()?, viewer);
    std::thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut viewer_in, &mut outgoing);
        // The connection to the screen ends with its writing end, and at the latest with its way.
        drop(outgoing);
        drop(way);
    })?;
    std::thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut incoming, &mut viewer_out);
        let _ = viewer_out.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

/// How an address is written for a viewer.
type Address = fn(SocketAddr) -> String;

/// Viewers that are looked for, in this order, and how they are given an address.
const VIEWERS: [(&str, Address); 5] = [
    ("remote-viewer", url),
    ("xtigervncviewer", display),
    ("vncviewer", display),
    ("gvncviewer", |address| format!("{}:{}", address.ip(), i32::from(address.port()) - 5900)),
    ("krdc", url),
];

fn url(address: SocketAddr) -> String {
    format!("vnc://{address}")
}

/// Two colons: a port and no number of a display.
fn display(address: SocketAddr) -> String {
    format!("{}::{}", address.ip(), address.port())
}

/// Starts the first viewer that this computer has; nothing if it has none.
pub fn start_viewer(address: SocketAddr) -> Option<Child> {
    VIEWERS.iter().find_map(|(program, argument)| {
        let mut command = Command::new(program);
        command.arg(argument(address)).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_viewer_that_fails_is_no_end_for_the_next() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let turn = std::sync::atomic::AtomicUsize::new(0);
        std::thread::spawn(move || {
            serve(listener, None, || {
                if turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                    anyhow::bail!("not now");
                }
                let (incoming, mut guest) = std::io::pipe()?;
                guest.write_all(b"RFB 003.008")?;
                Ok(Screen { incoming: Box::new(incoming), outgoing: Box::new(io::sink()), way: guest })
            })
        });
        let mut failed = TcpStream::connect(address).unwrap();
        assert_eq!(failed.read(&mut [0; 16]).unwrap_or(0), 0);
        let mut served = TcpStream::connect(address).unwrap();
        let mut greeting = [0; 11];
        served.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"RFB 003.008");
    }

    #[test]
    #[cfg(unix)]
    fn a_viewer_that_was_started_is_served_alone() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut viewer = child.unwrap();
        let is_open = viewer.stdin.take();
        let served = std::thread::spawn(move || {
            serve(listener, Some(viewer), || {
                let (incoming, mut guest) = std::io::pipe()?;
                guest.write_all(b"RFB 003.008")?;
                Ok(Screen { incoming: Box::new(incoming), outgoing: Box::new(io::sink()), way: guest })
            })
        });
        let mut first = TcpStream::connect(address).unwrap();
        first.read_exact(&mut [0; 11]).unwrap();
        // The port is closed; one that was waiting there by then is never served.
        while let Ok(mut second) = TcpStream::connect(address) {
            assert_eq!(second.read(&mut [0; 1]).unwrap_or(0), 0);
        }
        drop(is_open);
        served.join().unwrap().unwrap();
    }

    #[test]
    fn the_way_ends_with_its_viewer_although_the_guest_says_nothing() {
        struct Way(std::sync::mpsc::Sender<()>);
        impl Drop for Way {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let viewer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, _) = listener.accept().unwrap();
        let (incoming, _guest) = std::io::pipe().unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        let screen = Screen { incoming: Box::new(incoming), outgoing: Box::new(io::sink()), way: Way(sender) };
        proxy(served, screen).unwrap();
        assert!(ended.recv_timeout(Duration::from_millis(1)).is_err(), "it ended before its viewer left");
        drop(viewer);
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn viewers_are_given_a_port_in_their_own_way() {
        let address: SocketAddr = "127.0.0.1:5907".parse().unwrap();
        let arguments: Vec<String> = VIEWERS.iter().map(|(_, argument)| argument(address)).collect();
        let expected =
            ["vnc://127.0.0.1:5907", "127.0.0.1::5907", "127.0.0.1::5907", "127.0.0.1:7", "vnc://127.0.0.1:5907"];
        assert_eq!(arguments, expected);
    }
}
