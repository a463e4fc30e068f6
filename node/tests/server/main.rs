//! The real server on a real socket: which callers it serves, and what it answers.
//!
//! Only the table of processes is not `/proc`: in it this process is in a pod, or is not.

#![allow(clippy::unwrap_used, reason = "a test; clippy's exception does not reach helpers of integration tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use garboard_agent::line_socket::{LineError, LineSocket};
use garboard_net::GuestAddresses;
use garboard_node::budget::CONNECTIONS_PER_POD;
use garboard_node::caller::Processes;
use garboard_node::cluster::ClusterError;
use garboard_node::identity::PodUid;
use garboard_node::launchers::Launchers;
use garboard_node::mirror::Mirror;
use garboard_node::pods::LauncherPod;
use garboard_node::server::{Reports, Server};
use garboard_node::socket::AgentSocket;
use garboard_node::supervisors::Connected;
use garboard_protocol::agent::{AgentReply, AgentRequest, BindingRequest, InterfaceRequest};
use garboard_protocol::control::Status;
use garboard_protocol::record::RunRecord;
use kube::runtime::watcher::Event;
use tokio::net::UnixStream;

mod supervisors;

const POD: &str = "0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c";
const AGENT: &str = "aaaaaaaa-7c1f-4d57-9c5e-6f0c7d6a1b2c";
const VMI: &str = "11111111-2222-3333-4444-555555555555";

/// What the controller ordered for the pod: one interface, bridged.
const ORDER: &str = r#"{"vmi": {"metadata": {"name": "vm"}, "spec": {"networks": [{"name": "default", "pod": {}}], "domain":
    {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}}}}"#;

/// For what has to come, however busy the machine is.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A report of this generation makes its receiver panic.
const PANICS: u64 = 666;

type Reply = AgentReply<GuestAddresses>;

#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<(String, u64)>>>);

impl Reports for Noted {
    fn note(&self, pod: &LauncherPod, status: Status) {
        assert_ne!(status.generation, PANICS, "on purpose");
        self.0.lock().unwrap().push((pod.vmi.clone(), status.generation));
    }

    fn keep(&self, pod: &LauncherPod, record: RunRecord) {
        self.0.lock().unwrap().push((pod.vmi.clone(), u64::from(record.resets)));
    }
}

struct Stage {
    directory: tempfile::TempDir,
    pods: Arc<Mirror<LauncherPod>>,
    /// What a list gives; the API server is away if that is nothing.
    listed: Arc<Mutex<Option<Vec<LauncherPod>>>>,
    noted: Noted,
    supervisors: Connected,
}

impl Stage {
    /// The server runs, and this process is in a pod, by its control groups.
    fn set(cgroups: &str) -> Self {
        let stage = Self::unknown(cgroups);
        known(&stage.pods, &[]);
        stage.lists(Some(Vec::new()));
        stage
    }

    /// The API server has not answered yet.
    fn unknown(cgroups: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join(std::process::id().to_string());
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("cgroup"), cgroups).unwrap();
        std::os::unix::fs::symlink("/proc/self/net", own.join("net")).unwrap();
        std::fs::create_dir(directory.path().join("self")).unwrap();
        std::fs::write(directory.path().join("self/cgroup"), format!("0::/kubepods/pod{AGENT}/c\n")).unwrap();
        let (pods, noted) = (Arc::new(Mirror::default()), Noted::default());
        let listed: Arc<Mutex<Option<Vec<LauncherPod>>>> = Arc::default();
        let answer = Arc::clone(&listed);
        let launchers = Launchers::new(Arc::clone(&pods), move || {
            let answer = answer.lock().unwrap().clone().ok_or(ClusterError::Slow);
            async move { answer }
        });
        let supervisors = Connected::default();
        let server =
            Server::new(Processes::below(directory.path()).unwrap(), launchers, noted.clone(), supervisors.clone());
        let listener = AgentSocket::listen(&directory.path().join("agent.sock")).unwrap();
        tokio::spawn(server.serve(listener));
        Self { directory, pods, listed, noted, supervisors }
    }

    fn lists(&self, pods: Option<Vec<LauncherPod>>) {
        *self.listed.lock().unwrap() = pods;
    }

    fn in_launcher_pod() -> Self {
        let stage = Self::set(&format!("0::/kubepods/burstable/pod{POD}/c\n"));
        stage.pods.insert(POD, launcher());
        stage
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }
}

