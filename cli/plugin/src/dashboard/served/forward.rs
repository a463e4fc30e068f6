//! A request of the page, on its way to kubectl's proxy and back.
//!
//! The head is written anew in both directions: of the browser's headers nothing goes to the API server but the keys of a
//! websocket, so that no page can act as another user (`Impersonate-User`); of the answer's, what describes its body comes back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::guard::{TOKEN_PROTOCOL, protocols};
use super::http::{self, Request, common_headers, phrase};
use super::presence;
use super::refusal::Refusal;
use crate::dashboard::page::{WATCH_PROTOCOL, socket_frames};

/// Of an answer that refuses a stream, this much is read.
const LONGEST_STATUS: u64 = 64 * 1024;
/// How long the proxy may take until an answer begins, and between two parts of it: API servers end what takes longer than a minute.
const ANSWERING: Duration = Duration::from_secs(90);
/// How long a browser may take to leave a websocket that was refused.
const LEAVING: Duration = Duration::from_secs(5);
/// Headers that describe a body.
const OF_BODY: [&str; 3] = ["content-type", "content-length", "transfer-encoding"];

/// The head of an answer of the proxy.
#[derive(Debug, Default)]
struct Head {
    code: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A way to the proxy for one request.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    /// The proxy's socket.
    pub(super) socket: &'a Path,
    /// This server's port.
    pub(super) port: u16,
}

impl Forward<'_> {
    /// A read or a change: the answer is copied as it comes.
    pub(super) fn exchange(&self, mut client: &TcpStream, request: &Request, path: &str) -> Result<(), Refusal> {
        let mut proxy = self.connect()?;
        let mut head = format!(
            "{} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n",
            request.method
        );
        if request.method != "GET" {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.len()));
        }
        head.push_str("\r\n");
        sent(proxy.write_all(head.as_bytes()).and_then(|()| proxy.write_all(&request.body)))?;
        let mut answering = Answering { proxy: &proxy, client };
        let (answer, begun) = answering.head()?;
        let mut out = format!("HTTP/1.1 {} {}\r\n", answer.code, phrase(answer.code));
        for name in OF_BODY {
            if let Some(value) = answer.header(name) {
                out.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        out.push_str(&common_headers(self.port));
        out.push_str("\r\n");
        // A browser that left is no failure of anyone.
        let _ = client.write_all(out.as_bytes()).and_then(|()| client.write_all(&begun));
        let _ = io::copy(&mut answering, &mut client);
        Ok(())
    }

    /// A watch, a console or a screen: bytes both ways once both have agreed, until one side closes.
    pub(super) fn stream(&self, mut client: &TcpStream, request: &Request, path: &str) -> Result<(), Refusal> {
        let key = request.header("sec-websocket-key").ok_or(Refusal::Malformed("a websocket without a key"))?;
        let mut proxy = self.connect()?;
        sent(proxy.write_all(upgrade(request, path, key).as_bytes()))?;
        let mut answering = Answering { proxy: &proxy, client };
        let (answer, begun) = answering.head()?;
        if answer.code != 101 {
            let text = body_text(&mut answering, &answer, begun);
            return self.refuse(client, request, answer.code, &text);
        }
        let protocol = answer.header("sec-websocket-protocol").or_else(|| own_protocol(request));
        let accept = answer.header("sec-websocket-accept").unwrap_or_default();
        sent(client.write_all(switching(accept, protocol).as_bytes()).and_then(|()| client.write_all(&begun)))?;
        // A guest may take nothing for hours.
        sent(proxy.set_write_timeout(None))?;
        relay(client, proxy);
        Ok(())
    }

    /// Says in the websocket itself why there is none.
    pub(super) fn refuse(
        &self,
        mut client: &TcpStream,
        request: &Request,
        code: u16,
        text: &str,
    ) -> Result<(), Refusal> {
        let key = request.header("sec-websocket-key").ok_or(Refusal::Malformed("a websocket without a key"))?;
        let offered = protocols(request).find(|each| !each.starts_with(TOKEN_PROTOCOL));
        let head = switching(&socket_frames::accept(key), offered);
        let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&socket_frames::refusal(code, text)));
        // The browser's own close frame, or its end, is waited for: what it has not read is lost otherwise.
        let _ = client.set_read_timeout(Some(LEAVING));
        let _came = client.read(&mut [0; 64]).map_or(0, |count| count);
        Ok(())
    }

    fn connect(&self) -> Result<UnixStream, Refusal> {
        let proxy = UnixStream::connect(self.socket).and_then(|proxy| {
            proxy.set_write_timeout(Some(ANSWERING))?;
            Ok(proxy)
        });
        proxy.map_err(|error| Refusal::Proxy(error.to_string()))
    }
}

/// What the proxy answers, for as long as the browser is there and waits.
struct Answering<'a> {
    proxy: &'a UnixStream,
    client: &'a TcpStream,
}

