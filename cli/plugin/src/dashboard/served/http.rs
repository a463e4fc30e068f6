//! As much of HTTP/1.1 as a browser on the same computer needs: one request for each connection, a short body with a length.

use std::io::{self, Read, Write};

use super::refusal::Refusal;
use crate::dashboard::page::headers;

/// A head is not longer.
pub(super) const LONGEST_HEAD: usize = 16 * 1024;
/// A body is not longer: a key, or the options of a stop.
const LONGEST_BODY: usize = 4096;
/// Lines of a head.
pub(super) const MOST_HEADERS: usize = 64;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// In capitals.
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    headers: Vec<(String, String)>,
    /// As long as the request says.
    pub(super) body: Vec<u8>,
}

impl Request {
    /// A header that is there once. Of one that is there twice it is open which one counts, so that none does.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(each, _)| each.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// Whether a header is there at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(each, _)| each.eq_ignore_ascii_case(name))
    }

    /// Whether the connection is to become a websocket.
    pub(super) fn is_upgrade(&self) -> bool {
        self.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
    }
}

/// Reads a request. Nothing if the connection was closed before its first byte, as browsers do with spare ones.
pub(super) fn read(stream: &mut impl Read) -> Result<Option<Request>, Refusal> {
    let Some(Beginning { head, rest }) = beginning(stream)? else { return Ok(None) };
    let mut request = parse(&head)?;
    if request.has("transfer-encoding") {
        return Err(Refusal::Malformed("a body has to have a Content-Length"));
    }
    let length = match request.has("content-length") {
        true => request.header("content-length").and_then(|text| text.parse::<usize>().ok()),
        false => Some(0),
    };
    let length = length.filter(|length| *length <= LONGEST_BODY).ok_or(Refusal::Malformed("its body is too long"))?;
    request.body = rest;
    let missing = length.saturating_sub(request.body.len());
    let more = u64::try_from(missing).unwrap_or_default();
    let count = stream
        .take(more)
        .read_to_end(&mut request.body)
        .map_err(|_| Refusal::Malformed("its body did not come in time"))?;
    if count < missing {
        return Err(Refusal::Malformed("its body is cut off"));
    }
    request.body.truncate(length);
    Ok(Some(request))
}

/// How a message begins.
pub(super) struct Beginning {
    /// To the empty line, with it.
    pub(super) head: Vec<u8>,
    /// What came behind it.
    pub(super) rest: Vec<u8>,
}

/// Reads to the end of a head. Nothing if the connection was closed before its first byte.
pub(super) fn beginning(stream: &mut impl Read) -> Result<Option<Beginning>, Refusal> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(Some(Beginning { head: bytes, rest }));
        }
        if bytes.len() > LONGEST_HEAD {
            return Err(Refusal::Malformed("its head is too long"));
        }
        match stream.read(&mut buffer) {
            Ok(0) if bytes.is_empty() => return Ok(None),
            Ok(0) => return Err(Refusal::Malformed("its head is cut off")),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if bytes.is_empty() => return Ok(None),
            Err(_) => return Err(Refusal::Malformed("its head did not come in time")),
        }
    }
}

fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let mut lines = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut lines);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => return Err(Refusal::Malformed("its head is not one of HTTP/1.1")),
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let headers = parsed.headers.iter().map(|each| Some((each.name.to_owned(), text(each.value)?)));
    Ok(Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        headers: headers.collect::<Option<_>>().ok_or(Refusal::Malformed("a header is no text"))?,
        body: Vec::new(),
    })
}

/// An answer of this server itself.
#[derive(Clone, Debug)]
pub(super) struct Answer<'a> {
    /// Of HTTP.
    pub(super) code: u16,
    /// Of the body.
    pub(super) media_type: &'a str,
    /// The whole body.
    pub(super) body: &'a [u8],
}

/// The headers that every answer has.
pub(super) fn common_headers(port: u16) -> String {
    let common = headers::common(&format!("ws://127.0.0.1:{port}"));
    let lines: String = common.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{lines}Connection: close\r\n")
}

/// Writes an answer.
pub(super) fn write(stream: &mut impl Write, answer: &Answer<'_>, port: u16) -> io::Result<()> {
    let Answer { code, media_type, body } = answer;
    let head = format!(
        "HTTP/1.1 {code} {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{}\r\n",
        phrase(*code),
        body.len(),
        common_headers(port)
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

/// For people who read the wire; browsers do not.
pub(super) fn phrase(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Option<Request>, Refusal> {
        read(&mut io::Cursor::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_request_is_read_with_its_body() {
        let request =
            read_text("POST /session HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nkeymore").unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/session"));
        assert_eq!((request.header("host"), request.body.as_slice()), (Some("a"), &b"key"[..]));
        assert_eq!(read_text("").unwrap(), None);
    }

    #[test]
    fn the_page_connects_to_this_server_alone() {
        let policy = common_headers(4000);
        assert!(policy.contains("connect-src 'self' ws://127.0.0.1:4000;"), "{policy}");
        assert!(!policy.contains("localhost"), "{policy}");
    }

    #[test]
    fn a_header_that_is_there_twice_counts_for_nothing() {
        let request = read_text("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n").unwrap().unwrap();
        assert_eq!(request.header("Host"), None);
        assert!(request.has("HOST"));
    }

    #[test]
    fn what_is_no_request_of_the_page_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(LONGEST_HEAD + 4096));
        let table = [
            "GET / HTTP/1.1\r\n",
            "nonsense\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
            long.as_str(),
        ];
        for text in table {
            assert!(matches!(read_text(text), Err(Refusal::Malformed(_))), "{}", &text[..text.len().min(60)]);
        }
    }
}
