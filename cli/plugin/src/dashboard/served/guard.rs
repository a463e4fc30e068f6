//! Whether a request is the page's own. Pure.
//!
//! A browser lets every page send requests to 127.0.0.1. Four things keep them out: a name that leads here is not
//! among the hosts; `Origin` and `Sec-Fetch-Site` name the page that asks; nothing is answered without a token, which no browser adds
//! by itself; and an answer has no header that would let another page read it.

use std::sync::Arc;

use super::http::Request;
use super::keys::Keys;
use super::refusal::Refusal;
use super::session::Session;
use crate::dashboard::page;
use crate::dashboard::page::origin::{self, Asking, Named};

/// The beginning of the protocol by which a websocket names its token: a browser lets a page add no header to it.
pub(super) const TOKEN_PROTOCOL: &str = "garboard.token.";

/// The host that a request names, if it is this server. `localhost` is another origin, may lead to `::1` as well, and this server listens at
/// neither.
pub(super) fn host(request: &Request, port: u16) -> Result<&str, Refusal> {
    let named = request.header("host").unwrap_or_default();
    let is_ours = named == format!("127.0.0.1:{port}");
    if is_ours { Ok(named) } else { Err(Refusal::Host(named.to_owned())) }
}

/// That no other page caused it.
pub(super) fn own_page(request: &Request, host: &str) -> Result<(), Refusal> {
    let named = |name: &str| Named::of(request.header(name), request.has(name));
    let is_read = request.method == "GET" && !request.is_upgrade();
    let asking = Asking { is_read, origin: named("origin"), site: named("sec-fetch-site") };
    origin::own_page(asking, &format!("http://{host}")).map_err(Refusal::from)
}

/// Whether the page may read why its websocket is refused: only a page of this server may, and another one learns nothing but that.
pub(super) fn may_read_refusal(request: &Request, port: u16) -> bool {
    host(request, port).is_ok_and(|host| own_page(request, host).is_ok())
}

/// The session whose token it has: `Authorization: Bearer …`, or of a websocket among its protocols.
pub(super) fn session(request: &Request, keys: &Keys) -> Result<Arc<Session>, Refusal> {
    let of_header = || request.header("authorization")?.strip_prefix("Bearer ");
    let of_protocol = || protocols(request).find_map(|each| each.strip_prefix(TOKEN_PROTOCOL));
    let found = if request.is_upgrade() { of_protocol() } else { of_header() };
    found.and_then(|token| keys.session(token)).ok_or(Refusal::Token)
}

/// The protocols that a websocket offers.
pub(super) fn protocols(request: &Request) -> impl Iterator<Item = &str> {
    page::protocols(request.header("sec-websocket-protocol"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::served::http;

    fn request(method: &str, headers: &[&str]) -> Request {
        let text = format!("{method} /x HTTP/1.1\r\n{}\r\n\r\n", headers.join("\r\n"));
        http::read(&mut std::io::Cursor::new(text.into_bytes())).unwrap().unwrap()
    }

    #[test]
    fn a_name_that_leads_here_is_not_this_server() {
        let table = [
            ("127.0.0.1:4000", true),
            ("localhost:4000", false),
            ("127.0.0.1:4001", false),
            ("127.0.0.1", false),
            ("evil.example:4000", false),
            ("127.0.0.1.evil.example:4000", false),
            ("localhost.:4000", false),
            ("[::1]:4000", false),
        ];
        for (named, expected) in table {
            let request = request("GET", &[&format!("Host: {named}")]);
            assert_eq!(host(&request, 4000).is_ok(), expected, "{named}");
        }
        assert!(host(&request("GET", &["Host: 127.0.0.1:4000", "Host: 127.0.0.1:4000"]), 4000).is_err());
        assert!(host(&request("GET", &[]), 4000).is_err());
    }

    #[test]
    fn what_a_browser_says_of_the_page_that_asks_is_read() {
        let ours = "Origin: http://127.0.0.1:4000";
        let upgrade = "Upgrade: websocket";
        let table: [(&str, &[&str], bool); 8] = [
            ("GET", &[], true),
            ("PUT", &[ours], true),
            ("GET", &[ours, upgrade], true),
            ("PUT", &[], false),
            ("GET", &[upgrade], false),
            ("PUT", &["Origin: https://127.0.0.1:4000"], false),
            ("GET", &["Sec-Fetch-Site: same-site"], false),
            ("GET", &[ours, "Origin: http://evil.example"], false),
        ];
        for (method, headers, expected) in table {
            let outcome = own_page(&request(method, headers), "127.0.0.1:4000");
            assert_eq!(outcome.is_ok(), expected, "{method} {headers:?}: {outcome:?}");
        }
    }

    #[test]
    fn only_the_page_itself_reads_why_a_websocket_is_refused() {
        let may = |host: &str, origin: &str| {
            let headers = [format!("Host: {host}"), format!("Origin: {origin}"), "Upgrade: websocket".to_owned()];
            may_read_refusal(&request("GET", &headers.each_ref().map(String::as_str)), 4000)
        };
        assert!(may("127.0.0.1:4000", "http://127.0.0.1:4000"));
        assert!(!may("127.0.0.1:4000", "http://evil.example"));
        assert!(!may("127.0.0.1:4000", "http://127.0.0.1:4001"));
        assert!(!may("evil.example:4000", "http://evil.example:4000"));
    }

    #[test]
    fn nothing_is_served_without_the_token() {
        let keys = Keys::default();
        let good = keys.let_in();
        let token = |request: &Request, keys: &Keys| session(request, keys).map(|_| ());
        let bearer = |token: &str| request("GET", &[&format!("Authorization: Bearer {token}")]);
        assert_eq!(token(&bearer(&good), &keys), Ok(()));
        assert_eq!(token(&bearer(""), &keys), Err(Refusal::Token));
        assert_eq!(token(&request("GET", &[&format!("Cookie: token={good}")]), &keys), Err(Refusal::Token));
        let line = format!("Sec-WebSocket-Protocol: plain.kubevirt.io, {TOKEN_PROTOCOL}{good}");
        assert_eq!(token(&request("GET", &["Upgrade: websocket", &line]), &keys), Ok(()));
        assert_eq!(token(&request("GET", &[&line]), &keys), Err(Refusal::Token));
    }
}
