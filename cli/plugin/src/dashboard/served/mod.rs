//! The server of the page, for one user, until Ctrl-C.

mod caller;
mod forward;
mod guard;
mod http;
mod hurry;
mod keys;
mod open;
mod places;
mod presence;
mod refusal;
mod server;
mod session;
mod verdict;

use std::io::{BufRead, IsTerminal};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::page::routes;
use crate::args::DashboardArgs;
use crate::exit::{FAILED, OK, exit_error};
use crate::failure::bounded;
use crate::kubectl::{Kubectl, failed};
use crate::output::{note, outln};
use crate::pause;
use crate::stream::{Bounds, Proxy};
use caller::Caller;
use keys::Keys;
use open::Opened;
use server::Server;

/// Methods that nothing of the page has, on their way to the API server.
const REFUSED_METHODS: &str = "^(POST|PATCH|DELETE|CONNECT|OPTIONS|TRACE|HEAD)$";

/// `kubectl garboard dashboard`: serves until a signal comes, kubectl ends, or who started it has left.
pub(crate) fn run(kubectl: &Kubectl, args: &DashboardArgs) -> anyhow::Result<u8> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("take signals that end the program")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .with_context(|| format!("listen on 127.0.0.1:{}; choose another --port", args.port))?;
    let port = listener.local_addr().context("read the port that was chosen")?.port();
    let kubectl = kubectl.pinned().map_err(failed)?;
    let bounds = Bounds { paths: routes::expressions(), refused_methods: REFUSED_METHODS.to_owned() };
    let proxy = Proxy::start(&kubectl, &bounds)?;
    let socket = proxy.socket()?;
    let keys = Arc::new(Keys::default());
    let server = Server::new(&kubectl, socket.to_owned(), port, Arc::clone(&keys));
    in_a_thread(move || server.accept(&listener))?;
    let caller = Caller::watched().context("wait for the end of standard input")?;
    announce(&keys, port)?;
    let directory = socket.parent().filter(|_| args.open);
    let mut opened = directory.map(|directory| Opened::new(directory, &keys, port)).transpose()?;
    loop {
        if signals.pending().next().is_some() || caller.has_left() {
            return Ok(OK);
        }
        if let Some(reason) = proxy.ended() {
            return Err(exit_error(FAILED, format!("kubectl proxy ended: {}", bounded(&reason))));
        }
        opened = opened.filter(|opened| opened.is_unused(&keys));
        pause::between_questions();
    }
}

/// Prints an address, and another one each time that Enter is pressed: each lets one browser in, once.
fn announce(keys: &Arc<Keys>, port: u16) -> anyhow::Result<()> {
    outln!("{}", address(port, &keys.cut()))?;
    if !std::io::stdin().is_terminal() {
        return Ok(());
    }
    note!("the address lets one browser in, once. Enter prints another one, Ctrl-C ends the dashboard");
    let keys = Arc::clone(keys);
    in_a_thread(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            // A reader that left ends this thread alone; the browser that is in goes on.
            if outln!("{}", address(port, &keys.cut())).is_err() {
                return;
            }
        }
    })
}

fn address(port: u16, key: &str) -> String {
    format!("http://127.0.0.1:{port}/#key={key}")
}

/// Where the system has no more threads, that is an error and no end of the program.
fn in_a_thread(act: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new().spawn(act).map(|_| ()).context("start a thread")
}
