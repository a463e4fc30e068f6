//! Connections of the browser: each has a thread and one request.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::forward::Forward;
use super::http::{self, Answer, Request};
use super::keys::Keys;
use super::refusal::Refusal;
use super::routes::{Route, route};
use super::{assets, guard, verdict};
use crate::kubectl::Kubectl;
use crate::pause;

/// Connections at once. A tab has three for its watches and one for each console and screen.
const MOST_CONNECTIONS: usize = 200;
/// How long a browser may take for a request.
const PATIENCE: Duration = Duration::from_secs(20);
const JSON: &str = "application/json";

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    kubectl: Kubectl,
    socket: PathBuf,
    port: u16,
    keys: Arc<Keys>,
    connections: AtomicUsize,
    /// One diagnosis at a time: each is about ten processes of kubectl.
    diagnosing: Mutex<()>,
}

impl Server {
    /// A server for that port.
    pub(super) fn new(kubectl: Kubectl, socket: PathBuf, port: u16, keys: Arc<Keys>) -> Arc<Self> {
        let (connections, diagnosing) = (AtomicUsize::new(0), Mutex::new(()));
        Arc::new(Self { kubectl, socket, port, keys, connections, diagnosing })
    }

    /// Serves for ever.
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            // Out of descriptors, for instance: connections that end give some back.
            let Ok(stream) = stream else {
                pause::briefly();
                continue;
            };
            let server = Arc::clone(self);
            std::thread::spawn(move || {
                let at_once = server.connections.fetch_add(1, Ordering::SeqCst);
                server.serve(stream, at_once < MOST_CONNECTIONS);
                server.connections.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    fn serve(&self, mut stream: TcpStream, has_room: bool) {
        let limited = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_nodelay(true));
        let request = match http::read(&mut stream) {
            Ok(Some(request)) if limited.is_ok() => request,
            Ok(_) => return,
            Err(refusal) => return self.write_refusal(&mut stream, &refusal),
        };
        let outcome = if has_room { self.answer(&mut stream, &request) } else { Err(Refusal::Busy) };
        match outcome {
            Ok(()) => {}
            Err(refusal) if request.is_upgrade() && guard::host(&request, self.port).is_ok() => {
                let _ = self.forward().refuse(&mut stream, &request, refusal.code(), &refusal.status());
            }
            Err(refusal) => self.write_refusal(&mut stream, &refusal),
        }
    }

    fn answer(&self, stream: &mut TcpStream, request: &Request) -> Result<(), Refusal> {
        let host = guard::host(request, self.port)?;
        let route = route(&request.method, &request.target, request.is_upgrade())?;
        if let Route::Asset(name) = &route {
            let asset = assets::find(name).ok_or_else(|| Refusal::Path(format!("GET /page/{name}")))?;
            self.write(stream, asset.media_type(), asset.bytes);
            return Ok(());
        }
        guard::own_page(request, host)?;
        if route == Route::Session {
            let key = String::from_utf8_lossy(&request.body);
            let token = self.keys.redeem(&key).ok_or(Refusal::Key)?;
            self.write(stream, JSON, serde_json::json!({ "token": token }).to_string().as_bytes());
            return Ok(());
        }
        guard::token(request, &self.keys)?;
        self.admitted(stream, request, &route)
    }

    /// The request is the user's own.
    fn admitted(&self, stream: &mut TcpStream, request: &Request, route: &Route) -> Result<(), Refusal> {
        match route {
            Route::Asset(_) | Route::Session => Ok(()),
            Route::About => {
                self.write(stream, JSON, verdict::about(&self.kubectl).to_string().as_bytes());
                Ok(())
            }
            Route::Why { namespace, name } => {
                let found = {
                    let _turn = self.diagnosing.lock().unwrap_or_else(PoisonError::into_inner);
                    verdict::why(&self.kubectl, namespace, name)?
                };
                self.write(stream, JSON, found.to_string().as_bytes());
                Ok(())
            }
            Route::Read(path) | Route::Change(path) => self.forward().exchange(stream, request, path),
            Route::Stream(path) => {
                // A guest may be silent for hours.
                stream.set_read_timeout(None).map_err(|error| Refusal::Proxy(error.to_string()))?;
                self.forward().stream(stream, request, path)
            }
        }
    }

    fn forward(&self) -> Forward<'_> {
        Forward { socket: &self.socket, port: self.port }
    }

    /// A browser that left is no failure of anyone.
    fn write(&self, stream: &mut TcpStream, media_type: &str, body: &[u8]) {
        let _ = http::write(stream, &Answer { code: 200, media_type, body }, self.port);
    }

    fn write_refusal(&self, stream: &mut TcpStream, refusal: &Refusal) {
        let body = refusal.status();
        let answer = Answer { code: refusal.code(), media_type: JSON, body: body.as_bytes() };
        let _ = http::write(stream, &answer, self.port);
    }
}