/// The API server has listed these and no others.
fn known(pods: &Mirror<LauncherPod>, all: &[LauncherPod]) {
    let all = all.iter().cloned().map(Event::InitApply);
    for event in [Event::Init].into_iter().chain(all).chain([Event::InitDone]) {
        pods.apply(event, |pod: LauncherPod| (pod.uid.to_string(), Some(pod)));
    }
}

fn launcher() -> LauncherPod {
    LauncherPod {
        uid: PodUid::parse(POD).unwrap(),
        namespace: "default".into(),
        name: "virt-launcher-vm-abc".into(),
        addresses: vec!["10.244.1.7".into()],
        needs: Default::default(),
        claims: Default::default(),
        unpaused: None,
        is_reported: false,
        compute_end: Default::default(),
        vmi: "vm".into(),
        vmi_uid: VMI.into(),
        order: Some(ORDER.into()),
        trace: None,
    }
}

fn report(uid: &str, generation: u64) -> AgentRequest {
    let status = serde_json::from_value(serde_json::json!({
        "generation": generation, "namespace": "default", "name": "vm", "uid": uid, "phase": "Running", "phaseSinceMs": 0,
        "paused": null, "stopping": false, "softwareEmulation": false, "machine": "pc-q35-7.2", "memoryBytes": 1,
        "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 1, "resets": 0, "ended": null,
    }));
    AgentRequest::Report { status: Box::new(status.unwrap()) }
}

fn plumb() -> AgentRequest {
    let (name, tap, mac) = ("default".into(), "tap0".into(), "02:00:00:aa:bb:01".into());
    let interface = InterfaceRequest { name, tap, mac, queues: 1, binding: BindingRequest::Bridge };
    AgentRequest::Plumb { interfaces: vec![interface] }
}

async fn dial(path: &Path) -> LineSocket {
    LineSocket::new(UnixStream::connect(path).await.unwrap())
}

async fn ask(socket: &mut LineSocket, request: &AgentRequest, descriptors: &[OwnedFd]) -> Reply {
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.send(request, &borrowed).await.unwrap();
    socket.receive().await.unwrap()
}

async fn refusal(socket: &mut LineSocket, request: &AgentRequest, descriptors: &[OwnedFd]) -> String {
    let answer = ask(socket, request, descriptors).await;
    let Reply::Refused { reason } = answer else { panic!("not refused: {answer:?}") };
    reason
}

async fn is_closed(socket: &mut LineSocket) -> bool {
    matches!(socket.receive::<Reply>().await, Err(LineError::Closed))
}

#[tokio::test]
async fn a_launcher_is_served() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    for generation in [3, 4] {
        assert_eq!(ask(&mut socket, &report(VMI, generation), &[]).await, Reply::Noted);
    }
    assert_eq!(*stage.noted.0.lock().unwrap(), [("vm".to_owned(), 3), ("vm".to_owned(), 4)]);
}

#[tokio::test]
async fn a_record_is_kept_for_the_pod_that_sends_it_and_for_no_other_instance() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    let record = |uid: &str| {
        let record = RunRecord { uid: uid.to_owned(), resets: 7, ..RunRecord::default() };
        AgentRequest::Record { record: Box::new(record) }
    };
    assert_eq!(ask(&mut socket, &record(VMI), &[]).await, Reply::Noted);
    let reason = refusal(&mut socket, &record("99999999-2222-3333-4444-555555555555"), &[]).await;
    assert!(reason.contains("another VirtualMachineInstance"), "{reason}");
    assert_eq!(*stage.noted.0.lock().unwrap(), [("vm".to_owned(), 7)]);
}

