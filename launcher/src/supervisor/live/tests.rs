use std::time::Duration;

use garboard_plan::live::{Drive, HeldByQemu};
use garboard_protocol::control::QmpAccess;
use garboard_protocol::paths::Layout;
use garboard_qmp::broker::ClientAccess;
use garboard_qmp::testing::{Behaviour, FakeMonitor};
use garboard_qmp::{ConnectOptions, Request};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tracing::Span;

use super::super::broker;
use super::super::control::{Caller, QmpClient, Way};
use super::super::qmp_places::QmpPlaces;
use super::super::run::{Context, Environment};
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn plan() -> LaunchPlan {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(format!("{path}/plan.json")).unwrap()).unwrap();
    plan["argv"] = json!(["/usr/bin/qemu", "-device", "virtio-rng-pci,id=rng0", "-netdev", "user,id=net0"]);
    serde_json::from_value(plan).unwrap()
}

/// A machine's own directory.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn written(&self) -> LivePlan {
        read(self.0.path()).unwrap().expect("a document")
    }

    /// Waits until the document is like this.
    async fn until(&self, is_so: impl Fn(&LivePlan) -> bool) {
        let waiting = async {
            while !is_so(&self.written()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{:?}", self.written());
        }
    }
}

async fn connected() -> (FakeMonitor, Monitor) {
    let (fake, stream) = FakeMonitor::pair().unwrap();
    let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
    (fake, monitor)
}

/// A client of the broker that may do everything, as `garboard qmp --allow-dangerous` has it.
async fn client(room: &Room, live: &Live, monitor: Monitor) -> (Monitor, Box<dyn std::any::Any>) {
    let (happened, inbox) = mpsc::channel(64);
    let context = Context { layout: Layout::new(room.0.path()), environment: Environment::Pod, happened };
    let (up, seen) = watch::channel(Some(monitor));
    let (clients, station) = mpsc::channel(1);
    tokio::spawn(broker::serve(station, seen, context, live.clone()));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let caller = Caller { uid: 0, pid: None, claimed: None, way: Way::Socket };
    let place = QmpPlaces::default().take(QmpAccess::Dangerous, &caller).unwrap();
    let client = QmpClient { stream: theirs, access: QmpAccess::Dangerous, caller, span: Span::none(), place };
    clients.send(client).await.ok().unwrap();
    let options = ConnectOptions { access: ClientAccess::ReadOnly, ..ConnectOptions::named("client") };
    let (client, _) = Monitor::connect(ours.into_std().unwrap(), options).await.unwrap();
    (client, Box::new((up, clients, inbox)))
}

fn device(id: &str) -> Request {
    Request::new("device_add").arguments(&json!({"driver": "virtio-rng-pci", "id": id}))
}

#[tokio::test]
async fn what_a_launch_makes_qemu_hold_is_written_before_it_and_then_what_qemu_reports() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let begun = room.written();
    assert_eq!((begun.version, begun.held.devices.contains("rng0")), (garboard_plan::live::LIVE_VERSION, true));
    let (_fake, monitor) = connected().await;
    tokio::spawn(live.follow(monitor));
    room.until(|live| live.held.devices.is_empty()).await;
    assert!(room.written().held.netdevs.contains("net0"), "no query lists it");
}

#[tokio::test]
async fn a_change_is_in_the_document_before_qemu_has_it() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (fake, monitor) = connected().await;
    fake.script("device_add", Behaviour::Silence);
    let (client, _broker) = client(&room, &live, monitor).await;
    tokio::spawn(async move { client.send(device("late")).await });
    fake.until_received("device_add", 1).await;
    let pending = room.written().pending;
    assert_eq!(pending, [Change { command: "device_add".into(), subject: Some("late".into()), link: None }]);
    // The supervisor ends here. The next one goes on from what is written, and has nothing pending.
    drop(Live::resume(room.0.path(), &plan()));
    assert_eq!(room.written().pending, []);
}

#[tokio::test]
async fn what_a_client_changes_is_in_the_document() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (_fake, monitor) = connected().await;
    tokio::spawn(live.clone().follow(monitor.clone()));
    let (client, _broker) = client(&room, &live, monitor).await;
    client.send(device("d1")).await.unwrap();
    client.send(Request::new("netdev_add").arguments(&json!({"type": "user", "id": "net1"}))).await.unwrap();
    client.send(Request::new("blockdev-add").arguments(&json!({"driver": "null-co", "node-name": "n"}))).await.unwrap();
    room.until(|live| live.pending.is_empty() && live.held.devices.contains("d1")).await;
    room.until(|live| live.held.netdevs.contains("net1") && live.held.block_nodes.contains("n")).await;
    client.send(Request::new("device_del").arguments(&json!({"id": "d1"}))).await.unwrap();
    room.until(|live| !live.held.devices.contains("d1")).await;
    let refused = client.send(Request::new("netdev_del").arguments(&json!({"id": "nothing"}))).await;
    assert!(refused.is_err());
    room.until(|live| live.pending.is_empty()).await;
    assert!(room.written().held.netdevs.contains("net1"));
}

