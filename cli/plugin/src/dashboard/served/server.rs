//! Connections of the browser: each has a thread and one request.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::forward::Forward;
use super::http::{self, Answer, Request};
use super::hurry::Hurried;
use super::keys::{Keys, Redemption};
use super::places::{Place, Places};
use super::refusal::Refusal;
use super::session::Session;
use super::{guard, presence, verdict};
use crate::dashboard::page::assets;
use crate::dashboard::page::routes::{Route, route};
use crate::kubectl::Kubectl;
use crate::output::note;
use crate::pause;

/// Connections at once. A tab has three for its watches and one for each console and screen.
const MOST_CONNECTIONS: usize = 200;
/// Of these, so many whose token was not checked yet. A browser opens six at once while it loads the page.
const MOST_STRANGERS: usize = 32;
/// How long a browser may take for a request, from its first byte to its last one.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to read an answer of this server itself; of one that is forwarded, for each part.
const READING: Duration = Duration::from_secs(60);
/// How long a diagnosis waits for that of another machine.
const TURN: Duration = Duration::from_secs(20);
/// How long kubectl may take for each question to the API server.
const QUESTION: &str = "30s";
const JSON: &str = "application/json";

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    kubectl: Kubectl,
    socket: PathBuf,
    port: u16,
    keys: Arc<Keys>,
    connections: Arc<Places>,
    strangers: Arc<Places>,
    /// One diagnosis at a time: each is about ten processes of kubectl.
    diagnosing: Mutex<()>,
}

impl Server {
    /// A server for that port.
    pub(super) fn new(kubectl: &Kubectl, socket: PathBuf, port: u16, keys: Arc<Keys>) -> Arc<Self> {
        Arc::new(Self {
            kubectl: kubectl.limited(QUESTION),
            socket,
            port,
            keys,
            connections: Places::new(MOST_CONNECTIONS),
            strangers: Places::new(MOST_STRANGERS),
            diagnosing: Mutex::new(()),
        })
    }

