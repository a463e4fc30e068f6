//! Parts that fail while a stream is open: what its client sees, and what the machine's side sees. The connection of agent and
//! controller and the websocket are real; the supervisor is played. The rows are those of `docs/failures.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use futures::{SinkExt, StreamExt};
use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::{session, wire};
use garboard_tunnel::NOTICED_WITHIN;
use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use garboard_tunnel::controller::Nodes;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::leaving::Replica;
use super::instance::{BASE, NODE, running};
use super::played::{self, until};
use super::{Peer, api, vm};
use crate::shutdown::Stage;
use crate::webhook::testing::PATIENCE;

/// A machine with a console that prints `login: `, and then what is typed. One that floods prints for ever.
#[derive(Clone, Default)]
struct Machine {
    floods: bool,
    /// Sessions that are open.
    open: Arc<AtomicUsize>,
    /// Bytes that were printed.
    printed: Arc<AtomicUsize>,
}

impl Supervisors for Machine {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        let machine = self.clone();
        played::open(pod_uid, |socket| async move {
            machine.open.fetch_add(1, Ordering::SeqCst);
            let _ = machine.serve(socket).await;
            machine.open.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

impl Machine {
    async fn serve(&self, stream: UnixStream) -> std::io::Result<()> {
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).await?;
        let asked: Asked = wire::decode(&line).unwrap();
        assert!(matches!(asked.request, ControlRequest::Console { .. }), "{asked:?}");
        to.write_all(&wire::encode(&ControlReply::Session).unwrap()).await?;
        self.print(&mut to, b"login: ").await?;
        let mut typed = vec![0; 1024];
        loop {
            if self.floods {
                self.print(&mut to, &[b'x'; 4096]).await?;
                continue;
            }
            match from.read(&mut typed).await? {
                0 => return Ok(()),
                count => self.print(&mut to, &typed[..count]).await?,
            }
        }
    }

    async fn print(&self, to: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) -> std::io::Result<()> {
        let mut parts = Vec::new();
        session::encode(bytes, &mut parts);
        to.write_all(&parts).await?;
        self.printed.fetch_add(bytes.len(), Ordering::SeqCst);
        Ok(())
    }

    async fn until_open(&self, sessions: usize) {
        until(|| self.open.load(Ordering::SeqCst) == sessions).await;
    }
}

/// How the connection between agent and controller fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Both ends read its end.
    Closed,
    /// Nothing arrives any more.
    Silent,
}

/// An agent that is connected to a controller over a way that fails on request.
async fn connected(nodes: &Nodes, machine: &Machine) -> oneshot::Sender<Fault> {
    let ((above, mut upper), (below, mut lower)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let (fail, failing) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut upper, &mut lower) => {}
            fault = failing => match fault {
                Ok(Fault::Closed) | Err(_) => {}
                Ok(Fault::Silent) => std::future::pending().await,
            }
        }
    });
    tokio::spawn(agent::serve(below, Arc::new(machine.clone())));
    let nodes_of_it = nodes.clone();
    tokio::spawn(async move { nodes_of_it.serve(NODE, above).await });
    until(|| nodes.has(NODE)).await;
    fail
}

/// A controller that listens for API servers.
struct Controller {
    routes: Router,
    nodes: Nodes,
    stage: watch::Sender<Stage>,
    replica: Replica,
}

impl Controller {
    fn new() -> Self {
        let api = api(true, vm("Always"), Some(running()));
        let peer = Peer { common_names: vec!["front-proxy-client".to_owned()] };
        let routes = api.routes.layer(axum::Extension(peer));
        Self { routes, nodes: api.nodes, stage: api.stage, replica: api.replica }
    }

    async fn console(&self) -> WebSocketStream<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = self.routes.clone();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        open(address).await
    }
}

/// A client whose console has begun.
async fn open(address: std::net::SocketAddr) -> WebSocketStream<TcpStream> {
    let mut request = format!("ws://{address}{BASE}/console").into_client_request().unwrap();
    request.headers_mut().insert("X-Remote-User", "ada".parse().unwrap());
    request.headers_mut().insert("Sec-WebSocket-Protocol", "plain.kubevirt.io".parse().unwrap());
    let connection = TcpStream::connect(address).await.unwrap();
    let (mut client, _) = tokio_tungstenite::client_async(request, connection).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::binary("login: "));
    client
}