#[tokio::test]
async fn a_cable_that_a_client_pulls_is_out_also_for_the_next_supervisor() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (fake, monitor) = connected().await;
    fake.machine(|machine| {
        machine.devices.insert("nic-default".to_owned(), json!({}));
        machine.netdevs.insert("net-default".to_owned(), json!({}));
    });
    tokio::spawn(live.clone().follow(monitor.clone()));
    room.until(|live| live.held.devices.contains("nic-default")).await;
    let mut links = live.links();
    let only = |link| CardLinks::from([("nic-default".to_owned(), link)]);
    assert_eq!(*links.borrow_and_update(), only(LinkState::Up));
    let (client, _broker) = client(&room, &live, monitor).await;
    let set_link = |name: &str, up: bool| Request::new("set_link").arguments(&json!({"name": name, "up": up}));
    assert!(client.send(set_link("nic-other", false)).await.is_err(), "QEMU does not have it");
    client.send(set_link("net-default", false)).await.unwrap();
    let pulled = links.wait_for(|links| *links == only(LinkState::Down));
    assert!(tokio::time::timeout(PATIENCE, pulled).await.is_ok_and(|links| links.is_ok()), "{:?}", room.written());
    assert_eq!(live.pulled(), ["nic-default"]);
    let next = Live::resume(room.0.path(), &plan());
    assert_eq!(*next.links().borrow(), only(LinkState::Down));
}

#[tokio::test(start_paused = true)]
async fn what_happens_without_a_command_is_seen_by_its_event() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (fake, monitor) = connected().await;
    monitor.send(device("d1")).await.unwrap();
    tokio::spawn(live.follow(monitor.clone()));
    room.until(|live| live.held.devices.contains("d1")).await;
    monitor.send(Request::new("device_del").arguments(&json!({"id": "d1"}))).await.unwrap();
    room.until(|live| live.held.devices.is_empty()).await;
    drop(fake);
}

/// `query-block` and `query-named-block-nodes` ask the storage for sizes; while it hangs, the vCPUs stand still (QEMU 7.2, tried).
#[tokio::test(start_paused = true)]
async fn no_storage_has_to_answer_and_trays_follow_their_events() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (fake, monitor) = connected().await;
    for medium in [json!("iso"), json!(null)] {
        let kinds = json!([{"name": "new", "type": "child<scsi-cd>"}, {"name": "root", "type": "child<scsi-hd>"}]);
        fake.script("qom-list", Behaviour::Reply(kinds));
        let nodes = json!([{"node-name": "iso"}, {"node-name": "#block7"}, {"node-name": "data"}]);
        fake.script("query-blockstats", Behaviour::Reply(nodes));
        let backends = json!([
            {"device": "", "qdev": "/machine/peripheral/new/0", "node-name": medium},
            {"device": "", "qdev": "root", "node-name": "data"},
        ]);
        fake.script("query-blockstats", Behaviour::Reply(backends));
    }
    tokio::spawn(live.follow(monitor));
    let closed = Drive { is_open: false, medium: Some("iso".to_owned()) };
    room.until(|live| live.held.drives.get("new") == Some(&closed)).await;
    let held = room.written().held;
    assert_eq!(held.drives.len(), 1, "a disk has no tray");
    assert_eq!(held.block_nodes, ["data".to_owned(), "iso".to_owned()].into());
    fake.emit("DEVICE_TRAY_MOVED", json!({"device": "", "id": "/machine/peripheral/new/0", "tray-open": true}));
    let open = Drive { is_open: true, medium: None };
    room.until(|live| live.held.drives.get("new") == Some(&open)).await;
    let asked = fake.received();
    assert!(!asked.iter().any(|one| ["query-block", "query-named-block-nodes"].contains(&one.command.as_str())));
}

#[tokio::test]
async fn input_to_a_guest_writes_no_file() {
    let room = Room::new();
    let live = Live::begin(room.0.path(), &plan());
    let (fake, monitor) = connected().await;
    fake.script("send-key", Behaviour::Reply(json!({})));
    let (client, _broker) = client(&room, &live, monitor).await;
    let file = room.0.path().join(paths::LIVE);
    std::fs::remove_file(&file).unwrap();
    let keys = json!({"keys": [{"type": "qcode", "data": "ret"}]});
    client.send(Request::new("send-key").arguments(&keys)).await.unwrap();
    // Its outcome is settled before the next command is taken.
    client.send(Request::new("query-status")).await.unwrap();
    assert!(!file.exists());
    client.send(device("d1")).await.unwrap();
    assert!(file.exists());
}

#[test]
fn a_supervisor_that_attaches_goes_on_from_the_document_and_without_one_from_the_plan() {
    let room = Room::new();
    drop(Live::resume(room.0.path(), &plan()));
    assert!(room.written().held.devices.contains("rng0"), "an older supervisor wrote none");
    let later = json!({"version": 7, "held": {"devices": ["hot"], "weather": "fine"}, "pending": [
        {"command": "netdev_add", "subject": "net5"}]});
    std::fs::write(room.0.path().join(paths::LIVE), later.to_string()).unwrap();
    drop(Live::resume(room.0.path(), &plan()));
    let held = HeldByQemu {
        devices: ["hot".to_owned()].into(),
        netdevs: ["net5".to_owned()].into(),
        // It was of a version that did not follow links.
        cards: LivePlan::of(&plan()).held.cards,
        ..HeldByQemu::default()
    };
    assert_eq!((room.written().held, room.written().pending), (held, Vec::new()));
    std::fs::write(room.0.path().join(paths::LIVE), "{").unwrap();
    drop(Live::resume(room.0.path(), &plan()));
    assert!(
        room.written().held.devices.contains("rng0"),
        "one that cannot be read does not keep a supervisor from attaching"
    );
}
