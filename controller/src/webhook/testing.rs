//! A server with the bounds of the webhooks, without TLS, and clients of it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::bounds::{Limits, bounded};
use super::listener::{Listener, Places};

/// For what has to come: nothing here takes a second, beside other tests a few.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Serves `/read`, and `/hang`, which reports that it is called, at an address.
pub(super) fn serve_telling(limits: Limits, places: Places) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let (called, calls) = mpsc::unbounded_channel();
    let hang = async move || {
        let _ = called.send(());
        std::future::pending::<()>().await;
    };
    let routes = Router::new()
        .route("/read", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/hang", post(hang));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum_server::from_tcp(listener).unwrap().acceptor(Listener::new(places));
    tokio::spawn(server.serve(bounded(routes, limits).into_make_service()));
    (address, calls)
}

pub(super) fn serve(limits: Limits, places: Places) -> SocketAddr {
    serve_telling(limits, places).0
}

/// Sends the head of a request, and so many bytes of its body.
pub(crate) async fn post_on(stream: &mut TcpStream, path: &str, promised: usize, sent: usize) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {promised}\r\n\r\n");
    let request = [head.into_bytes(), vec![b' '; sent]].concat();
    // One that is refused may be closed before it was sent.
    let _ = stream.write_all(&request).await;
}

/// A connection that has sent the head of a request, and so many bytes of its body.
pub(crate) async fn begin(address: SocketAddr, path: &str, promised: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    post_on(&mut stream, path, promised, sent).await;
    stream
}

/// The status of the answer, which is read to its end; nothing if the connection ends without one.
pub(crate) async fn status(stream: &mut TcpStream) -> Option<u16> {
    tokio::time::timeout(PATIENCE, answer(stream)).await.unwrap()
}

/// How many bytes still come before the server closes the connection; nothing if it breaks.
pub(crate) async fn rest(stream: &mut TcpStream) -> Option<usize> {
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap().ok()
}

async fn answer(stream: &mut TcpStream) -> Option<u16> {
    let mut text = Vec::new();
    let (head, length) = loop {
        if let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            let lines = String::from_utf8_lossy(&text[..head]).to_lowercase();
            let length = lines.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            break (lines, head + 4 + length.unwrap_or_default());
        }
        text.push(stream.read_u8().await.ok()?);
    };
    stream.read_exact(&mut vec![0; length - text.len()]).await.ok()?;
    head.get(9..12)?.parse().ok()
}
