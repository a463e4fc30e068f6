//! Connections of browsers, and what is answered to each request.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use garboard_kubectl::page::routes::{Route, route};
use garboard_kubectl::page::{assets, headers};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::credentials::Token;
use crate::forward::{self, Body, ready};
use crate::guard::{self, Hosts};
use crate::looking::{self, DIAGNOSED_WITHIN, Looking};
use crate::patient::Writing;
use crate::places::{Place, Places};
use crate::refusal::Refusal;
use crate::upstream::ApiServer;

/// Connections at once whose token the API server has taken. A tab has three for its watches, one for each console and screen, and six at
/// most for what it asks.
const MOST_KNOWN: usize = 768;
/// Others at once. One more has the place of the first of these.
const MOST_STRANGERS: usize = 256;
/// How long the handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a browser may take for the head of a request, for its body, and between two requests.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take nothing of an answer.
const READING: Duration = Duration::from_secs(60);
/// The largest head of a request, bytes: tokens of OpenID Connect are long.
const LONGEST_HEAD: usize = 32 * 1024;
/// Lines of a head.
const MOST_HEADERS: usize = 64;
/// The largest body, bytes: the options of a stop.
const LONGEST_BODY: usize = 4096;
/// How long a diagnosis waits for its turn.
const TURN: Duration = Duration::from_secs(20);
/// Diagnoses at once. Each may hold some ten times the largest list that it reads.
const DIAGNOSES: usize = 2;
/// Questions of diagnoses at once.
const QUESTIONS: usize = 8;
/// How long to wait when the system has no more descriptors: connections that end give some back.
const PAUSE: Duration = Duration::from_millis(100);
/// Where a kubelet asks whether it serves.
const HEALTH: &str = "/healthz";
const JSON: &str = "application/json";
/// The document of the page, and what it says of how users get in: by an address with a key, or with a token.
const INDEX: &str = "index.html";
const BY_KEY: &str = "data-entrance=\"key\"";
const BY_TOKEN: &str = "data-entrance=\"token\"";

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    hosts: Hosts,
    api: Arc<ApiServer>,
    garboard: Arc<str>,
    places: Places,
    diagnoses: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

impl Server {
    /// For an API server. `garboard`: the namespace of the controllers.
    #[must_use]
    pub fn new(hosts: Hosts, api: ApiServer, garboard: &str) -> Arc<Self> {
        Arc::new(Self {
            hosts,
            api: Arc::new(api),
            garboard: garboard.into(),
            places: Places::new(MOST_KNOWN, MOST_STRANGERS),
            diagnoses: Arc::new(Semaphore::new(DIAGNOSES)),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
        })
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shown: watch::Receiver<Arc<ServerConfig>>) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let (place, acceptor) = (Arc::new(self.places.take()), TlsAcceptor::from(shown.borrow().clone()));
            let serving = Arc::clone(&self).connection(stream, acceptor, Arc::clone(&place));
            drop(tokio::spawn(async move {
                tokio::select! {
                    () = serving => {}
                    () = place.is_gone() => {}
                }
            }));
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, acceptor: TlsAcceptor, place: Arc<Place>) {
        // What a person types in a console does not wait for more.
        let _ = stream.set_nodelay(true);
        let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, place) = (Arc::clone(&self), Arc::clone(&place));
            async move { Ok::<_, Infallible>(server.answer(request, place).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_headers(MOST_HEADERS);
        let io = TokioIo::new(Writing::new(stream, READING));
        // A browser that left is no failure of anyone.
        let _ = builder.max_buf_size(LONGEST_HEAD).serve_connection(io, service).with_upgrades().await;
    }

    async fn answer(&self, mut request: Request<Incoming>, place: Arc<Place>) -> Response<Body> {
        if request.uri().path() == HEALTH {
            return whole(StatusCode::OK, "text/plain", Bytes::from_static(b"ok"));
        }
        let host = match self.hosts.check(request.headers()) {
            Ok(host) => host.to_owned(),
            Err(refusal) => return with_headers(of(&refusal), ""),
        };
        let answer = match self.routed(&mut request, &host, &place).await {
            Ok(answer) => answer,
            Err(refusal) => explained(&mut request, &host, &refusal, place),
        };
        with_headers(answer, &host)
    }

    async fn routed(
        &self,
        request: &mut Request<Incoming>,
        host: &str,
        place: &Arc<Place>,
    ) -> Result<Response<Body>, Refusal> {
        let (method, is_upgrade) = (request.method().as_str().to_owned(), guard::is_upgrade(request.headers()));
        let route = route(&method, &request.uri().to_string(), is_upgrade);
        if let Ok(Route::Asset(name)) = &route {
            return asset(name);
        }
        // Another page learns not even which paths there are.
        guard::own_page(&method, request.headers(), host)?;
        let route = route?;
        let token = Token::of(request.headers())?;
        let answer = match route {
            Route::Asset(name) => return Err(Refusal::Path(name)),
            // Addresses have no keys here.
            Route::Session => return Err(Refusal::Path("POST /session".to_owned())),
            Route::Stream(path) => {
                return forward::stream(&self.api, &token, &path, request, Arc::clone(place)).await;
            }
            Route::About => json(looking::about(&self.api, &token).await?.to_string()),
            Route::Why { namespace, name } => json(self.why(token, namespace, name).await?),
            Route::Read(path) | Route::Change(path) => {
                let body = body(request).await?;
                forward::exchange(&self.api, &token, request.method().clone(), &path, body).await?
            }
        };
        if forward::shows_a_token(answer.status()) {
            place.becomes_known();
        }
        Ok(answer)
    }

    /// One that has begun goes to its end, with its turn, also when its browser has left.
    async fn why(&self, token: Token, namespace: String, name: String) -> Result<String, Refusal> {
        let turn = timeout(TURN, Arc::clone(&self.diagnoses).acquire_owned()).await.map_err(|_| Refusal::Diagnosing)?;
        let looking = Looking {
            runtime: Handle::current(),
            api: Arc::clone(&self.api),
            token,
            namespace,
            garboard: Arc::clone(&self.garboard),
            questions: Arc::clone(&self.questions),
            until: Instant::now() + DIAGNOSED_WITHIN,
            read: AtomicUsize::new(0),
        };
        let judged = tokio::task::spawn_blocking(move || {
            let found = garboard_kubectl::diagnose(&looking, &name);
            drop(turn);
            found
        });
        let lost = |error: tokio::task::JoinError| Refusal::Diagnosis(format!("the diagnosis failed: {error}"));
        let diagnosis = judged.await.map_err(lost)?.map_err(looking::refusal)?;
        serde_json::to_string(&diagnosis).map_err(|error| Refusal::Diagnosis(error.to_string()))
    }
}

