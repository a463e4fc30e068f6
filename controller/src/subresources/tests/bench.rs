//! What streams cost: bytes per second, time of a keystroke, memory of a controller with many of them. The servers are the real
//! ones with TLS over the loopback, the controller is a process of its own, and machines are played.
//!
//! `scripts/bench-streams` prints the figures. As a test it moves little, and what has a limit is held to it: the memory.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::{SinkExt, StreamExt};
use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::{session, wire};
use garboard_tunnel::agent::{self, Controller, Dialled, Opened, Refusal, Supervisors};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::super::limits::{self, STREAMS};
use super::super::peer::PeerAcceptor;
use super::forward::with_guest_and;
use super::instance::{BASE, NODE};
use crate::certificates::CertifiedKey;
use crate::certificates::serving::tls;
use crate::nodes::handshakes::{AT_ONCE, Handshakes};
use crate::nodes::server;
use crate::webhook::listener::{Listener, Places};

/// Which process of a test this is; none: the one that starts the others.
const ROLE: &str = "GARBOARD_BENCH_ROLE";
/// Where its processes find what they share.
const ROOM: &str = "GARBOARD_BENCH_ROOM";
/// How many MiB each throughput moves, for `scripts/bench-streams`.
const MIB: &str = "GARBOARD_BENCH_MIB";
/// What the controller says when it listens.
const LISTENS: &str = "the controller listens: ";
/// No test waits longer for something that has to come.
const PATIENCE: Duration = Duration::from_secs(120);
/// Streams and agents that are open at once.
const MANY: usize = 1000;
/// Streams of one connection; the tunnel has 256.
const OF_A_CONNECTION: usize = 200;
/// Users of one tenant, who have a stream each: as many as one namespace may have on one node, and a few less.
const OF_A_TENANT: usize = 90;
const _: () = assert!(OF_A_TENANT < STREAMS.of_a_namespace_on_a_node);
/// How soon another tenant's stream is open while there are so many.
const SOON: Duration = Duration::from_secs(10);
/// What so many idle streams may cost.
const STREAMS_LIMIT_KIB: i64 = 64 * 1024;
/// The same of agents: with 8000 of them a controller needs eight times this.
const AGENTS_LIMIT_KIB: i64 = 128 * 1024;
/// The common name of the one certificate, which all processes of a test have.
const NAME: &str = "front-proxy-client";

/// All agents are at one address here. Clients have the places of the program.
const PLACES: Places = Places { of_an_address: 4096, connections: 4096, ..Places::USUAL };

