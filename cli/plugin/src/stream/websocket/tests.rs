//! Both ends of a stream, with a controller that a thread plays.

use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use tungstenite::handshake::server;
use tungstenite::protocol::CloseFrame;

use super::*;
use crate::exit::REFUSED;
use crate::subresource::tests::of_instance;

type Server = WebSocket<UnixStream>;

/// A controller that accepts what KubeVirt's clients send, and then does this.
fn controller<T: Send + 'static>(act: impl FnOnce(Server) -> T + Send + 'static) -> (Socket, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let played = std::thread::spawn(move || {
        #[expect(clippy::result_large_err, reason = "the type of the callback is tungstenite's")]
        let accept = |request: &server::Request, mut response: server::Response| {
            assert_eq!((request.uri().path(), request.uri().query()), ("/path", Some("preserveSession=true")));
            assert_eq!((&request.headers()["host"], request.method().as_str()), (&"localhost".parse().unwrap(), "GET"));
            let asked = request.headers()["sec-websocket-protocol"].clone();
            response.headers_mut().insert("Sec-WebSocket-Protocol", asked);
            Ok(response)
        };
        act(tungstenite::accept_hdr(theirs, accept).unwrap())
    });
    (Socket::Unix(ours), played)
}

fn opened(socket: Socket) -> (Reading, Writing, Arc<Ending>) {
    let opened = open(socket, "/path?preserveSession=true", &of_instance("console"), None);
    opened.unwrap_or_else(|failure| panic!("{failure}"))
}

fn close(server: &mut Server, code: u16, reason: &'static str) {
    server.close(Some(CloseFrame { code: code.into(), reason: reason.into() })).unwrap();
    while server.read().is_ok() {}
}

#[test]
fn bytes_go_both_ways_and_a_close_frame_says_how_it_ended() {
    let (socket, played) = controller(|mut server| {
        server.send(Message::binary("log")).unwrap();
        server.send(Message::Ping("x".into())).unwrap();
        server.send(Message::binary("in: ")).unwrap();
        let received = [server.read().unwrap(), server.read().unwrap()];
        close(&mut server, 1001, "another user has connected");
        received
    });
    let (mut reading, mut writing, ending) = opened(socket);
    let mut shown = [0; 7];
    reading.read_exact(&mut shown).unwrap();
    writing.write_all(b"root\r").unwrap();
    let mut rest = Vec::new();
    reading.read_to_end(&mut rest).unwrap();
    assert_eq!((&shown, rest.as_slice()), (b"login: ", &[][..]));
    assert_eq!(ending.now(), Some(End::Closed { code: 1001, reason: "another user has connected".into() }));
    assert_eq!(played.join().unwrap(), [Message::Pong("x".into()), Message::binary("root\r")]);
}

#[test]
fn what_was_written_arrives_before_the_connection_ends() {
    let (socket, played) = controller(|mut server| {
        let mut received = 0;
        loop {
            match server.read() {
                Ok(Message::Binary(bytes)) => received += bytes.len(),
                Ok(Message::Close(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(Error::ConnectionClosed) => return received,
                Err(error) => panic!("{error} after {received} bytes"),
            }
        }
    });
    let (mut reading, mut writing, _) = opened(socket);
    let reader = std::thread::spawn(move || reading.read_to_end(&mut Vec::new()));
    writing.write_all(&[b'x'; 200_000]).unwrap();
    drop(writing);
    assert_eq!(reader.join().unwrap().unwrap(), 0);
    assert_eq!(played.join().unwrap(), 200_000);
}

#[test]
fn a_connection_that_breaks_is_no_end_of_the_machine() {
    let (socket, played) = controller(drop);
    let (mut reading, _writing, ending) = opened(socket);
    assert_eq!(reading.read(&mut [0; 8]).unwrap(), 0);
    played.join().unwrap();
    assert_eq!(ending.now(), Some(End::Cut("it ended without a close frame".into())));
}

#[test]
fn a_console_reads_how_far_it_is_and_what_is_missing() {
    let progress = Arc::new(Progress::default());
    let connection = |text: &'static str| {
        let (socket, played) = controller(move |mut server| {
            server.send(Message::text(text)).unwrap();
            server.send(Message::binary("login: ")).unwrap();
            close(&mut server, 1000, "");
        });
        let path = "/path?preserveSession=true";
        let (mut reading, _writing, _) = open(socket, path, &of_instance("console"), Some(Arc::clone(&progress)))
            .unwrap_or_else(|failure| panic!("{failure}"));
        let mut shown = String::new();
        reading.read_to_string(&mut shown).unwrap();
        played.join().unwrap();
        (shown, progress.parameter())
    };
    let (first, place) = connection(r#"{"position":"5e1f.1000","resumed":false,"missed":0}"#);
    assert_eq!((first.as_str(), place.as_str()), ("login: ", "position=5e1f.1007"));
    let (second, place) = connection(r#"{"position":"5e1f.1010","resumed":true,"missed":3}"#);
    assert_eq!(second, "\r\n[3 bytes are missing here]\r\nlogin: ");
    assert_eq!(place, "position=5e1f.1017");
}

/// A server that answers so to whatever it is asked.
fn answers(text: &'static str) -> Failure {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let played = std::thread::spawn(move || {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            theirs.read_exact(&mut byte).unwrap();
            asked.extend(byte);
        }
        // As it may come: in two parts.
        let (first, second) = text.split_at(text.len() - 5);
        // Who has seen enough does not read the second one.
        let _ = theirs.write_all(first.as_bytes());
        std::thread::yield_now();
        let _ = theirs.write_all(second.as_bytes());
        theirs
    });
    let Err(failure) = open(Socket::Unix(ours), "/path", &of_instance("console"), None) else { panic!("{text}") };
    played.join().unwrap();
    failure
}

#[test]
fn a_status_instead_of_a_websocket_is_a_sentence() {
    let failure = answers(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 70\r\n\r\n{\"kind\":\"Status\",\"reason\":\"BadRequest\",\"message\":\"VMI is not running\"}",
    );
    assert_eq!((failure.code(), failure.to_string().as_str()), (REFUSED, "tenant/hello: VMI is not running"));
    let failure =
        answers("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n404 page not found\n\r\n0\r\n\r\n");
    assert!(
        failure.to_string().starts_with("this cluster does not serve virtualmachineinstances/console"),
        "{failure}"
    );
    let failure = answers("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    assert!(failure.to_string().starts_with("the connection to the machine was lost: tenant/hello: "), "{failure}");
}