impl Answering<'_> {
    /// Head of an answer, and what came behind it.
    fn head(&mut self) -> Result<(Head, Vec<u8>), Refusal> {
        presence::await_answer(self.client, self.proxy, ANSWERING).map_err(|error| absent(&error))?;
        let broken = |text: &str| Refusal::Proxy(text.to_owned());
        let begun = http::beginning(self).map_err(|_| broken("its answer is cut off"))?;
        let http::Beginning { head, rest } = begun.ok_or_else(|| broken("it closed the connection"))?;
        let mut lines = [httparse::EMPTY_HEADER; http::MOST_HEADERS];
        let mut parsed = httparse::Response::new(&mut lines);
        if !matches!(parsed.parse(&head), Ok(httparse::Status::Complete(_))) {
            return Err(broken("its answer is not HTTP/1.1"));
        }
        let headers =
            parsed.headers.iter().map(|each| (each.name.to_owned(), String::from_utf8_lossy(each.value).into_owned()));
        Ok((Head { code: parsed.code.unwrap_or(502), headers: headers.collect() }, rest))
    }
}

impl Read for Answering<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        presence::await_answer(self.client, self.proxy, ANSWERING)?;
        self.proxy.read(buffer)
    }
}

fn absent(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::TimedOut {
        Refusal::Late(ANSWERING.as_secs())
    } else if error.kind() == io::ErrorKind::ConnectionAborted {
        Refusal::Left
    } else {
        Refusal::Proxy(error.to_string())
    }
}

fn sent(outcome: io::Result<()>) -> Result<(), Refusal> {
    outcome.map_err(|error| Refusal::Proxy(error.to_string()))
}

/// The request for a websocket, as the proxy gets it. Watches are served by a library that wants an `Origin`. Pure.
fn upgrade(request: &Request, path: &str, key: &str) -> String {
    let is_passed = |each: &&str| !each.starts_with(TOKEN_PROTOCOL) && *each != WATCH_PROTOCOL;
    let offered: Vec<&str> = protocols(request).filter(is_passed).collect();
    let line =
        if offered.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {}\r\n", offered.join(", ")) };
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{line}\r\n"
    )
}

/// The answer to the browser. Pure.
fn switching(accept: &str, protocol: Option<&str>) -> String {
    let line = protocol.map(|each| format!("Sec-WebSocket-Protocol: {each}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n{line}\r\n"
    )
}

fn own_protocol(request: &Request) -> Option<&'static str> {
    protocols(request).any(|each| each == WATCH_PROTOCOL).then_some(WATCH_PROTOCOL)
}

/// The text of a short answer. What an API server refuses with is a `Status` with a length. Chunks are not taken apart: between
/// the first brace and the last one there is one `Status`, which fits into one chunk.
fn body_text(proxy: &mut impl Read, answer: &Head, mut begun: Vec<u8>) -> String {
    let length = answer.header("content-length").and_then(|text| text.parse().ok());
    let missing =
        length.map_or(LONGEST_STATUS, |length: u64| length.saturating_sub(u64::try_from(begun.len()).unwrap_or(0)));
    // What came until it broke off is all there is.
    let _ = proxy.take(missing.min(LONGEST_STATUS)).read_to_end(&mut begun);
    let text = String::from_utf8_lossy(&begun);
    let inner = text.find('{').zip(text.rfind('}')).and_then(|(first, last)| text.get(first..=last));
    inner.unwrap_or(&text).to_owned()
}

/// Copies both ways until one side has ended; then both have.
fn relay(client: &TcpStream, proxy: UnixStream) {
    let Ok((mut from_client, mut to_client)) = client.try_clone().and_then(|one| Ok((one, client.try_clone()?))) else {
        return;
    };
    let Ok(mut to_proxy) = proxy.try_clone() else { return };
    let mut from_proxy = proxy;
    std::thread::scope(|scope| {
        let upwards = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _ = io::copy(&mut from_client, &mut to_proxy);
            let _ = to_proxy.shutdown(Shutdown::Both);
        });
        if upwards.is_err() {
            // Out of threads: the browser tries again.
            let _ = to_client.shutdown(Shutdown::Both);
            return;
        }
        let _ = io::copy(&mut from_proxy, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &str) -> Request {
        let text = format!("GET /x HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
        http::read(&mut io::Cursor::new(text.into_bytes())).unwrap().unwrap()
    }

    #[test]
    fn neither_token_nor_a_header_of_the_browser_reaches_the_api_server() {
        let request = asked(
            "Sec-WebSocket-Protocol: plain.kubevirt.io, garboard.token.abc\r\nImpersonate-User: root\r\nCookie: a=b\r\n\
             Authorization: Bearer abc",
        );
        let head = upgrade(&request, "/p", "k");
        assert!(head.contains("\r\nSec-WebSocket-Protocol: plain.kubevirt.io\r\n"), "{head}");
        for text in ["abc", "Impersonate", "Cookie", "Authorization"] {
            assert!(!head.contains(text), "{text}: {head}");
        }
    }

    #[test]
    fn a_watch_is_answered_with_a_protocol_although_the_api_server_names_none() {
        let request = asked("Sec-WebSocket-Protocol: garboard.watch, garboard.token.abc");
        assert!(!upgrade(&request, "/p", "k").contains("Sec-WebSocket-Protocol"));
        assert_eq!(own_protocol(&request), Some("garboard.watch"));
        assert!(switching("s", own_protocol(&request)).contains("Sec-WebSocket-Protocol: garboard.watch\r\n"));
    }
}
