//! Browsers that are played, and an API server that is played, both by TLS.

use std::sync::Mutex;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::tls::testing::{both, pair};

const LIST: &str = "/apis/kubevirt.io/v1/virtualmachines";
const CONSOLE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachineinstances/web/console";
const START: &str = "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachines/web/start";
const KEY: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A dashboard before an API server that answers everything in one way.
struct World {
    port: u16,
    browser: Arc<ClientConfig>,
    /// The heads that the API server got.
    asked: Arc<Mutex<Vec<String>>>,
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(read).unwrap()
}

impl World {
    async fn answering(answer: &'static str) -> Self {
        Self::with_places(answer, Places::new(MOST_KNOWN, MOST_STRANGERS)).await
    }

    async fn with_places(answer: &'static str, places: Places) -> Self {
        let (of_server, of_client) = both(&pair());
        let (of_server, of_client) = (Arc::new(of_server), Arc::new(of_client));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api_port = listener.local_addr().unwrap().port();
        let (acceptor, heads) = (TlsAcceptor::from(Arc::clone(&of_server)), Arc::clone(&asked));
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let head = head(&mut stream).await;
                heads.lock().unwrap().push(head);
                stream.write_all(answer.as_bytes()).await.unwrap();
                // A console echoes; of any other answer the connection ends.
                let mut typed = [0; 64];
                while answer.starts_with("HTTP/1.1 101") {
                    match stream.read(&mut typed).await {
                        Ok(count) if count > 0 => stream.write_all(&typed[..count]).await.unwrap(),
                        Ok(_) | Err(_) => break,
                    }
                }
                let _ = stream.shutdown().await;
            }
        }));
        let api = ApiServer::new("localhost", api_port, watch::channel(Arc::clone(&of_client)).1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut server = Server::new(Hosts::new("garboard-dashboard", "garboard", &[]), api, "garboard");
        Arc::get_mut(&mut server).unwrap().places = places;
        drop(tokio::spawn(server.serve(listener, watch::channel(of_server).1)));
        Self { port, browser: of_client, asked }
    }

    async fn connected(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.browser)).connect(name, stream).await.unwrap()
    }

    /// The whole answer to a request with these lines.
    async fn ask(&self, request: &str, lines: &str) -> String {
        self.ask_with(request, lines, "").await
    }

    async fn ask_with(&self, request: &str, lines: &str, body: &str) -> String {
        let mut stream = self.connected().await;
        stream.write_all(self.text(request, &format!("{lines}Connection: close\r\n"), body).as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is cut has no end of TLS.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A websocket that is asked for: its connection, and the head of the answer.
    async fn open(&self, path: &str) -> (TlsStream<TcpStream>, String) {
        let mut stream = self.connected().await;
        let protocols = "Sec-WebSocket-Protocol: plain.kubevirt.io, base64url.bearer.authorization.k8s.io.YWJj\r\n";
        let text = self.text(&format!("GET {path}"), &format!("{OWN}{KEY}{protocols}"), "");
        stream.write_all(text.as_bytes()).await.unwrap();
        let answer = head(&mut stream).await.to_lowercase();
        (stream, answer)
    }

    fn text(&self, request: &str, lines: &str, body: &str) -> String {
        format!("{request} HTTP/1.1\r\n{lines}\r\n{body}").replace("PORT", &self.port.to_string())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

const OWN: &str = "Host: localhost:PORT\r\nOrigin: https://localhost:PORT\r\n";
const FULL: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\n\
                    Access-Control-Allow-Origin: *\r\n\r\n{}";

#[tokio::test]
async fn a_request_goes_on_with_its_token_alone_and_its_answer_has_headers_of_this_server() {
    let world = World::answering(FULL).await;
    let lines = format!(
        "{OWN}Authorization: Bearer abc\r\nImpersonate-User: root\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\
         Cookie: a=b\r\n"
    );
    let answer = world.ask(&format!("GET {LIST}?limit=500"), &lines).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\ncontent-security-policy: "), "{answer}");
    for header in ["set-cookie", "access-control"] {
        assert!(!answer.to_lowercase().contains(header), "{answer}");
    }
    let asked = world.asked().concat().to_lowercase();
    assert!(asked.starts_with(&format!("get {}?limit=500 http/1.1\r\n", LIST.to_lowercase())), "{asked}");
    assert!(asked.contains("authorization: bearer abc\r\n"), "{asked}");
    for header in ["impersonate", "x-remote", "cookie", "origin", "localhost"] {
        assert!(!asked.contains(header), "{header}: {asked}");
    }
}

#[tokio::test]
async fn without_a_token_or_from_another_page_nothing_is_handed_on() {
    let world = World::answering(FULL).await;
    let token = "Authorization: Bearer abc\r\n";
    let of = |host: &str, origin: &str| format!("Host: {host}\r\nOrigin: {origin}\r\n{token}");
    let table = [
        (401, OWN.to_owned()),
        (401, format!("{OWN}Authorization: Basic YWRhOng=\r\n")),
        (401, format!("{OWN}Cookie: token=abc\r\n")),
        (403, of("evil.example", "https://evil.example")),
        (403, of("localhost:PORT", "https://evil.example")),
        (403, of("localhost:PORT", "http://localhost:PORT")),
        (403, of("localhost:PORT", "null")),
        (403, format!("Host: localhost:PORT\r\n{token}")),
        (403, format!("{OWN}Sec-Fetch-Site: cross-site\r\n{token}")),
    ];
    for (code, lines) in table {
        let answer = world.ask(&format!("PUT {START}"), &format!("{lines}Content-Length: 0\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{lines}: {answer}");
        assert!(answer.contains("\"kind\":\"Status\""), "{answer}");
    }
    assert_eq!(world.asked(), [] as [String; 0]);
}

#[tokio::test]
async fn other_paths_and_longer_bodies_are_not_handed_on() {
    let world = World::answering(FULL).await;
    let lines = format!("{OWN}Authorization: Bearer abc\r\n");
    let table = [
        "GET /api/v1/secrets",
        "GET /api/v1/namespaces/tenant/secrets",
        "GET /api/v1/namespaces/../secrets",
        "GET /api/v1/namespaces/tenant/pods",
        "GET http://evil.example/api/v1/namespaces",
        "DELETE /apis/kubevirt.io/v1/virtualmachines",
        "POST /session",
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
        "CONNECT 127.0.0.1:22",
    ];
    for request in table {
        let answer = world.ask(request, &lines).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{request}: {answer}");
    }
    let length = format!("{lines}Content-Length: 5000\r\n");
    let long = world.ask_with(&format!("PUT {START}"), &length, &"x".repeat(5000)).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 400 "), "{long}");
    assert_eq!(world.asked(), [] as [String; 0]);
}

#[tokio::test]
async fn a_redirection_is_not_handed_back() {
    let world =
        World::answering("HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n").await;
    let answer = world.ask(&format!("GET {LIST}"), &format!("{OWN}Authorization: Bearer abc\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && !answer.contains("evil.example"), "{answer}");
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                         Sec-WebSocket-Protocol: plain.kubevirt.io\r\n\r\nhello";

/// Connections that say nothing.
async fn silent(world: &World, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(TcpStream::connect(("127.0.0.1", world.port)).await.unwrap());
    }
    all
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let world = World::with_places(FULL, Places::new(2, 2)).await;
    let mut silent = silent(&world, 8).await;
    assert!(world.ask("GET /healthz", "Host: 10.0.0.1:8443\r\n").await.ends_with("ok"));
    let answer = world.ask(&format!("GET {LIST}"), &format!("{OWN}Authorization: Bearer abc\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0, "it had to give its place away");
}

#[tokio::test]
async fn a_console_of_who_is_known_goes_on_while_strangers_connect() {
    let world = World::with_places(SWITCHING, Places::new(2, 2)).await;
    let (mut stream, answer) = world.open(CONSOLE).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    let mut shown = [0; 5];
    stream.read_exact(&mut shown).await.unwrap();
    let mut silent = silent(&world, 8).await;
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0, "it had to give its place away");
    stream.write_all(b"typed").await.unwrap();
    stream.read_exact(&mut shown).await.unwrap();
    assert_eq!(&shown, b"typed");
}

#[tokio::test]
async fn a_stream_goes_both_ways_and_its_token_is_no_protocol_of_it() {
    let world = World::answering(SWITCHING).await;
    let (mut stream, answer) = world.open(CONSOLE).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-protocol: plain.kubevirt.io\r\n"), "{answer}");
    let mut shown = [0; 5];
    stream.read_exact(&mut shown).await.unwrap();
    assert_eq!(&shown, b"hello");
    stream.write_all(b"typed").await.unwrap();
    stream.read_exact(&mut shown).await.unwrap();
    assert_eq!(&shown, b"typed");
    let asked = world.asked().concat().to_lowercase();
    assert!(asked.contains("authorization: bearer abc\r\n") && !asked.contains("base64url"), "{asked}");
}

#[tokio::test]
async fn a_refusal_of_a_stream_is_sent_in_it_and_to_this_page_alone() {
    let world =
        World::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 22\r\n\r\n{\"message\":\"not bob\"} ").await;
    let (mut stream, answer) = world.open(CONSOLE).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    let mut frames = Vec::new();
    let _ = stream.read_to_end(&mut frames).await;
    assert_eq!(frames, garboard_kubectl::page::socket_frames::refusal(403, "{\"message\":\"not bob\"} "));
    let other = OWN.replace("https://localhost", "https://evil.example");
    let answer = world.ask(&format!("GET {CONSOLE}"), &format!("{other}{KEY}")).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("not bob"), "{answer}");
    assert_eq!(world.asked().len(), 1, "another page's was handed on");
}

#[tokio::test]
async fn files_need_no_token_and_the_document_says_that_users_sign_in() {
    let world = World::answering(FULL).await;
    let answer = world.ask("GET /", "Host: localhost:PORT\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(&format!("wss://localhost:{}", world.port)), "{answer}");
    assert_eq!((answer.matches(BY_TOKEN).count(), answer.matches(BY_KEY).count()), (1, 0));
    assert!(world.ask("GET /page/api.js", "Host: localhost:PORT\r\n").await.starts_with("HTTP/1.1 200 "));
    assert!(world.ask("GET /page/nothing.js", "Host: localhost:PORT\r\n").await.starts_with("HTTP/1.1 404 "));
    assert!(world.ask("GET /", "Host: evil.example\r\n").await.starts_with("HTTP/1.1 403 "));
    assert!(world.ask("GET /healthz", "Host: 10.0.0.1:8443\r\n").await.ends_with("ok"));
}
