//! A machine whose supervisor, PID 1 and QEMU are real, and whose agent and clients the test plays.

use std::fs::{self, File, OpenOptions};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use garboard_api::{ClusterConfig, VirtualMachineInstance, default_vmi};
use garboard_launcher::supervisor::{self, Environment, Program};
use garboard_machine::facts::{HostFacts, KvmState};
use garboard_net::GuestAddresses;
use garboard_plan::{AcceleratorChoice, PlanOptions};
use garboard_protocol::agent::{
    AgentReply, AgentRequest, InterfaceReply, InterfaceRequest, SocketKind, VolumePlace, VolumeTable,
};
use garboard_protocol::control::{Asked, ControlRequest};
use garboard_protocol::paths::{self, Layout};
use garboard_protocol::pod::DISK_IMAGE;
use garboard_protocol::testing::AUDIT_ID;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::record::{End, Played, Record, Socket, relay};
use super::support::sys::open_tap;

/// In the environment of the process that becomes the supervisor: the machine's directory, and that it is in a pod.
const MACHINE: &str = "GARBOARD_CONVERSATION";
const IN_POD: &str = "GARBOARD_CONVERSATION_IN_POD";
/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(180);
/// Where PID 1 works: between it and the supervisor is the relay that records them.
const INIT: &str = "pid1";
/// The volume.
const DISK: &str = "root";

/// Becomes the supervisor in the process that is to be it; any other goes on.
pub(crate) fn become_supervisor() {
    let Some(directory) = std::env::var_os(MACHINE) else { return };
    let environment = if std::env::var_os(IN_POD).is_some() { Environment::Pod } else { Environment::Host };
    garboard_common::raise_descriptor_limit();
    let (filter, levels) = garboard_log::filter(None);
    tracing_subscriber::registry().with(garboard_launcher::log::lines(std::io::stderr)).with(filter).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let program = Program { version: "conversation", levels };
    runtime.block_on(supervisor::run(&Layout::new(directory), environment, program)).unwrap();
    std::process::exit(0);
}

/// Why there can be no such machine here, if there cannot.
pub(crate) fn obstacle() -> Option<&'static str> {
    let qemu = HostFacts::reference().qemu.binary;
    let conditions = [
        (nix::unistd::geteuid().is_root(), "a tap is made by root"),
        (Path::new("/dev/net/tun").exists(), "there is no /dev/net/tun"),
        (Path::new(&qemu).exists(), "there is no QEMU"),
    ];
    conditions.into_iter().find_map(|(holds, otherwise)| (!holds).then_some(otherwise))
}

/// The machine. What is left of it ends with this value.
pub(crate) struct Machine {
    room: tempfile::TempDir,
    layout: Layout,
    environment: Environment,
    record: Record,
    /// The end of a control connection that came through the agent, as soon as there is one.
    through_agent: Arc<Mutex<Option<UnixStream>>>,
    supervisor: Option<Child>,
    init: Option<Child>,
}

