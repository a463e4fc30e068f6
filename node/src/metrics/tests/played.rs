//! A node that is played: launcher pods with a QEMU each, in a `/proc` of its own, and supervisors that answer what a test chooses.

use std::path::Path;

use garboard_agent::line_socket::LineSocket;
use garboard_net::GuestAddresses;
use garboard_protocol::agent::AgentReply;
use garboard_protocol::control::ControlReply;
use garboard_protocol::statistics::{
    BalloonStatistics, DiskStatistics, FileSystemStatistics, OperationStatistics, TappedInterface,
};
use garboard_protocol::wire;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;

type Reply = AgentReply<GuestAddresses>;

/// What the kernel says of a link that the machine has, and of one that every namespace has.
const LINKS: &str = "    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  tap0: 100 10 1 2 0 0 0 0 200 20 3 4 0 0 0 0\n";
/// Threads of each QEMU: two vCPUs, and what it has beside them.
const THREADS: [&str; 6] = ["qemu-system-x86", "call_rcu", "CPU 0/KVM", "CPU 1/KVM", "worker", "worker"];

pub(super) struct Node {
    pub(super) served: Served,
    supervisors: Connected,
    room: TempDir,
}

impl Node {
    /// With so many machines that run. Nothing is known of their instances, and no supervisor is connected.
    pub(super) fn of(machines: usize) -> Self {
        let room = tempfile::tempdir().unwrap();
        write(
            &room.path().join("self/cgroup"),
            "0::/kubepods/burstable/pod11111111-7c1f-4d57-9c5e-6f0c7d6a1b2c/agent\n",
        );
        let pods: Arc<Mirror<LauncherPod>> = Arc::default();
        let supervisors = Connected::default();
        let sources = Sources {
            node: "node-1".to_owned(),
            version: "0.1.0-test",
            pods: Arc::clone(&pods),
            vmis: Arc::default(),
            processes: room.path().to_owned(),
            requests: Requests::default(),
        };
        let served = Served::new(supervisors.clone(), sources);
        let node = Self { served, supervisors, room };
        for number in 0..machines {
            pods.insert(pod_uid(number).as_str(), pod(number));
            node.run_qemu(number);
        }
        node
    }

    fn run_qemu(&self, number: usize) {
        let directory = self.directory(number);
        write(&directory.join("comm"), "qemu-system-x86\n");
        write(&directory.join("cgroup"), &format!("0::/kubepods/burstable/pod{}/compute\n", pod_uid(number)));
        write(&directory.join("stat"), &stat("qemu-system-x86"));
        write(&directory.join("status"), "VmRSS:\t  524288 kB\nCpus_allowed_list:\t0-3\n");
        write(&directory.join("net/dev"), LINKS);
        for (thread, name) in THREADS.into_iter().enumerate() {
            self.run_thread(number, thread, name);
        }
    }

    /// One more thread of a QEMU, with the name that it gave itself.
    pub(super) fn run_thread(&self, number: usize, thread: usize, name: &str) {
        let directory = self.directory(number).join("task").join(thread.to_string());
        write(&directory.join("comm"), &format!("{name}\n"));
        write(&directory.join("stat"), &stat(name));
        write(&directory.join("status"), "Cpus_allowed_list:\t0-3\n");
        write(&directory.join("schedstat"), "3000000000 500000000 12\n");
    }

    fn directory(&self, number: usize) -> PathBuf {
        self.room.path().join((1000 + number).to_string())
    }

    /// From now on its instance is known: two vCPUs, two disks and an interface.
    pub(super) fn know_instance(&self, number: usize) {
        let vmi = json!({
            "metadata": {"name": format!("vm-{number}"), "labels": {"app": "shop", "kubevirt.io/domain": format!("vm-{number}")}},
            "spec": {"domain": {
                "cpu": {"cores": 2},
                "devices": {"disks": [{"name": "root"}, {"name": "data"}], "interfaces": [{"name": "default"}]},
            }},
        });
        self.served.sources.vmis.insert(&instance_uid(number), Arc::new(serde_json::from_value(vmi).unwrap()));
    }