    /// Serves for ever.
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            // Out of descriptors, for instance: connections that end give some back.
            let Ok(stream) = stream else {
                pause::briefly();
                continue;
            };
            // One that has no place is closed without an answer, which would need a thread.
            let (Some(place), Some(stranger)) = (self.connections.take(), self.strangers.take()) else { continue };
            let server = Arc::clone(self);
            let served = std::thread::Builder::new().spawn(move || {
                server.serve(&stream, stranger);
                drop(place);
            });
            if served.is_err() {
                pause::briefly();
            }
        }
    }

    fn serve(&self, stream: &TcpStream, stranger: Place) {
        let limited = stream.set_write_timeout(Some(READING)).and_then(|()| stream.set_nodelay(true));
        let request = match http::read(&mut Hurried::new(stream, PATIENCE)) {
            Ok(Some(request)) if limited.is_ok() => request,
            Ok(_) => return,
            Err(refusal) => return self.write_refusal(stream, &refusal),
        };
        let mut stranger = Some(stranger);
        match self.answer(stream, &request, &mut stranger) {
            Ok(()) => {}
            Err(refusal) if request.is_upgrade() && guard::may_read_refusal(&request, self.port) => {
                let _ = self.forward().refuse(stream, &request, refusal.code(), &refusal.status());
            }
            Err(refusal) => self.write_refusal(stream, &refusal),
        }
    }

    /// `stranger` is given back once the request has shown that it is the user's own.
    fn answer(&self, stream: &TcpStream, request: &Request, stranger: &mut Option<Place>) -> Result<(), Refusal> {
        let host = guard::host(request, self.port)?;
        let route = route(&request.method, &request.target, request.is_upgrade());
        if let Ok(Route::Asset(name)) = &route {
            let asset = assets::find(name).ok_or_else(|| Refusal::Path(format!("GET /page/{name}")))?;
            self.write(stream, asset.media_type(), asset.bytes);
            return Ok(());
        }
        // Another page learns not even which paths there are.
        guard::own_page(request, host)?;
        let route = route?;
        if route == Route::Session {
            let token = self.redeemed(&String::from_utf8_lossy(&request.body))?;
            self.write(stream, JSON, serde_json::json!({ "token": token }).to_string().as_bytes());
            return Ok(());
        }
        let session = guard::session(request, &self.keys)?;
        drop(stranger.take());
        self.admitted(stream, request, &route, &session)
    }

    fn redeemed(&self, key: &str) -> Result<String, Refusal> {
        match self.keys.redeem(key) {
            Redemption::Token(token) => Ok(token),
            Redemption::Unknown => Err(Refusal::Key),
            Redemption::Revoked => {
                note!(
                    "garboard: an address of this dashboard was opened a second time, and the browser that opened it first is out now. If it \
                     was not you who opened it twice, another user has seen it"
                );
                Err(Refusal::Revoked)
            }
        }
    }

    /// The request is the user's own.
    fn admitted(
        &self,
        stream: &TcpStream,
        request: &Request,
        route: &Route,
        session: &Arc<Session>,
    ) -> Result<(), Refusal> {
        match route {
            Route::Asset(_) | Route::Session => Ok(()),
            Route::About => {
                self.write(stream, JSON, verdict::about(&self.kubectl).to_string().as_bytes());
                Ok(())
            }
            Route::Why { namespace, name } => {
                let found = {
                    let _turn = self.turn(stream, TURN)?;
                    verdict::why(&self.kubectl, namespace, name)?
                };
                self.write(stream, JSON, found.to_string().as_bytes());
                Ok(())
            }
            Route::Read(path) | Route::Change(path) => self.forward().exchange(stream, request, path),
            Route::Stream(path) => {
                let _held = session.hold(stream).map_err(|_| Refusal::Token)?;
                // A guest may be silent for hours.
                stream.set_read_timeout(None).map_err(|error| Refusal::Proxy(error.to_string()))?;
                self.forward().stream(stream, request, path)
            }
        }
    }

    /// The right to diagnose, for as long as its browser waits for it.
    fn turn(&self, stream: &TcpStream, patience: Duration) -> Result<MutexGuard<'_, ()>, Refusal> {
        let end = Instant::now() + patience;
        loop {
            match self.diagnosing.try_lock() {
                Ok(turn) => return Ok(turn),
                Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            if presence::has_left(stream) {
                return Err(Refusal::Left);
            }
            if Instant::now() >= end {
                return Err(Refusal::Diagnosing);
            }
            pause::briefly();
        }
    }

    fn forward(&self) -> Forward<'_> {
        Forward { socket: &self.socket, port: self.port }
    }

    /// A browser that left is no failure of anyone.
    fn write(&self, stream: &TcpStream, media_type: &str, body: &[u8]) {
        let answer = Answer { code: 200, media_type, body };
        let _ = http::write(&mut Hurried::new(stream, READING), &answer, self.port);
    }

    fn write_refusal(&self, stream: &TcpStream, refusal: &Refusal) {
        let body = refusal.status();
        let answer = Answer { code: refusal.code(), media_type: JSON, body: body.as_bytes() };
        let _ = http::write(&mut Hurried::new(stream, READING), &answer, self.port);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::args::ClusterArgs;

    const LIST: &str = "/apis/kubevirt.io/v1/virtualmachines?watch=true";

    /// A server without a kubectl behind it.
    fn server() -> (Arc<Server>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kubectl = Kubectl::new(&ClusterArgs::default(), None);
        (Server::new(&kubectl, "/nowhere".into(), port, Arc::default()), listener)
    }

    fn connected(listener: &TcpListener) -> [TcpStream; 2] {
        let browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [browser, listener.accept().unwrap().0]
    }

    /// The answer to one request.
    fn asked(server: &Arc<Server>, listener: &TcpListener, request: &str) -> String {
        let [mut browser, served] = connected(listener);
        browser.write_all(request.replace("PORT", &server.port.to_string()).as_bytes()).unwrap();
        browser.shutdown(std::net::Shutdown::Write).unwrap();
        server.serve(&served, server.strangers.take().unwrap());
        drop(served);
        let mut answer = Vec::new();
        browser.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn websocket(origin: &str) -> String {
        format!(
            "GET {LIST} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: {origin}\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
        )
    }

    #[test]
    fn only_the_page_itself_is_answered_in_a_websocket() {
        let (server, listener) = server();
        let own = asked(&server, &listener, &websocket("http://127.0.0.1:PORT"));
        assert!(own.starts_with("HTTP/1.1 101 ") && own.contains("no valid token"), "{own}");
        for origin in ["http://evil.example", "http://127.0.0.1:1", "http://localhost:PORT", "null"] {
            let other = asked(&server, &listener, &websocket(origin));
            assert!(other.starts_with("HTTP/1.1 403 ") && other.contains("another page"), "{origin}: {other}");
        }
    }

    #[test]
    fn an_address_that_is_opened_twice_lets_nobody_in_any_more() {
        let (server, listener) = server();
        let key = server.keys.cut();
        let request = format!(
            "POST /session HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT\r\nContent-Length: {}\r\n\r\n{key}",
            key.len()
        );
        let first = asked(&server, &listener, &request);
        let token = first.rsplit('"').nth(1).unwrap();
        assert!(first.starts_with("HTTP/1.1 200 ") && server.keys.session(token).is_some(), "{first}");
        let second = asked(&server, &listener, &request);
        assert!(second.starts_with("HTTP/1.1 403 ") && second.contains("this address was used before"), "{second}");
        assert!(server.keys.session(token).is_none());
    }

    #[test]
    fn a_diagnosis_waits_for_a_time_and_not_for_a_browser_that_left() {
        let (server, listener) = server();
        let [browser, served] = connected(&listener);
        let turn = server.turn(&served, TURN).unwrap();
        assert_eq!(server.turn(&served, Duration::from_millis(50)).err(), Some(Refusal::Diagnosing));
        drop(browser);
        assert_eq!(server.turn(&served, Duration::from_secs(600)).err(), Some(Refusal::Left));
        drop(turn);
        assert!(server.turn(&served, TURN).is_ok());
    }

    #[test]
    fn connections_that_show_no_token_are_few_and_one_more_is_closed_at_once() {
        let (server, listener) = server();
        let address = listener.local_addr().unwrap();
        let strangers: Vec<_> = (0..MOST_STRANGERS).map(|_| server.strangers.take().unwrap()).collect();
        let accepting = Arc::clone(&server);
        std::thread::spawn(move || accepting.accept(&listener));
        let mut one_more = TcpStream::connect(address).unwrap();
        assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0);
        drop(strangers);
        let mut next = TcpStream::connect(address).unwrap();
        next.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 12];
        next.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
}
