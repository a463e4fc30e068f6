//! Ports of a guest: real websockets and real sockets, a guest that is played.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Api, FEW_STREAMS, Most, Peer, api, api_with, vm};

const NAMESPACE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/ns";
const POD: &str = "6f1d9f7c-0b0e-4d0c-8a3f-0d6f2b7f1a11";
/// No test waits longer for something that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

fn running() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "ns", "uid": "12345678-9", "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "u"}]},
        "spec": {"domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}]},
        // What the guest claims of itself is never dialled.
        "status": {"phase": "Running", "activePods": {POD: "node-1"}, "interfaces": [{"ipAddress": "192.0.2.1"}]},
    })
}

fn pod() -> Value {
    json!({"metadata": {"name": "virt-launcher-vm-12345678", "uid": POD}, "spec": {"containers": []},
        "status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}})
}

/// The API with a running guest, whose ports are those of this host.
pub(super) fn with_guest() -> Api {
    with_guest_and(FEW_STREAMS)
}

/// The same with at most so many streams.
pub(super) fn with_guest_and(streams: Most) -> Api {
    let api = api_with(true, vm("Always"), Some(running()), streams);
    *api.pod.lock().unwrap() = Some(pod());
    api
}

type Client = WebSocketStream<TcpStream>;

/// A connection to the API, as an API server has one.
async fn connection(api: &Api) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Peer { common_names: vec!["front-proxy-client".to_owned()] };
    let routes = api.routes.clone().layer(axum::Extension(peer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    TcpStream::connect(address).await.unwrap()
}

/// A websocket at a path of the namespace.
async fn open(api: &Api, path: &str) -> Client {
    let mut request = format!("ws://api{NAMESPACE}/{path}").into_client_request().unwrap();
    request.headers_mut().insert("X-Remote-User", "ada".parse().unwrap());
    request.headers_mut().insert("Sec-WebSocket-Protocol", "plain.kubevirt.io".parse().unwrap());
    let (socket, answer) = tokio_tungstenite::client_async(request, connection(api).await).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
    socket
}

/// A path of the namespace.
fn at(path: &str) -> String {
    format!("{NAMESPACE}/{path}")
}

/// The next message.
async fn next(client: &mut Client) -> Message {
    tokio::time::timeout(PATIENCE, client.next()).await.expect("a message comes").unwrap().unwrap()
}

/// The answer to the request for a websocket: its code, and the message of a `Status`.
pub(super) async fn answered(api: &Api, path: &str) -> (u16, String) {
    let mut stream = BufReader::new(connection(api).await);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Remote-User: ada\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.get_mut().write_all(request.as_bytes()).await.unwrap();
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, stream.read_line(&mut line)).await.unwrap().unwrap();
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        head.push(line);
    }
    let code = head[0].split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

/// A guest's server, and the path of its port.
async fn server(resource: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("{resource}/vm/portforward/{port}"))
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_guests_end_closes_the_stream() {
    for (resource, protocol) in [("virtualmachineinstances", ""), ("virtualmachines", "/tcp")] {
        let (listener, path) = server(resource).await;
        let api = with_guest();
        let mut client = open(&api, &format!("{path}{protocol}")).await;
        let (mut guest, _) = listener.accept().await.unwrap();
        client.send(Message::binary("GET /\r\n")).await.unwrap();
        let mut asked = [0; 7];
        guest.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"GET /\r\n");
        guest.write_all(b"hello").await.unwrap();
        drop(guest);
        assert_eq!(next(&mut client).await, Message::binary("hello"));
        let Message::Close(Some(frame)) = next(&mut client).await else { panic!("no close frame") };
        assert_eq!(frame.code, CloseCode::Normal);
    }
}

#[tokio::test]
async fn what_a_client_sent_before_it_closed_reaches_the_guest() {
    let (listener, path) = server("virtualmachineinstances").await;
    let mut client = open(&with_guest(), &path).await;
    let (mut guest, _) = listener.accept().await.unwrap();
    // More than the guest's kernel takes: the rest waits on this side.
    let sent: Vec<u8> = (0..=255).cycle().take(512 * 1024).collect();
    for part in sent.chunks(32 * 1024) {
        client.send(Message::binary(part.to_vec())).await.unwrap();
    }
    client.close(None).await.unwrap();
    assert!(matches!(next(&mut client).await, Message::Close(_)), "the close frame is answered");
    // What nobody reads any more: a connection that is just closed would be reset by it, and what waits would be lost.
    for _ in 0..50 {
        guest.write_all(b"more").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut received = Vec::new();
    tokio::time::timeout(PATIENCE, guest.read_to_end(&mut received)).await.unwrap().unwrap();
    assert!(received == sent, "{} of {} bytes arrived", received.len(), sent.len());
}

#[tokio::test]
async fn a_guest_that_does_not_read_holds_back_its_client() {
    let (listener, path) = server("virtualmachineinstances").await;
    let mut client = open(&with_guest(), &path).await;
    let (mut guest, _) = listener.accept().await.unwrap();
    let mut sent = 0_usize;
    let flood = async {
        while client.send(Message::binary(vec![1; 32 * 1024])).await.is_ok() {
            sent += 32 * 1024;
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(500), flood).await.is_err(), "all was taken: {sent}");
    let mut received = vec![0; sent];
    tokio::time::timeout(PATIENCE, guest.read_exact(&mut received)).await.unwrap().unwrap();
    assert!(received.iter().all(|byte| *byte == 1), "it is what was sent");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_its_guest() {
    let (listener, path) = server("virtualmachineinstances").await;
    let mut client = open(&with_guest(), &path).await;
    let (mut guest, _) = listener.accept().await.unwrap();
    let mut sent = 0_usize;
    let flood = async {
        while guest.write_all(&[2; 32 * 1024]).await.is_ok() {
            sent += 32 * 1024;
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(500), flood).await.is_err(), "all was taken: {sent}");
    let mut received = 0;
    while received < sent {
        let Message::Binary(bytes) = next(&mut client).await else { continue };
        received += bytes.len();
    }
}

#[tokio::test]
async fn a_message_is_a_datagram() {
    let guest = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let mut client = open(&with_guest(), &format!("virtualmachineinstances/vm/portforward/{port}/udp")).await;
    for message in ["one", "", "three"] {
        client.send(Message::binary(message)).await.unwrap();
    }
    let mut buffer = [0; 100];
    let mut from = None;
    for message in ["one", "", "three"] {
        let (count, sender) = tokio::time::timeout(PATIENCE, guest.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..count], message.as_bytes());
        from = Some(sender);
    }
    for answer in [&b"four"[..], b"", b"six"] {
        guest.send_to(answer, from.unwrap()).await.unwrap();
        assert_eq!(next(&mut client).await, Message::binary(answer.to_vec()));
    }
}

/// The API with a running guest whose pod has an address of IPv6 alone.
fn with_guest_of_ipv6() -> Api {
    let api = with_guest();
    let mut pod = pod();
    pod["status"] = json!({"podIP": "fd00::7", "podIPs": [{"ip": "fd00::7"}]});
    *api.pod.lock().unwrap() = Some(pod);
    api
}

#[tokio::test]
async fn a_guest_is_dialled_at_its_address_of_ipv6() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: this host has no IPv6");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let mut client = open(&with_guest_of_ipv6(), &format!("virtualmachineinstances/vm/portforward/{port}")).await;
    let (mut guest, _) = listener.accept().await.unwrap();
    client.send(Message::binary("anyone?")).await.unwrap();
    let mut asked = [0; 7];
    guest.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"anyone?");
    guest.write_all(b"here").await.unwrap();
    assert_eq!(next(&mut client).await, Message::binary("here"));
}