/// Runs a test in three processes: this one, its clients and machines, and the controller. The first starts the second with enough
/// descriptors.
fn in_processes(name: &str, clients: impl AsyncFnOnce(&Clients)) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match std::env::var(ROLE).as_deref() {
        Ok("controller") => runtime().block_on(controller()),
        Ok(_) => {
            let clients_of_it = Clients::start(name);
            runtime().block_on(clients(&clients_of_it));
        }
        Err(_) => {
            let room = Room::new();
            make_certificate(&room.0);
            let mut shell = Command::new("sh");
            shell.args(["-c", "ulimit -n 16384 && exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
            let status = of_test(shell, name).env(ROLE, "clients").env(ROOM, &room.0).status().unwrap();
            assert!(status.success(), "{status}");
        }
    }
}

/// A directory that nobody else reads: a key is in it.
struct Room(PathBuf);

impl Room {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("garboard-bench-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn of_test(mut command: Command, name: &str) -> Command {
    let module = module_path!().split_once("::").unwrap().1;
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture", "--test-threads=1"]);
    command
}

fn make_certificate(room: &Path) {
    let mut wanted = CertificateParams::new(["localhost".to_owned()]).unwrap();
    wanted.distinguished_name.push(DnType::CommonName, NAME);
    let key = KeyPair::generate().unwrap();
    std::fs::write(room.join("cert"), wanted.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(room.join("key"), key.serialize_pem()).unwrap();
}

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(&std::env::var(ROOM).unwrap()).join(name)).unwrap()
}

fn roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(read("cert").as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

/// The controller's two servers, until this process is killed.
async fn controller() {
    let text = |text: &str| text.to_owned();
    let serving = CertifiedKey {
        certificate: read("cert"),
        key: read("key"),
        subject: text(NAME),
        issuer: text(NAME),
        from: jiff::Timestamp::UNIX_EPOCH,
        to: jiff::Timestamp::MAX,
    };
    let verifier = WebPkiClientVerifier::builder(roots()).build().unwrap();
    let api = with_guest_and(STREAMS);
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (subresources, agents) = (listen(), listen());
    let addresses = [&subresources, &agents].map(|listener| listener.local_addr().unwrap().to_string()).join(" ");
    subresources.set_nonblocking(true).unwrap();
    agents.set_nonblocking(true).unwrap();
    let of_agents = server::routes(api.context.clone(), api.nodes.clone());
    let shown = RustlsConfig::from_config(http1(tls(&serving, None).unwrap()));
    let handshakes = Handshakes::new(Listener::new(PLACES), shown, AT_ONCE);
    let agents = axum_server::from_tcp(agents).unwrap().acceptor(handshakes).serve(of_agents.into_make_service());
    let shown = RustlsConfig::from_config(http1(tls(&serving, Some(verifier)).unwrap()));
    let acceptor = PeerAcceptor(RustlsAcceptor::new(shown).acceptor(Listener::new(limits::PLACES)));
    let clients = axum_server::from_tcp(subresources).unwrap().acceptor(acceptor);
    let clients = clients.serve(api.routes.clone().into_make_service());
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENS}{addresses}").unwrap();
    out.flush().unwrap();
    let (first, second) = tokio::join!(agents, clients);
    panic!("{first:?} {second:?}");
}

fn http1(mut config: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// The other ends of all that the controller has.
struct Clients {
    controller: Killed,
    subresources: SocketAddr,
    agents: SocketAddr,
    tls: Arc<ClientConfig>,
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Clients {
    fn start(name: &str) -> Self {
        let mut command = of_test(Command::new(std::env::current_exe().unwrap()), name);
        let mut child = command.env(ROLE, "controller").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.map(|line| line.unwrap()).find(|line| line.contains(LISTENS)).expect("it listens");
        let (_, addresses) = line.split_once(LISTENS).unwrap();
        let (subresources, agents) = addresses.split_once(' ').unwrap();
        let certificate = CertificateDer::from_pem_slice(read("cert").as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(read("key").as_bytes()).unwrap();
        let tls = ClientConfig::builder().with_root_certificates(roots()).with_client_auth_cert(vec![certificate], key);
        Self {
            controller: Killed(child),
            subresources: subresources.parse().unwrap(),
            agents: agents.trim().parse().unwrap(),
            tls: Arc::new(tls.unwrap()),
        }
    }

    /// The memory of the controller, KiB.
    fn resident_kib(&self) -> i64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.controller.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The agent of a node, with machines, until this process ends.
    async fn agent(&self, node: &str, machines: Machines) {
        let name = ServerName::try_from("localhost").unwrap();
        let controller = Controller { address: self.agents, name, tls: Arc::clone(&self.tls) };
        let Dialled { connection, .. } = agent::dial(&controller, node).await.unwrap();
        tokio::spawn(agent::serve(connection, Arc::new(machines)));
    }

    /// A stream of a user, once it is answered. Right after its agent has connected it may have to be asked for again.
    async fn open(&self, user: usize, path: &str) -> WebSocketStream<TlsStream<TcpStream>> {
        let connection = TcpStream::connect(self.subresources).await.unwrap();
        connection.set_nodelay(true).unwrap();
        let tls = TlsConnector::from(Arc::clone(&self.tls));
        let connection = tls.connect(ServerName::try_from("localhost").unwrap(), connection).await.unwrap();
        let base = BASE.replace("/namespaces/ns/", &format!("/namespaces/tenant-{}/", user / OF_A_TENANT));
        let mut request = format!("ws://localhost{base}/{path}").into_client_request().unwrap();
        request.headers_mut().insert("X-Remote-User", format!("user-{user}").parse().unwrap());
        request.headers_mut().insert("Sec-WebSocket-Protocol", "plain.kubevirt.io".parse().unwrap());
        let opening = tokio_tungstenite::client_async(request, connection);
        tokio::time::timeout(PATIENCE, opening).await.unwrap().unwrap().0
    }
}

/// Machines that print so many bytes and then what is typed.
#[derive(Clone, Copy)]
struct Machines {
    prints: usize,
}

impl Supervisors for Machines {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        let (ours, theirs) = UnixStream::pair().map_err(|_| Refusal::Busy)?;
        let prints = self.prints;
        tokio::spawn(async move {
            let _ = serve(theirs, prints).await;
        });
        Ok(Opened { socket: ours, place: None })
    }
}

async fn serve(mut stream: UnixStream, prints: usize) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    let asked: Asked = wire::decode(&line).unwrap();
    // As the supervisor reads them: a serial port in small pieces, a screen in large ones.
    let is_console = matches!(asked.request, ControlRequest::Console { .. });
    assert!(is_console || matches!(asked.request, ControlRequest::Vnc { .. }), "no test sends {asked:?}");
    let piece = if is_console { 4 * 1024 } else { 16 * 1024 };
    stream.write_all(&wire::encode(&ControlReply::Session)?).await?;
    let encode = |bytes: &[u8]| {
        let mut parts = Vec::with_capacity(bytes.len() + 8);
        session::encode(bytes, &mut parts);
        parts
    };
    let block = vec![b'x'; piece];
    for _ in 0..prints / piece {
        stream.write_all(&encode(&block)).await?;
    }
    let mut typed = [0; 1024];
    loop {
        match stream.read(&mut typed).await? {
            0 => return Ok(()),
            count => stream.write_all(&encode(&typed[..count])).await?,
        }
    }
}

#[test]
fn a_thousand_idle_streams_cost_less_than_64_mib() {
    in_processes("a_thousand_idle_streams_cost_less_than_64_mib", async |clients| {
        clients.agent(NODE, Machines { prints: 0 }).await;
        drop(clients.open(MANY, "console").await);
        let before = clients.resident_kib();
        let mut open = Vec::new();
        for user in 0..MANY {
            if user % OF_A_CONNECTION == 0 {
                // The newest connection of a node gets what is opened from now on.
                clients.agent(NODE, Machines { prints: 0 }).await;
            }
            open.push(clients.open(user, "console").await);
        }
        // Each of them is there.
        for stream in &mut open {
            stream.send(Message::binary("x")).await.unwrap();
            let echoed = tokio::time::timeout(PATIENCE, async {
                loop {
                    let message = stream.next().await.unwrap().unwrap();
                    // The pings of both sides come in between.
                    if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
                        return message;
                    }
                }
            });
            assert_eq!(echoed.await.unwrap(), Message::binary("x"));
        }
        let begun = Instant::now();
        drop(clients.open(MANY + OF_A_TENANT, "console").await);
        let took = begun.elapsed();
        assert!(took < SOON, "{took:?}");
        let cost = clients.resident_kib() - before;
        println!("| {MANY} idle streams | {cost} KiB | {} KiB each |", cost / 1000);
        assert!(cost < STREAMS_LIMIT_KIB, "{cost} KiB");
    });
}

#[test]
fn a_thousand_agents_fit_into_a_controller() {
    in_processes("a_thousand_agents_fit_into_a_controller", async |clients| {
        clients.agent("warm-up", Machines { prints: 0 }).await;
        let (before, begun) = (clients.resident_kib(), Instant::now());
        // All at once, as after a restart of a controller without a spread.
        let dialling = (0..MANY).map(|number| async move {
            clients.agent(&format!("node-{number}"), Machines { prints: 0 }).await;
        });
        tokio::time::timeout(PATIENCE, futures::future::join_all(dialling)).await.expect("all are connected");
        let took = begun.elapsed();
        // The mocked review names each one's node: the last ones answer through the controller.
        clients.agent(NODE, Machines { prints: 0 }).await;
        drop(clients.open(0, "console").await);
        let cost = clients.resident_kib() - before;
        println!("| {MANY} agents | {cost} KiB | {} KiB each | connected in {took:?} |", cost / 1000);
        assert!(cost < AGENTS_LIMIT_KIB, "{cost} KiB");
    });
}

/// What was measured of one way.
struct Figures {
    mib_per_second: f64,
    median: Duration,
    late: Duration,
}

impl Figures {
    fn of(bytes: usize, took: Duration, mut keystrokes: Vec<Duration>) -> Self {
        keystrokes.sort_unstable();
        let at = |percent: usize| keystrokes[keystrokes.len() * percent / 100];
        let mib_per_second = f64::from(u32::try_from(bytes >> 10).unwrap()) / 1024.0 / took.as_secs_f64();
        Self { mib_per_second, median: at(50), late: at(99) }
    }

    fn print(&self, way: &str, direct: &Self) {
        let Self { mib_per_second, median, late } = self;
        let ratio = mib_per_second / direct.mib_per_second;
        println!("| {way} | {mib_per_second:.0} MiB/s | {ratio:.3} | {median:?} | {late:?} |");
    }
}

const KEYSTROKES: usize = 200;

/// Through a websocket.
async fn over(clients: &Clients, path: &str, bytes: usize) -> Figures {
    let mut stream = clients.open(0, path).await;
    let (mut read, begun) = (0, Instant::now());
    while read < bytes {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
        if let Message::Binary(part) = next.unwrap().unwrap() {
            read += part.len();
        }
    }
    let (took, mut keystrokes) = (begun.elapsed(), Vec::new());
    assert_eq!(read, bytes, "what was printed arrives once");
    while keystrokes.len() < KEYSTROKES {
        let typed = Instant::now();
        stream.send(Message::binary("k")).await.unwrap();
        while !matches!(stream.next().await.unwrap().unwrap(), Message::Binary(_)) {}
        keystrokes.push(typed.elapsed());
    }
    Figures::of(bytes, took, keystrokes)
}

/// Prints so many bytes, and then what is typed.
async fn prints(mut to: impl AsyncRead + AsyncWrite + Unpin, bytes: usize) {
    let block = vec![b'x'; 16 * 1024];
    for _ in 0..bytes / block.len() {
        to.write_all(&block).await.unwrap();
    }
    let mut typed = [0; 1024];
    while let Ok(count @ 1..) = to.read(&mut typed).await {
        to.write_all(&typed[..count]).await.unwrap();
    }
}

/// Over a socket, without anything between.
async fn direct(bytes: usize) -> Figures {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(prints(theirs, bytes));
    let (mut buffer, mut read, begun) = (vec![0; 64 * 1024], 0, Instant::now());
    while read < bytes {
        read += ours.read(&mut buffer).await.unwrap();
    }
    let (took, mut keystrokes) = (begun.elapsed(), Vec::new());
    while keystrokes.len() < KEYSTROKES {
        let typed = Instant::now();
        ours.write_all(b"k").await.unwrap();
        ours.read_u8().await.unwrap();
        keystrokes.push(typed.elapsed());
    }
    Figures::of(bytes, took, keystrokes)
}

#[test]
fn streams_are_measured_beside_a_direct_socket() {
    in_processes("streams_are_measured_beside_a_direct_socket", async |clients| {
        let mib = std::env::var(MIB).ok().and_then(|text| text.parse().ok()).unwrap_or(4_usize);
        let bytes = mib << 20;
        clients.agent(NODE, Machines { prints: bytes }).await;
        let guest = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = guest.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((connection, _)) = guest.accept().await {
                connection.set_nodelay(true).unwrap();
                tokio::spawn(prints(connection, bytes));
            }
        });
        println!("| way | throughput | times direct | keystroke, median | 99th of 100 |");
        println!("| --- | ---: | ---: | ---: | ---: |");
        let socket = direct(bytes).await;
        socket.print("a socket, direct", &socket);
        let forward = format!("portforward/{port}");
        for (way, path) in [("console", "console"), ("screen", "vnc"), ("port-forward", forward.as_str())] {
            let figures = over(clients, path, bytes).await;
            figures.print(way, &socket);
            // No goal is a test's; what is far from any use is a defect.
            assert!(figures.mib_per_second > 0.5 && figures.median < Duration::from_secs(1), "{way}");
        }
    });
}