impl Machine {
    /// Starts all of it.
    pub(crate) fn start(environment: Environment, record: &Record) -> Self {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.order(), layout.supervisor(), layout.init(), room.path().join(INIT)] {
            fs::create_dir(directory).unwrap();
        }
        write_order(&layout, environment);
        let (through_agent, record) = (Arc::default(), record.clone());
        let mut machine = Self { room, layout, environment, record, through_agent, supervisor: None, init: None };
        machine.play_agent();
        machine.start_supervisor();
        let own = machine.room.path().join(INIT);
        let (record, init) = (machine.record.clone(), machine.layout.init());
        relay(&own.join(paths::LAUNCH_SOCKET), init.join(paths::LAUNCH_SOCKET), &record, Socket::Launch, End::Init);
        relay(&own.join(paths::PROBE_SOCKET), init.join(paths::PROBE_SOCKET), &record, Socket::Probe, End::Client);
        let init = Command::new(env!("CARGO_BIN_EXE_garboard-init")).arg(own).stderr(machine.log("init")).spawn();
        machine.init = Some(init.unwrap());
        machine.wait("a guest that runs", |it| it.status()["phase"] == "Running" && it.status()["machine"] != "");
        machine
    }

    /// Another supervisor in the place of the one that is there.
    pub(crate) fn replace_supervisor(&mut self) {
        self.end_supervisor();
        self.start_supervisor();
        self.wait("a guest that runs", |it| it.status()["phase"] == "Running" && it.status()["machine"] != "");
    }

    /// Asks on a connection of its own, and answers with the reply.
    pub(crate) fn ask(&self, request: ControlRequest) -> Value {
        let stream = UnixStream::connect(self.layout.supervisor().join(paths::CONTROL_SOCKET)).unwrap();
        let mut client = Played::new(stream, &self.record, Socket::Control, (End::Client, End::Supervisor));
        client
            .send(&Asked { request, claimed_user: Some("ada".to_owned()), audit_id: None, number: None }, &[])
            .unwrap();
        client.receive().expect("an answer")
    }

    /// Asks on the connection that the agent has handed over.
    pub(crate) fn ask_through_agent(&mut self, request: ControlRequest) -> Value {
        self.wait("a connection from the agent", |it| it.through_agent.lock().unwrap().is_some());
        let stream = self.through_agent.lock().unwrap().take().unwrap();
        let mut client = Played::new(stream, &self.record, Socket::Control, (End::Client, End::Supervisor));
        client
            .send(&Asked { request, claimed_user: None, audit_id: Some(AUDIT_ID.to_owned()), number: None }, &[])
            .unwrap();
        client.receive().expect("an answer")
    }

    /// Puts the question of a kubelet, as the program in `compute` does.
    pub(crate) fn probe(&self, arguments: &[&str]) -> Result<(), garboard_launcher::probe::ProbeError> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        garboard_launcher::probe::run(&self.room.path().join(INIT), &arguments)
    }

    /// Asks PID 1 to end, as a kubelet does.
    pub(crate) fn terminate(&self) {
        kill(pid(self.init.as_ref().unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits until it has been sent.
    pub(crate) fn wait_for_message(&mut self, tag: &str, word: &str) {
        self.wait(&format!("{tag} {word}"), |it| it.record.lines().iter().any(|line| line.message[tag] == word));
    }

    /// Waits until QEMU and PID 1 have ended, and the supervisor has reported it.
    pub(crate) fn ends(&mut self) {
        self.wait("end of PID 1", |it| it.init.as_mut().unwrap().try_wait().unwrap().is_some());
        self.init = None;
        self.wait("end in the status", |it| !it.status()["ended"].is_null());
    }

    /// Waits for a state.
    pub(crate) fn wait(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() <= deadline, "no {what}; {}", self.logs());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// What its programs have printed.
    pub(crate) fn logs(&self) -> String {
        let log = |of: &str| fs::read_to_string(self.room.path().join(format!("{of}.log"))).unwrap_or_default();
        format!("PID 1 prints: {}; the log of the supervisor: {}", log("init"), log("supervisor"))
    }

    /// The status, asked without being written down; nothing while no supervisor answers.
    pub(crate) fn status(&self) -> Value {
        let asked = || {
            let stream = UnixStream::connect(self.layout.supervisor().join(paths::CONTROL_SOCKET)).ok()?;
            let aside = Record::default();
            let mut client = Played::new(stream, &aside, Socket::Control, (End::Client, End::Supervisor));
            client.send(&ControlRequest::Status, &[]).ok()?;
            client.receive()
        };
        asked().unwrap_or_default()
    }

    fn start_supervisor(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "become_the_supervisor", "--nocapture"]).env(MACHINE, self.room.path());
        if self.environment == Environment::Pod {
            command.env(IN_POD, "");
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.log("supervisor")).spawn();
        self.supervisor = Some(started.unwrap());
    }

    fn end_supervisor(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            let _ = supervisor.kill();
            supervisor.wait().unwrap();
        }
    }

    fn log(&self, of: &str) -> File {
        OpenOptions::new().append(true).create(true).open(self.room.path().join(format!("{of}.log"))).unwrap()
    }

    fn play_agent(&self) {
        let listener = UnixListener::bind(self.layout.order().join(paths::AGENT_SOCKET)).unwrap();
        let (record, disk) = (self.record.clone(), disk(&self.layout));
        let through_agent = Arc::clone(&self.through_agent);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let peer = Played::new(stream, &record, Socket::Agent, (End::Agent, End::Supervisor));
                let (disk, through_agent) = (disk.clone(), Arc::clone(&through_agent));
                std::thread::spawn(move || {
                    // A supervisor that is killed hangs up in the middle of a line.
                    let _ = answer(peer, &disk, &through_agent);
                });
            }
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end_supervisor();
        let Some(mut init) = self.init.take() else { return };
        let spawned = self.record.lines().iter().rev().find_map(|line| line.message["pid"].as_i64());
        if let Some(qemu) = spawned.and_then(|qemu| i32::try_from(qemu).ok()) {
            let _ = kill(Pid::from_raw(qemu), Signal::SIGKILL);
        }
        let _ = init.kill();
        let _ = init.wait();
    }
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).unwrap())
}

