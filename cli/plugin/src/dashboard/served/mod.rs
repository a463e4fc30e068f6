//! The server of the page, for one user, until Ctrl-C.

mod assets;
mod forward;
mod guard;
mod http;
mod keys;
mod proxy;
mod refusal;
mod routes;
mod server;
mod socket_frames;
mod verdict;

use std::io::{BufRead, IsTerminal};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::DashboardArgs;
use crate::exit::{FAILED, OK, exit_error};
use crate::kubectl::Kubectl;
use crate::output::{note, outln};
use crate::pause;
use keys::Keys;
use proxy::Proxy;
use server::Server;

/// `kubectl garboard dashboard`: serves until a signal comes or kubectl ends.
pub(crate) fn run(kubectl: &Kubectl, args: &DashboardArgs) -> anyhow::Result<u8> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("take signals that end the program")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .with_context(|| format!("listen on 127.0.0.1:{}; choose another --port", args.port))?;
    let port = listener.local_addr().context("read the port that was chosen")?.port();
    let mut proxy = Proxy::start(kubectl)?;
    let keys = Arc::new(Keys::default());
    let server = Server::new(kubectl.clone(), proxy.socket().to_owned(), port, Arc::clone(&keys));
    std::thread::spawn(move || server.accept(&listener));
    announce(&keys, port, args.open)?;
    loop {
        if signals.pending().next().is_some() {
            return Ok(OK);
        }
        if let Some(reason) = proxy.ended() {
            return Err(exit_error(FAILED, format!("kubectl proxy ended: {reason}")));
        }
        pause::between_questions();
    }
}

/// Prints an address, and another one each time that Enter is pressed: each lets one browser in, once.
fn announce(keys: &Arc<Keys>, port: u16, open: bool) -> anyhow::Result<()> {
    let address = address(keys, port);
    outln!("{address}")?;
    if open && !opened(&address) {
        note!("no browser could be started here: open the address by hand");
    }
    if std::io::stdin().is_terminal() {
        note!("the address lets one browser in, once. Enter prints another one, Ctrl-C ends the dashboard");
        let keys = Arc::clone(keys);
        std::thread::spawn(move || {
            for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
                // A reader that left ends this thread alone; the browser that is in goes on.
                if outln!("{}", self::address(&keys, port)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

fn address(keys: &Keys, port: u16) -> String {
    format!("http://127.0.0.1:{port}/#key={}", keys.cut())
}

/// Starts the browser of this computer.
fn opened(address: &str) -> bool {
    ["xdg-open", "open"].iter().any(|program| {
        let mut command = Command::new(program);
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}
