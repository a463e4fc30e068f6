//! What streams cost: bytes per second, time of a keystroke and of a picture, memory of a controller with many streams and agents.
//! The servers are the real ones with TLS over the loopback, the controller is a process of its own, and machines are played.
//!
//! ```text
//!   the test ─► clients and machines ─► the controller      three processes of this program; GARBOARD_BENCH_ROLE says which
//! ```
//!
//! `scripts/bench-streams` prints the figures of 1000 streams and 1000 agents. As unit tests they move little and have few, and what
//! has a limit is held to it.

mod machines;
mod memory;
mod throughput;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use garboard_tunnel::agent::{self, Controller, Dialled};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use self::machines::Machines;
use super::super::limits::{self, STREAMS};
use super::super::peer::PeerAcceptor;
use super::super::shares::Most;
use super::forward::with_guest_and;
use super::instance::BASE;
use crate::certificates::CertifiedKey;
use crate::certificates::serving::tls;
use crate::nodes::handshakes::{AT_ONCE, Handshakes};
use crate::nodes::server;
use crate::webhook::listener::{Listener, Places};

/// The allocator of the program: the memory that is measured is what it takes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Which process of a test this is; none: the one that starts the others.
const ROLE: &str = "GARBOARD_BENCH_ROLE";
/// Where its processes find what they share.
const ROOM: &str = "GARBOARD_BENCH_ROOM";
/// What the controller says when it listens.
const LISTENS: &str = "the controller listens: ";
/// No test waits longer for something that has to come.
const PATIENCE: Duration = Duration::from_secs(120);
/// The common name of the one certificate, which all processes of a test have.
const NAME: &str = "front-proxy-client";

/// Users of one tenant, who have a stream each: as many as one namespace may have on one node, and a few less.
const OF_A_TENANT: usize = 90;
const _: () = assert!(OF_A_TENANT < STREAMS.of_a_namespace_on_a_node);
/// All agents are at one address here, and all machines on one node, with many connections. Clients have the places of the program.
const PLACES: Places = Places { of_an_address: 4096, connections: 4096, ..Places::USUAL };

/// A stream of a user, once it is open.
type Websocket = WebSocketStream<TlsStream<TcpStream>>;

/// A number that `scripts/bench-streams` sets.
fn count(variable: &str, of_a_unit_test: usize) -> usize {
    std::env::var(variable).map_or(of_a_unit_test, |text| text.parse().unwrap())
}

/// Runs a test, which is named whole, in three processes: this one, its clients and machines, and the controller. The first starts the
/// second with enough descriptors, and prints its rows.
fn in_processes(test: &str, clients: impl AsyncFnOnce(&Clients)) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match std::env::var(ROLE).as_deref() {
        Ok("controller") => runtime().block_on(controller()),
        Ok(_) => {
            let clients_of_it = Clients::start(test);
            // The runner of tests has begun a line with the name of this one.
            println!();
            runtime().block_on(clients(&clients_of_it));
        }
        Err(_) => {
            let room = Room::new();
            make_certificate(&room.0);
            let mut shell = Command::new("sh");
            shell.args(["-c", "ulimit -n 16384 && exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
            let mut command = of_test(shell, test);
            command.env(ROLE, "clients").env(ROOM, &room.0).stderr(Stdio::inherit());
            let ended = command.output().unwrap();
            // Not what the runner says of it: this test counts once.
            let printed = String::from_utf8(ended.stdout).unwrap();
            let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with('|')).collect();
            println!("\n{}", rows.join("\n"));
            assert!(ended.status.success(), "{}", ended.status);
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

fn of_test(mut command: Command, test: &str) -> Command {
    let (_, path) = test.split_once("::").unwrap();
    command.args(["--exact", path, "--nocapture", "--test-threads=1"]);
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
    let api = with_guest_and(Most { of_a_node: 4096, ..STREAMS });
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
    fn start(test: &str) -> Self {
        let mut command = of_test(Command::new(std::env::current_exe().unwrap()), test);
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

    /// A stream of a user. The controller waits for an agent that has connected just now.
    async fn open(&self, user: usize, path: &str) -> Websocket {
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