    /// From now on its supervisor is connected, and answers the first question with `answer(0)`, the next one with `answer(1)`.
    pub(super) async fn answer(&self, number: usize, answer: impl Fn(usize) -> Statistics + Send + 'static) {
        let (agents, supervisors) = UnixStream::pair().unwrap();
        let (connected, uid) = (self.supervisors.clone(), pod_uid(number));
        tokio::spawn(async move {
            let mut socket = LineSocket::new(agents);
            // Until the test ends.
            let _ = connected.serve(&mut socket, &uid).await;
        });
        let mut socket = LineSocket::new(supervisors);
        assert_eq!(socket.receive::<Reply>().await.unwrap(), Reply::Serving);
        tokio::spawn(async move {
            for asked in 0.. {
                if !matches!(socket.receive::<Reply>().await, Ok(Reply::Connection)) {
                    return;
                }
                let connection = std::os::unix::net::UnixStream::from(socket.take_descriptors(1).unwrap().remove(0));
                connection.set_nonblocking(true).unwrap();
                let mut connection = BufReader::new(UnixStream::from_std(connection).unwrap());
                connection.read_until(b'\n', &mut Vec::new()).await.unwrap();
                let reply = ControlReply::Statistics(Box::new(answer(asked)));
                connection.write_all(&wire::encode(&reply).unwrap()).await.unwrap();
            }
        });
    }
}

/// What an honest supervisor answers: two disks, an interface, a balloon whose driver reports all, three file systems.
pub(super) fn honest() -> Statistics {
    let operation = OperationStatistics { operations: 123_456, bytes: 1_234_567_890, nanoseconds: 12_345_678_901 };
    let disk = |volume: &str| DiskStatistics {
        volume: volume.to_owned(),
        read: operation.clone(),
        write: operation.clone(),
        flush: operation.clone(),
    };
    let file_system = |mountpoint: &str| FileSystemStatistics {
        name: "vda1".to_owned(),
        mountpoint: mountpoint.to_owned(),
        kind: "ext4".to_owned(),
        total_bytes: 21_474_836_480,
        used_bytes: 10_737_418_240,
    };
    let some = Some(1_073_741_824);
    let balloon = BalloonStatistics {
        actual_bytes: some,
        total_bytes: some,
        free_bytes: some,
        available_bytes: some,
        cached_bytes: some,
        swap_in_bytes: some,
        swap_out_bytes: some,
        major_faults: some,
        minor_faults: some,
    };
    Statistics {
        paused: false,
        memory_bytes: 1_073_741_824,
        balloon: Some(balloon),
        disks: vec![disk("root"), disk("data")],
        interfaces: vec![TappedInterface { name: "default".to_owned(), tap: "tap0".to_owned() }],
        file_systems: ["/", "/home", "/var/lib/postgresql"].map(file_system).to_vec(),
        unread: 0,
    }
}

fn pod_uid(number: usize) -> PodUid {
    PodUid::parse(&format!("0c6b6b0e-7c1f-4d57-9c5e-{number:012x}")).unwrap()
}

fn instance_uid(number: usize) -> String {
    format!("11111111-2222-3333-4444-{number:012x}")
}

fn pod(number: usize) -> LauncherPod {
    let (name, owner) = (format!("vm-{number}"), instance_uid(number));
    let mut pod = example();
    let metadata = &mut pod.metadata;
    metadata.uid = Some(pod_uid(number).to_string());
    metadata.name = Some(format!("virt-launcher-{name}-abcde"));
    metadata.labels.get_or_insert_default().insert("kubevirt.io/created-by".to_owned(), owner.clone());
    for each in metadata.owner_references.iter_mut().flatten() {
        (each.name, each.uid) = (name.clone(), owner.clone());
    }
    launcher_pod(&pod, "node-1").unwrap()
}

fn stat(name: &str) -> String {
    format!("7 ({name}) S {}150 50{} 0", "1 ".repeat(10), " 0".repeat(30))
}

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}