#[tokio::test]
async fn datagrams_go_both_ways_by_ipv6() {
    let Ok(guest) = UdpSocket::bind("[::1]:0").await else {
        eprintln!("skipped: this host has no IPv6");
        return;
    };
    let port = guest.local_addr().unwrap().port();
    let path = format!("virtualmachineinstances/vm/portforward/{port}/udp");
    let mut client = open(&with_guest_of_ipv6(), &path).await;
    client.send(Message::binary("anyone?")).await.unwrap();
    let mut buffer = [0; 100];
    let (count, sender) = tokio::time::timeout(PATIENCE, guest.recv_from(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer[..count], b"anyone?");
    guest.send_to(b"here", sender).await.unwrap();
    assert_eq!(next(&mut client).await, Message::binary("here"));
}

#[tokio::test]
async fn a_port_for_datagrams_that_nobody_listens_at_ends_the_stream() {
    let port = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut client = open(&with_guest(), &format!("virtualmachineinstances/vm/portforward/{port}/udp")).await;
    client.send(Message::binary("anyone?")).await.unwrap();
    let Message::Close(Some(frame)) = next(&mut client).await else { panic!("no close frame") };
    assert_eq!(frame.code, CloseCode::Error);
    assert!(frame.reason.contains("refused"), "{frame:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_is_kept_by_pings_and_by_pongs_that_nobody_asked_for() {
    let (listener, path) = server("virtualmachineinstances").await;
    let mut client = open(&with_guest(), &path).await;
    let (_guest, _) = listener.accept().await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(Vec::new().into()));
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Ping(Vec::new().into()));
    assert!(begun.elapsed() < Duration::from_secs(60), "clients of KubeVirt have given up");
}