/// The close frame, or how the connection ended without one.
async fn ended(client: &mut WebSocketStream<TcpStream>) -> Result<CloseFrame, String> {
    let ending = async {
        loop {
            match client.next().await {
                Some(Ok(Message::Close(frame))) => {
                    return frame.ok_or_else(|| "a close frame without a code".to_owned());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the end".to_owned()),
            }
        }
    };
    tokio::time::timeout(PATIENCE, ending).await.unwrap()
}

#[tokio::test]
async fn an_agent_that_dies_ends_its_streams_with_the_reason_and_the_next_one_is_used() {
    let (controller, machine) = (Controller::new(), Machine::default());
    let fail = connected(&controller.nodes, &machine).await;
    let mut client = controller.console().await;
    fail.send(Fault::Closed).unwrap();
    let frame = ended(&mut client).await.unwrap();
    assert!(frame.code == CloseCode::Error && !frame.reason.is_empty(), "{frame:?}");
    // The session of the machine is over, without a word of its guest.
    machine.until_open(0).await;
    let _next = connected(&controller.nodes, &machine).await;
    let mut client = controller.console().await;
    client.send(Message::binary("root\r")).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::binary("root\r"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_ends_its_streams_within_the_stated_time() {
    let (controller, machine) = (Controller::new(), Machine::default());
    let fail = connected(&controller.nodes, &machine).await;
    let mut client = controller.console().await;
    // A console without a byte stays.
    tokio::time::sleep(NOTICED_WITHIN * 2).await;
    machine.until_open(1).await;
    fail.send(Fault::Silent).unwrap();
    let begun = tokio::time::Instant::now();
    let frame = ended(&mut client).await.unwrap();
    assert!(frame.code == CloseCode::Error && !frame.reason.is_empty(), "{frame:?}");
    machine.until_open(0).await;
    assert!(begun.elapsed() <= NOTICED_WITHIN + Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!controller.nodes.has(NODE));
}

#[test]
fn a_controller_that_dies_leaves_no_session_in_the_machine() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (controller, others, machine) = (runtime(), runtime(), Machine::default());
    let (above, below) = std::os::unix::net::UnixStream::pair().unwrap();
    above.set_nonblocking(true).unwrap();
    below.set_nonblocking(true).unwrap();
    let served = machine.clone();
    others.spawn(async move { agent::serve(UnixStream::from_std(below).unwrap(), Arc::new(served)).await });
    let address = controller.block_on(async move {
        let Controller { routes, nodes, .. } = Controller::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let nodes_of_it = nodes.clone();
        tokio::spawn(async move { nodes_of_it.serve(NODE, UnixStream::from_std(above).unwrap()).await });
        until(|| nodes.has(NODE)).await;
        address
    });
    let mut client = others.block_on(open(address));
    others.block_on(machine.until_open(1));
    controller.shutdown_background();
    let end = others.block_on(ended(&mut client));
    assert!(end.is_err(), "a close frame of a controller that is gone: {end:?}");
    others.block_on(machine.until_open(0));
}

#[tokio::test]
async fn a_controller_that_is_replaced_closes_its_streams_and_says_to_connect_again() {
    let (controller, machine) = (Controller::new(), Machine::default());
    let _way = connected(&controller.nodes, &machine).await;
    let mut client = controller.console().await;
    controller.stage.send_replace(Stage::Leaving);
    client.send(Message::binary("ls\r")).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::binary("ls\r"), "it serves for a while");
    controller.stage.send_replace(Stage::Draining);
    let frame = ended(&mut client).await.unwrap();
    assert!(frame.code == CloseCode::Restart && frame.reason.contains("connect again"), "{frame:?}");
    // Its answer.
    while client.next().await.is_some() {}
    assert!(controller.replica.closed().await, "the process waits for it, and for nothing else");
    machine.until_open(0).await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_session_at_once() {
    let (controller, machine) = (Controller::new(), Machine::default());
    let _way = connected(&controller.nodes, &machine).await;
    for says_so in [true, false] {
        let mut client = controller.console().await;
        machine.until_open(1).await;
        if says_so {
            client.close(None).await.unwrap();
        }
        drop(client);
        machine.until_open(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_computer_is_gone_has_no_session_after_a_minute_and_one_that_is_idle_has() {
    let (controller, machine) = (Controller::new(), Machine::default());
    let _way = connected(&controller.nodes, &machine).await;
    // Nobody reads its socket any more, so that no ping is answered.
    let gone = controller.console().await;
    let mut idle = controller.console().await;
    tokio::spawn(async move { while idle.next().await.is_some() {} });
    machine.until_open(2).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    machine.until_open(2).await;
    // A minute, and what a client has to answer a close frame.
    tokio::time::sleep(Duration::from_secs(15)).await;
    machine.until_open(1).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    machine.until_open(1).await;
    drop(gone);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_its_own_machine_alone() {
    let (controller, flooding) = (Controller::new(), Machine { floods: true, ..Machine::default() });
    let _way = connected(&controller.nodes, &flooding).await;
    let mut slow = controller.console().await;
    // Until nothing is printed any more: everything on the way is full.
    let mut before = 0;
    let full = async {
        while flooding.printed.load(Ordering::SeqCst) != before {
            before = flooding.printed.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("the machine waits");
    // Sockets of the kernel have megabytes on the loopback; the tunnel has a window.
    assert!(before < 64 << 20, "{before} bytes are under way");
    let mut other = controller.console().await;
    assert!(matches!(other.next().await, Some(Ok(Message::Binary(_)))), "another stream goes on");
    // Nothing was lost, and it goes on.
    let mut read = 0;
    while read <= before + (1 << 20) {
        let message = tokio::time::timeout(PATIENCE, slow.next()).await.unwrap().unwrap().unwrap();
        if let Message::Binary(bytes) = message {
            assert!(bytes.iter().all(|byte| *byte == b'x'), "other bytes");
            read += bytes.len();
        }
    }
}