/// What a node agent and a shim answer, as far as a supervisor can tell.
fn answer(mut peer: Played, disk: &Path, through_agent: &Mutex<Option<UnixStream>>) -> std::io::Result<()> {
    while let Some(message) = peer.receive() {
        match serde_json::from_value::<AgentRequest>(message).unwrap() {
            AgentRequest::Volume { .. } => {
                let file = OpenOptions::new().read(true).write(true).open(disk)?;
                peer.send(&AgentReply::<GuestAddresses>::Volume, &[file.into()])?;
            }
            AgentRequest::Plumb { interfaces } => {
                let (message, descriptors) = plumbed(&interfaces, true);
                peer.send(&message, &descriptors)?;
            }
            AgentRequest::Sockets { interfaces } => {
                let (message, descriptors) = plumbed(&interfaces, false);
                peer.send(&message, &descriptors)?;
            }
            AgentRequest::Report { .. } | AgentRequest::Record { .. } => {
                peer.send(&AgentReply::<GuestAddresses>::Noted, &[])?;
            }
            AgentRequest::Serve => {
                peer.send(&AgentReply::<GuestAddresses>::Serving, &[])?;
                let (ours, theirs) = UnixStream::pair()?;
                peer.send(&AgentReply::<GuestAddresses>::Connection, &[theirs.into()])?;
                *through_agent.lock().unwrap() = Some(ours);
            }
        }
    }
    Ok(())
}

/// Interfaces in a network namespace of this thread's own, with or without their taps.
fn plumbed(interfaces: &[InterfaceRequest], with_taps: bool) -> (AgentReply<GuestAddresses>, Vec<OwnedFd>) {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut descriptors = Vec::new();
    let described = interfaces.iter().map(|interface| {
        if with_taps {
            descriptors.push(open_tap(&interface.tap, interface.queues).unwrap().into());
        }
        descriptors.push(UdpSocket::bind("0.0.0.0:0").unwrap().into());
        let addresses = json!({"mtu": 1500, "ipv6": null, "ipv4": {"address": "10.0.2.2/24", "server": "10.0.2.1",
            "gateway": "10.0.2.1", "routes": []}});
        InterfaceReply {
            name: interface.name.clone(),
            taps: usize::from(with_taps),
            vhosts: 0,
            sockets: vec![SocketKind::Dhcp4],
            addresses: serde_json::from_value(addresses).unwrap(),
            nameservers: vec!["10.96.0.10".to_owned()],
            searches: vec!["svc.cluster.local".to_owned()],
        }
    });
    let interfaces = described.collect();
    (AgentReply::Plumbed { interfaces }, descriptors)
}

fn disk(layout: &Layout) -> std::path::PathBuf {
    layout.machine().join("volume").join(DISK_IMAGE)
}

/// What a machine is started with, in the files of its order.
fn write_order(layout: &Layout, environment: Environment) {
    let image = disk(layout);
    let directory = image.parent().unwrap();
    fs::create_dir(directory).unwrap();
    File::create(&image).and_then(|file| file.set_len(1 << 20)).unwrap();
    let place = match environment {
        Environment::Pod => VolumePlace::Directory { path: directory.display().to_string() },
        Environment::Host => VolumePlace::Descriptor,
    };
    let mut facts = HostFacts::reference();
    facts.kvm = KvmState::Missing;
    facts.network.vhost_net = false;
    let options = PlanOptions { accelerator: AcceleratorChoice::Tcg, ..PlanOptions::default() };
    let volumes = VolumeTable { places: [(DISK.to_owned(), place)].into() };
    let files = [
        (paths::VMI, serde_json::to_value(manifest())),
        (paths::FACTS, serde_json::to_value(facts)),
        (paths::OPTIONS, serde_json::to_value(options)),
        (paths::VOLUMES, serde_json::to_value(volumes)),
    ];
    for (name, value) in files {
        fs::write(layout.order().join(name), value.unwrap().to_string()).unwrap();
    }
}

/// A machine with nothing to boot: only its firmware runs.
fn manifest() -> VirtualMachineInstance {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "default", "name": "spoken", "uid": "11111111-2222-3333-4444-555555555555"},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {
                "disks": [{"name": DISK, "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
                "clientPassthrough": {},
            }},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": DISK, "persistentVolumeClaim": {"claimName": "c"}}],
            "terminationGracePeriodSeconds": 30,
        },
    }))
    .unwrap();
    let firmware_uuid = uuid::Uuid::from_u128(0x5d30_7ca9_b3ef_428c_8861_06e7_2d69_f223);
    default_vmi(&mut vmi, &ClusterConfig::offline(), &garboard_api::Identity { firmware_uuid });
    vmi
}
