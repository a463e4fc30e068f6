//! A request of the page, on its way to the API server and back.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use garboard_kubectl::page::socket_frames;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::time::{sleep, timeout};

use crate::credentials::Token;
use crate::guard::one;
use crate::head;
use crate::patient::{BodyError, Coming};
use crate::places::Place;
use crate::refusal::Refusal;
use crate::upstream::{ANSWERING, ApiServer, whole};

/// Of an answer that refuses a stream, this much is read, bytes.
const LONGEST_STATUS: usize = 64 * 1024;
/// How long a side may take to end when the other one has.
const LEAVING: Duration = Duration::from_secs(5);

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is there already.
#[must_use]
pub fn ready(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A read or a change: the answer comes back as it comes.
///
/// # Errors
/// [`Refusal`].
pub async fn exchange(
    api: &ApiServer,
    token: &Token,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Response<Body>, Refusal> {
    let answer = api.send(head::exchange(method, path, token, body)?).await?;
    let (head, body) = answer.into_parts();
    if head.status.is_informational() {
        return Err(Refusal::Answer(head.status.as_u16()));
    }
    let mut out = Response::new(Coming::new(body, ANSWERING).boxed_unsync());
    *out.status_mut() = head.status;
    if let Some(kind) = head.headers.get(CONTENT_TYPE) {
        out.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    Ok(out)
}

/// A watch, a console or a screen: bytes both ways once both have agreed, until one side closes or the token ends.
///
/// # Errors
/// [`Refusal`], before anything is agreed.
pub async fn stream(
    api: &ApiServer,
    token: &Token,
    path: &str,
    request: &mut Request<Incoming>,
    place: Arc<Place>,
) -> Result<Response<Body>, Refusal> {
    let mut answer = api.send(head::upgrade(path, token, request.headers())?).await?;
    let code = answer.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        let text = whole(answer, LONGEST_STATUS).await?;
        if shows_a_token(code) {
            place.becomes_known();
        }
        return refused(request, code.as_u16(), &String::from_utf8_lossy(&text), place);
    }
    place.becomes_known();
    let accept = answer.headers().get(SEC_WEBSOCKET_ACCEPT).cloned().ok_or(Refusal::Answer(code.as_u16()))?;
    let protocol = head::chosen(answer.headers(), request.headers());
    let (upstream, browser) = (hyper::upgrade::on(&mut answer), hyper::upgrade::on(request));
    let rest = token.expires().map(rest_of);
    drop(tokio::spawn(async move {
        tokio::select! {
            () = relay(browser, upstream, rest) => {}
            () = place.is_gone() => {}
        }
    }));
    Ok(switching(accept, protocol))
}

/// Whether an answer shows that the API server has taken the token: to be refused for what one may not, one has to be known. What is
/// answered before a token is looked at, by a server that ends or has too much to do, or by a proxy before it, shows nothing. Pure.
#[must_use]
pub fn shows_a_token(code: StatusCode) -> bool {
    let is_before = matches!(
        code,
        StatusCode::UNAUTHORIZED
            | StatusCode::BAD_REQUEST
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    );
    code.is_success() || (code.is_client_error() && !is_before)
}

/// Says in the websocket itself why there is none: a browser hides the answer to a refused one from its page.
///
/// # Errors
/// [`Refusal::Malformed`]: there is no key to answer.
pub fn refused(
    request: &mut Request<Incoming>,
    code: u16,
    text: &str,
    place: Arc<Place>,
) -> Result<Response<Body>, Refusal> {
    let malformed = || Refusal::Malformed("a websocket without a key");
    let key = one(request.headers(), SEC_WEBSOCKET_KEY.as_str()).ok_or_else(malformed)?;
    let accept = HeaderValue::try_from(socket_frames::accept(key)).map_err(|_| malformed())?;
    let protocol = first_protocol(request.headers());
    let frames = socket_frames::refusal(code, text);
    let browser = hyper::upgrade::on(request);
    let telling = async move {
        if let Ok(browser) = browser.await {
            let mut browser = TokioIo::new(browser);
            let _ = timeout(LEAVING, browser.write_all(&frames)).await;
            leave(&mut browser).await;
        }
    };
    drop(tokio::spawn(async move {
        tokio::select! {
            () = telling => {}
            () = place.is_gone() => {}
        }
    }));
    Ok(switching(accept, protocol))
}

fn first_protocol(browser: &HeaderMap) -> Option<HeaderValue> {
    head::of_stream(browser).next().and_then(|each| HeaderValue::from_str(each).ok())
}

fn switching(accept: HeaderValue, protocol: Option<HeaderValue>) -> Response<Body> {
    let mut answer = Response::new(ready(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answer
}

/// From now until a token ends.
fn rest_of(expires: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(expires).saturating_sub(now)
}

/// Copies both ways until one side has ended, or for so long; then both have.
async fn relay(browser: OnUpgrade, upstream: OnUpgrade, rest: Option<Duration>) {
    let Ok((browser, upstream)) = tokio::try_join!(browser, upstream) else { return };
    copied(TokioIo::<Upgraded>::new(browser), TokioIo::<Upgraded>::new(upstream), rest).await;
}

async fn copied<B, U>(browser: B, upstream: U, rest: Option<Duration>)
where
    B: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let over: Pin<Box<dyn Future<Output = ()> + Send>> = match rest {
        Some(rest) => Box::pin(sleep(rest)),
        None => Box::pin(std::future::pending()),
    };
    let (mut from_browser, mut to_browser) = split(browser);
    let (mut from_upstream, mut to_upstream) = split(upstream);
    tokio::select! {
        _ = copy(&mut from_browser, &mut to_upstream) => {}
        _ = copy(&mut from_upstream, &mut to_browser) => {}
        () = over => {}
    }
    let _ = timeout(LEAVING, to_upstream.shutdown()).await;
    leave(&mut from_browser.unsplit(to_browser)).await;
}

/// Ends the connection with a browser. Its own end is waited for: what it has not read is lost otherwise.
async fn leave(browser: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let last = async {
        browser.shutdown().await?;
        let mut rest = [0; 256];
        while browser.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(LEAVING, last).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_answered_before_a_token_is_looked_at_makes_nobody_known() {
        for (code, expected) in [
            (200, true),
            (201, true),
            (400, false),
            (401, false),
            (403, true),
            (404, true),
            (409, true),
            (429, false),
            (500, false),
            (502, false),
            (503, false),
        ] {
            assert_eq!(shows_a_token(StatusCode::from_u16(code).unwrap()), expected, "{code}");
        }
    }

    #[tokio::test]
    async fn a_stream_ends_with_either_side_and_what_came_before_is_read() {
        let (mut browser, served) = tokio::io::duplex(1024);
        let (upstream, mut api) = tokio::io::duplex(1024);
        let copying = tokio::spawn(copied(served, upstream, None));
        api.write_all(b"hello login: ").await.unwrap();
        browser.write_all(b"root").await.unwrap();
        let mut typed = [0; 4];
        api.read_exact(&mut typed).await.unwrap();
        assert_eq!(&typed, b"root");
        drop(api);
        let mut shown = Vec::new();
        browser.read_to_end(&mut shown).await.unwrap();
        assert_eq!(shown, b"hello login: ");
        drop(browser);
        copying.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_with_its_token() {
        let (mut browser, served) = tokio::io::duplex(1024);
        let (upstream, mut api) = tokio::io::duplex(1024);
        let began = tokio::time::Instant::now();
        drop(tokio::spawn(copied(served, upstream, Some(Duration::from_secs(60)))));
        assert_eq!(api.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(browser.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(began.elapsed() >= Duration::from_secs(60));
        assert_eq!(rest_of(0), Duration::ZERO);
    }
}