#[tokio::test]
async fn a_ping_of_the_client_is_answered() {
    let (listener, path) = server("virtualmachineinstances").await;
    let mut client = open(&with_guest(), &path).await;
    let (_guest, _) = listener.accept().await.unwrap();
    client.send(Message::Ping("keep alive".into())).await.unwrap();
    assert_eq!(next(&mut client).await, Message::Pong("keep alive".into()));
}

#[tokio::test]
async fn a_port_that_is_not_reached_is_a_status() {
    let (listener, path) = server("virtualmachineinstances").await;
    drop(listener);
    let (code, message) = answered(&with_guest(), &at(&path)).await;
    assert!(code == 500 && message.contains("dialing VM") && message.contains("refused"), "{code} {message}");
}

/// What to change of the instance and of the pod.
type Change = fn(&mut Value, &mut Value);

#[tokio::test]
async fn nothing_is_dialled_for_what_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = format!("virtualmachineinstances/vm/portforward/{port}");
    let paused: Change = |vmi, _| vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    let stopped: Change = |vmi, _| vmi["status"]["phase"] = json!("Scheduled");
    let shares_its_node: Change = |_, pod| pod["spec"]["hostNetwork"] = json!(true);
    let of_another: Change = |_, pod| pod["metadata"]["uid"] = json!("another");
    let loopback: Change = |_, pod| pod["status"] = json!({"podIP": "127.0.0.1"});
    let nothing: Change = |_, _| {};
    let table = [
        (own.as_str(), paused, 409, "VMI is paused"),
        (&own, stopped, 400, "VMI is not running"),
        (&own, shares_its_node, 400, "shares the network of its node"),
        (&own, of_another, 500, "not the one"),
        (&own, loopback, 400, "no network interfaces are present"),
        ("virtualmachineinstances/vm/portforward/0", nothing, 400, "no port"),
        ("virtualmachines/vm/portforward/http", nothing, 400, "no port"),
        ("virtualmachineinstances/vm/portforward/22/sctp", nothing, 400, "write tcp or udp"),
    ];
    for (path, change, expected, text) in table {
        let (mut vmi, mut pod) = (running(), pod());
        change(&mut vmi, &mut pod);
        let api = api(true, vm("Always"), Some(vmi));
        *api.pod.lock().unwrap() = Some(pod);
        let (code, message) = answered(&api, &at(path)).await;
        assert!(code == expected && message.contains(text), "{path}: {code} {message}");
    }
    let dialled = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(dialled.is_err(), "a connection was made for a request that was refused");
}

#[tokio::test]
async fn a_machine_that_is_not_started_is_a_conflict() {
    let api = api(true, vm("Always"), None);
    let (code, message) = answered(&api, &at("virtualmachines/vm/portforward/22")).await;
    assert!(code == 409 && message.contains("VMI is not started"), "{code} {message}");
    let (code, _) = answered(&api, &at("virtualmachineinstances/vm/portforward/22")).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn a_user_has_so_many_streams() {
    let (listener, path) = server("virtualmachineinstances").await;
    let api = with_guest();
    let first = open(&api, &path).await;
    let _second = open(&api, &path).await;
    assert_eq!(answered(&api, &at(&path)).await.0, 429);
    drop(first);
    let (guest, _) = listener.accept().await.unwrap();
    drop(guest);
    let freed = async {
        while answered(&api, &at(&path)).await.0 == 429 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the end of a stream gives its turn back");
}