#[tokio::test]
async fn a_pod_that_becomes_known_is_served() {
    let stage = Stage::set(&format!("0::/kubepods/pod{POD}/c\n"));
    let mut socket = dial(&stage.path()).await;
    socket.send(&report(VMI, 1), &[]).await.unwrap();
    stage.pods.insert(POD, launcher());
    assert_eq!(socket.receive::<Reply>().await.unwrap(), Reply::Noted);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_has_not_reported_is_served() {
    let stage = Stage::set(&format!("0::/kubepods/pod{POD}/c\n"));
    stage.lists(Some(vec![launcher()]));
    let mut socket = dial(&stage.path()).await;
    assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
    assert!(refusal(&mut socket, &plumb(), &[]).await.contains("has to come with the request"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_unknown_is_not_refused() {
    let stage = Stage::set(&format!("0::/kubepods/pod{POD}/c\n"));
    stage.lists(None);
    let mut socket = dial(&stage.path()).await;
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn a_process_outside_pods_is_not_served() {
    let stage = Stage::set("0::/user.slice\n");
    stage.pods.insert(POD, launcher());
    let mut socket = dial(&stage.path()).await;
    let Reply::Refused { reason } = socket.receive().await.unwrap() else { panic!("served") };
    assert_eq!(reason, "the caller is in no pod");
    assert!(is_closed(&mut socket).await);
    assert!(stage.noted.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_forged_group_is_not_served() {
    let other = "ffffffff-7c1f-4d57-9c5e-6f0c7d6a1b2c";
    let stage = Stage::set(&format!("0::/kubepods/pod{other}/c/pod{POD}/d\n"));
    stage.pods.insert(POD, launcher());
    let mut socket = dial(&stage.path()).await;
    let Reply::Refused { reason } = socket.receive().await.unwrap() else { panic!("served") };
    assert!(reason.contains("more than one pod"), "{reason}");
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn a_group_of_a_users_own_making_is_not_served() {
    let session = "user.slice/user-1000.slice/user@1000.service/app.slice";
    let stage = Stage::set(&format!("0::/{session}/kubepods/pod{POD}/c\n"));
    stage.pods.insert(POD, launcher());
    let mut socket = dial(&stage.path()).await;
    let Reply::Refused { reason } = socket.receive().await.unwrap() else { panic!("served") };
    assert!(reason.contains("not below the kubelet's own"), "{reason}");
    assert!(is_closed(&mut socket).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_no_launcher_is_not_served() {
    let stage = Stage::set(&format!("0::/kubepods/pod{POD}/c\n"));
    let mut socket = dial(&stage.path()).await;
    socket.send(&report(VMI, 1), &[]).await.unwrap();
    let Reply::Refused { reason } = socket.receive().await.unwrap() else { panic!("served") };
    assert!(reason.contains("no launcher pod"), "{reason}");
}

#[tokio::test]
async fn what_is_logged_of_a_launcher_names_its_instance_and_the_request() {
    use tracing_subscriber::layer::SubscriberExt;

    let stage = Stage::in_launcher_pod();
    let path = stage.directory.path().join("log");
    let file = Arc::new(std::fs::File::create(&path).unwrap());
    let lines = tracing_subscriber::fmt::layer().json().with_current_span(false).with_writer(file);
    // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
    let mut socket = dial(&stage.path()).await;
    assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
    refusal(&mut socket, &report("99999999-2222-3333-4444-555555555555", 9), &[]).await;
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let line = lines.into_iter().find(|line| line["fields"]["message"] == "request failed").unwrap();
    let expected = serde_json::json!([
        {"name": "launcher", "namespace": "default", "vmi": "vm", "vmi_uid": VMI, "pod": "virt-launcher-vm-abc"},
        {"name": "request", "request": 2, "ask": "report"},
    ]);
    assert_eq!(line["spans"], expected, "{line}");
}

#[tokio::test]
async fn a_launcher_that_lies_about_its_machine_is_refused() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    let reason = refusal(&mut socket, &report("99999999-2222-3333-4444-555555555555", 9), &[]).await;
    assert!(reason.contains("another VirtualMachineInstance"), "{reason}");
    assert!(stage.noted.0.lock().unwrap().is_empty());
    assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
}

#[tokio::test]
async fn volumes_are_the_pods_own() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    refusal(&mut socket, &AgentRequest::Volume { name: "/etc/shadow".into() }, &[]).await;
}

#[tokio::test]
async fn only_the_callers_own_namespace_is_plumbed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    assert!(refusal(&mut socket, &plumb(), &[]).await.contains("has to come with the request"));
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    assert!(refusal(&mut socket, &plumb(), &[file]).await.contains("cannot be used"));
    // Its own, but also the agent's.
    let own: OwnedFd = std::fs::File::open("/proc/self/ns/net").unwrap().into();
    let reason = refusal(&mut socket, &plumb(), &[own]).await;
    assert!(reason.contains("create the machine's interfaces"), "{reason}");
    if let Ok(other) = garboard_net::NetNs::create() {
        let other = other.as_fd().try_clone_to_owned().unwrap();
        assert!(refusal(&mut socket, &plumb(), &[other]).await.contains("not the caller's own"));
    }
}

#[tokio::test]
async fn only_what_the_pods_order_says_is_made() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    let AgentRequest::Plumb { interfaces } = plumb() else { panic!() };
    let changed = |change: &dyn Fn(&mut InterfaceRequest)| {
        let mut interfaces = interfaces.clone();
        change(&mut interfaces[0]);
        AgentRequest::Plumb { interfaces }
    };
    let masquerade = BindingRequest::Masquerade { ipv4: "10.0.2.0/24".into(), ipv6: "::/64".into(), ports: Vec::new() };
    let table = [
        (changed(&|one| one.binding = masquerade.clone()), "another binding"),
        (changed(&|one| one.name = "other".into()), "no interface `other`"),
        (changed(&|one| one.queues = 256), "256 is not the number of queues"),
        (AgentRequest::Sockets { interfaces: [interfaces.clone(), interfaces.clone()].concat() }, "asked for twice"),
    ];
    for (request, expected) in table {
        let own: OwnedFd = std::fs::File::open("/proc/self/ns/net").unwrap().into();
        let mut socket = dial(&stage.path()).await;
        let reason = refusal(&mut socket, &request, &[own]).await;
        assert!(reason.contains(expected), "{reason}");
    }
    stage.pods.insert(POD, LauncherPod { order: None, ..launcher() });
    let mut late = dial(&stage.path()).await;
    assert!(refusal(&mut late, &plumb(), &[]).await.contains("no order"));
    assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
}

#[tokio::test]
async fn a_caller_cannot_fill_the_agent_with_descriptors() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    let files: Vec<OwnedFd> = (0..8).map(|_| tempfile::tempfile().unwrap().into()).collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    socket.send(&plumb(), &borrowed).await.unwrap();
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn nonsense_ends_the_conversation_and_nothing_else() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    socket.send(&serde_json::json!({"ask": "everything"}), &[]).await.unwrap();
    assert!(is_closed(&mut socket).await);
    let mut again = dial(&stage.path()).await;
    assert_eq!(ask(&mut again, &report(VMI, 1), &[]).await, Reply::Noted);
}

#[tokio::test]
async fn a_panic_ends_one_conversation_and_gives_its_room_back() {
    let stage = Stage::in_launcher_pod();
    let mut other = dial(&stage.path()).await;
    assert_eq!(ask(&mut other, &report(VMI, 1), &[]).await, Reply::Noted);
    for _ in 0..2 * CONNECTIONS_PER_POD {
        let mut socket = dial(&stage.path()).await;
        socket.send(&report(VMI, PANICS), &[]).await.unwrap();
        assert!(is_closed(&mut socket).await);
    }
    assert_eq!(ask(&mut other, &report(VMI, 2), &[]).await, Reply::Noted);
}

#[tokio::test]
async fn one_pod_cannot_take_all_connections() {
    let stage = Stage::in_launcher_pod();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_PER_POD {
        let mut socket = dial(&stage.path()).await;
        assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
        held.push(socket);
    }
    let mut late = dial(&stage.path()).await;
    let Reply::Refused { reason } = late.receive().await.unwrap() else { panic!("served") };
    assert!(reason.contains("connections already"), "{reason}");
    held.clear();
    // The server sees the end of the others in its own time, and closes them on threads that wait for a processor.
    let served = async {
        loop {
            let mut again = dial(&stage.path()).await;
            again.send(&report(VMI, 2), &[]).await.ok();
            if matches!(again.receive::<Reply>().await, Ok(Reply::Noted)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, served).await.is_ok(), "room that was given back is not there");
}

#[tokio::test]
async fn a_new_agent_takes_the_place_of_an_old_one() {
    let stage = Stage::in_launcher_pod();
    let before = std::fs::metadata(stage.path()).unwrap();
    let _listener = AgentSocket::listen(&stage.path()).unwrap();
    use std::os::unix::fs::MetadataExt;
    let after = std::fs::metadata(stage.path()).unwrap();
    assert_ne!(before.ino(), after.ino());
    assert_eq!(after.mode() & 0o777, 0o666);
    dial(&stage.path()).await;
}

#[tokio::test]
async fn the_text_of_a_caller_is_not_repeated_at_length() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    let AgentRequest::Plumb { mut interfaces } = plumb() else { panic!() };
    interfaces[0].mac = "\u{1b}[31m".repeat(20_000);
    let own: OwnedFd = std::fs::File::open("/proc/self/ns/net").unwrap().into();
    let reason = refusal(&mut socket, &AgentRequest::Plumb { interfaces }, &[own]).await;
    assert!(reason.chars().count() < 500, "{}", reason.len());
}

#[tokio::test(start_paused = true)]
async fn as_long_as_nobody_can_tell_nobody_is_refused() {
    let fresh = Stage::unknown(&format!("0::/kubepods/pod{POD}/c\n"));
    let mut socket = dial(&fresh.path()).await;
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn a_request_has_an_end() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    socket.send(&"x".repeat(300 * 1024), &[]).await.ok();
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn for_a_pod_that_is_gone_nothing_is_made() {
    let stage = Stage::in_launcher_pod();
    let mut socket = dial(&stage.path()).await;
    assert_eq!(ask(&mut socket, &report(VMI, 1), &[]).await, Reply::Noted);
    known(&stage.pods, &[]);
    let own: OwnedFd = std::fs::File::open("/proc/self/ns/net").unwrap().into();
    assert!(refusal(&mut socket, &plumb(), &[own]).await.contains("not there any more"));
    assert_eq!(ask(&mut socket, &report(VMI, 2), &[]).await, Reply::Noted, "its last report is still taken");
}

/// A TCP socket that blocks the thread that closes it last for an hour, and its peer, which does not read.
fn lingering() -> (OwnedFd, std::net::TcpStream) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let forever = nix::libc::linger { l_onoff: 1, l_linger: 3600 };
    nix::sys::socket::setsockopt(&here, nix::sys::socket::sockopt::Linger, &forever).unwrap();
    here.set_nonblocking(true).unwrap();
    while here.write(&[0; 65536]).is_ok() {}
    (here.into(), peer)
}

#[tokio::test]
async fn a_socket_that_lingers_delays_no_other_caller() {
    let stage = Stage::in_launcher_pod();
    let mut peers = Vec::new();
    for read in [true, false] {
        let mut socket = dial(&stage.path()).await;
        let (lingering, peer) = lingering();
        peers.push(peer);
        if read {
            socket.send(&plumb(), &[lingering.as_fd()]).await.unwrap();
            drop(lingering);
            let Reply::Refused { reason } = socket.receive().await.unwrap() else { panic!("done") };
            assert!(reason.contains("cannot be used"), "{reason}");
        } else {
            // It lies behind what ends the conversation.
            socket.send(&serde_json::json!({"ask": "everything"}), &[]).await.unwrap();
            socket.send(&plumb(), &[lingering.as_fd()]).await.ok();
            drop(lingering);
            assert!(is_closed(&mut socket).await);
        }
    }
    let answered = async {
        let mut socket = dial(&stage.path()).await;
        ask(&mut socket, &report(VMI, 1), &[]).await
    };
    let answered = tokio::time::timeout(PATIENCE, answered).await;
    assert_eq!(answered.expect("no caller is held up"), Reply::Noted);
}