/// A refusal as the page can read it: of a websocket in the websocket itself, if it is this page's own. Another page learns nothing but that.
fn explained(request: &mut Request<Incoming>, host: &str, refusal: &Refusal, place: Arc<Place>) -> Response<Body> {
    let is_own = guard::own_page(request.method().as_str(), request.headers(), host).is_ok();
    if is_own && guard::is_upgrade(request.headers()) {
        let ended = forward::refused(request, refusal.code(), &refusal.status(), place);
        return ended.unwrap_or_else(|refusal| of(&refusal));
    }
    of(refusal)
}

async fn body(request: &mut Request<Incoming>) -> Result<Bytes, Refusal> {
    let reading = Limited::new(request.body_mut(), LONGEST_BODY).collect();
    let read = timeout(PATIENCE, reading).await.map_err(|_| Refusal::Malformed("its body did not come in time"))?;
    read.map(|body| body.to_bytes()).map_err(|_| Refusal::Malformed("its body is too long, or is cut off"))
}

/// A file of the page. It needs no token, as it is the same for everyone.
fn asset(name: &str) -> Result<Response<Body>, Refusal> {
    let found = assets::find(name).ok_or_else(|| Refusal::Path(format!("GET /page/{name}")))?;
    let bytes = if name == INDEX { index(found.bytes) } else { Bytes::from_static(found.bytes) };
    Ok(whole(StatusCode::OK, found.media_type(), bytes))
}

/// The document of the page, for users who get in with a token.
fn index(document: &[u8]) -> Bytes {
    Bytes::from(String::from_utf8_lossy(document).replacen(BY_KEY, BY_TOKEN, 1))
}

fn json(text: String) -> Response<Body> {
    whole(StatusCode::OK, JSON, Bytes::from(text))
}

fn of(refusal: &Refusal) -> Response<Body> {
    let code = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::BAD_GATEWAY);
    whole(code, JSON, Bytes::from(refusal.status()))
}

fn whole(code: StatusCode, media_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut answer = Response::new(ready(bytes));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// With what every answer has. A host that was checked is a name that this server is known by, and nothing else of a policy.
fn with_headers(mut answer: Response<Body>, host: &str) -> Response<Body> {
    let connects = if host.is_empty() { String::new() } else { format!("wss://{host}") };
    for (name, value) in headers::common(&connects) {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

#[cfg(test)]
mod tests;
