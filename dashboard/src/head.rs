//! The heads that go to the API server, and those that come back. Both are written anew: of the browser's headers the token goes on, and
//! the key of a websocket; no page can act as another user (`Impersonate-User`, `X-Remote-User`), and no cookie goes anywhere. Of an
//! answer, what describes its body comes back. Pure.

use bytes::Bytes;
use garboard_kubectl::page::WATCH_PROTOCOL;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{HeaderMap, Method, Request};

use crate::credentials::{TOKEN_PROTOCOL, Token, protocols};
use crate::guard::one;
use crate::refusal::Refusal;

const JSON: &str = "application/json";
/// The name that the API server is asked by: it has no virtual hosts.
const API_SERVER: &str = "kubernetes.default.svc";

/// What goes to the API server.
pub type Asked = Request<Full<Bytes>>;

/// A read or a change. What a browser sends with a read goes nowhere.
///
/// # Errors
/// [`Refusal::Malformed`]: the path is none.
pub fn exchange(method: Method, path: &str, token: &Token, body: Bytes) -> Result<Asked, Refusal> {
    let has_body = method != Method::GET;
    let body = if has_body { body } else { Bytes::new() };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, API_SERVER)
        .header(AUTHORIZATION, token.header()?)
        .header(ACCEPT, JSON);
    if has_body {
        request = request.header(CONTENT_TYPE, JSON);
    }
    request.body(Full::new(body)).map_err(|_| Refusal::Malformed("its path is none"))
}

/// A websocket. Watches are served by a library that wants an `Origin`.
///
/// # Errors
/// [`Refusal::Malformed`]: the browser's request is none for a websocket.
pub fn upgrade(path: &str, token: &Token, browser: &HeaderMap) -> Result<Asked, Refusal> {
    let key = one(browser, SEC_WEBSOCKET_KEY.as_str()).ok_or(Refusal::Malformed("a websocket without a key"))?;
    let offered: Vec<&str> = of_stream(browser).filter(|each| *each != WATCH_PROTOCOL).collect();
    let mut request = Request::builder()
        .uri(path)
        .header(HOST, API_SERVER)
        .header(AUTHORIZATION, token.header()?)
        .header(ORIGIN, format!("https://{API_SERVER}"))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, key);
    if !offered.is_empty() {
        request = request.header(SEC_WEBSOCKET_PROTOCOL, offered.join(", "));
    }
    request.body(Full::default()).map_err(|_| Refusal::Malformed("its path is none"))
}

/// The protocols that a websocket offers, without that of its token.
pub fn of_stream(browser: &HeaderMap) -> impl Iterator<Item = &str> {
    protocols(browser).filter(|each| !each.starts_with(TOKEN_PROTOCOL))
}

/// The protocol that the browser is answered with: the API server's, or the page's own for a watch.
#[must_use]
pub fn chosen(answer: &HeaderMap, browser: &HeaderMap) -> Option<HeaderValue> {
    let own =
        || of_stream(browser).any(|each| each == WATCH_PROTOCOL).then(|| HeaderValue::from_static(WATCH_PROTOCOL));
    answer.get(SEC_WEBSOCKET_PROTOCOL).cloned().or_else(own)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn browser(protocols: &str) -> HeaderMap {
        let mut made = HeaderMap::new();
        for (name, value) in [
            ("host", "localhost:8443"),
            ("authorization", "Bearer of-the-browser"),
            ("impersonate-user", "root"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-forwarded-for", "127.0.0.1"),
            ("cookie", "a=b"),
            ("origin", "https://localhost:8443"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-protocol", protocols),
        ] {
            made.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        made
    }

    fn names(request: &Asked) -> Vec<&str> {
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn of_the_browsers_headers_the_token_alone_reaches_the_api_server() {
        let token = Token::new("abc").unwrap();
        let read = exchange(Method::GET, "/api/v1/namespaces", &token, Bytes::from_static(b"{}")).unwrap();
        assert_eq!(names(&read), ["accept", "authorization", "host"]);
        assert_eq!(http_body::Body::size_hint(read.body()).exact(), Some(0), "a read has no body");
        assert_eq!(read.headers()["authorization"], "Bearer abc");
        let change = exchange(Method::PUT, "/apis/x", &token, Bytes::from_static(b"{}")).unwrap();
        assert_eq!(names(&change), ["accept", "authorization", "content-type", "host"]);
    }

    #[test]
    fn of_a_websocket_its_key_and_its_protocol_go_on_and_the_token_as_a_header() {
        let token = Token::new("abc").unwrap();
        let offered = browser(&format!("plain.kubevirt.io, {TOKEN_PROTOCOL}YWJj"));
        let asked = upgrade("/apis/x", &token, &offered).unwrap();
        let expected = [
            "authorization",
            "connection",
            "host",
            "origin",
            "sec-websocket-key",
            "sec-websocket-protocol",
            "sec-websocket-version",
            "upgrade",
        ];
        assert_eq!(names(&asked), expected);
        assert_eq!(asked.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
        assert_eq!(asked.headers()["authorization"], "Bearer abc");
        let text = format!("{:?}", asked.headers());
        for other in ["root", "masters", "localhost", "a=b", "deflate", "YWJj"] {
            assert!(!text.contains(other), "{other}: {text}");
        }
        assert!(upgrade("/apis/x", &token, &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_watch_is_answered_with_a_protocol_although_the_api_server_names_none() {
        let token = Token::new("abc").unwrap();
        let offered = browser(&format!("{WATCH_PROTOCOL}, {TOKEN_PROTOCOL}YWJj"));
        let asked = upgrade("/apis/x?watch=true", &token, &offered).unwrap();
        assert!(!asked.headers().contains_key("sec-websocket-protocol"));
        assert_eq!(chosen(&HeaderMap::new(), &offered).unwrap(), WATCH_PROTOCOL);
        assert_eq!(chosen(&HeaderMap::new(), &browser("plain.kubevirt.io")), None);
    }
}
