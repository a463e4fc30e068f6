use garboard_protocol::control::PauseReason;
use garboard_protocol::statistics::{BalloonStatistics, OperationStatistics};
use garboard_protocol::testing::running;
use garboard_qmp::agent::AgentOptions;
use garboard_qmp::testing::{AgentBehaviour, Behaviour, FakeAgent, FakeMonitor};
use garboard_qmp::{ConnectOptions, Interest};
use serde_json::{Value, json};

use super::*;

fn plan() -> Arc<LaunchPlan> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
    Arc::new(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

/// A machine, and who keeps its ends open.
struct Machine {
    counters: Counters,
    status: watch::Sender<Status>,
    _monitor: watch::Sender<Option<Monitor>>,
    _plan: watch::Sender<Option<Arc<LaunchPlan>>>,
    _agent: watch::Sender<Option<Agent>>,
}

impl Machine {
    fn of(monitor: Option<Monitor>, plan: Option<Arc<LaunchPlan>>, agent: Option<Agent>) -> Self {
        let (monitor_up, monitor) = watch::channel(monitor);
        let (plan_known, plan) = watch::channel(plan);
        let (agent_up, agent) = watch::channel(agent);
        let (status_known, status) = watch::channel(running(1));
        let counters = Counters::new(Sources { monitor, plan, agent, status });
        Self { counters, status: status_known, _monitor: monitor_up, _plan: plan_known, _agent: agent_up }
    }

    async fn counted(&self) -> Statistics {
        let reply = self.counters.reply().await;
        let ControlReply::Statistics(statistics) = reply else { panic!("{reply:?}") };
        *statistics
    }
}

async fn monitor() -> (FakeMonitor, Monitor) {
    let (fake, stream) = FakeMonitor::pair().unwrap();
    let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
    (fake, monitor)
}

async fn agent() -> (FakeAgent, Agent) {
    let (fake, stream) = FakeAgent::pair(b"").unwrap();
    let limit = Duration::from_secs(60);
    let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
    (fake, agent)
}

fn block(qdev: &str, reads: u64) -> Value {
    json!({"device": "", "qdev": qdev, "stats": {
        "rd_bytes": 512 * reads, "wr_bytes": 2, "rd_operations": reads, "wr_operations": 4, "flush_operations": 5,
        "rd_total_time_ns": 6, "wr_total_time_ns": 7, "flush_total_time_ns": 8,
    }})
}

#[tokio::test]
async fn qemu_and_the_guest_agent_are_asked_once_for_several_who_ask_at_once() {
    let (fake, monitor) = monitor().await;
    let plan = plan();
    let first = plan.disks[0].clone();
    let of_first = format!("/machine/peripheral/{}/virtio-backend", first.device);
    fake.script(
        "query-blockstats",
        Behaviour::Reply(json!([block(&of_first, 3), block("/machine/peripheral/foreign", 9)])),
    );
    fake.script("query-balloon", Behaviour::Reply(json!({"actual": 100})));
    fake.script("qom-get", Behaviour::Reply(json!(0)));
    fake.script("qom-set", Behaviour::Reply(json!({})));
    let reported = json!({"last-update": 7, "stats": {"stat-total-memory": 90, "stat-free-memory": u64::MAX}});
    fake.script("qom-get", Behaviour::Reply(reported));
    let (of_guest, agent) = agent().await;
    let mountpoint = "\u{7}".repeat(256);
    let root = json!({"name": "vda1", "mountpoint": mountpoint, "type": "ext4", "used-bytes": 1, "total-bytes": 2, "disk": []});
    let empty = json!({"name": "sr0", "mountpoint": "/media", "type": "iso9660", "disk": []});
    of_guest.on("guest-get-fsinfo", AgentBehaviour::Reply(json!([root, empty])));
    let machine = Machine::of(Some(monitor), Some(Arc::clone(&plan)), Some(agent));
    let (counted, again) = tokio::join!(machine.counted(), machine.counted());
    assert_eq!(counted, again);
    assert_eq!(counted.memory_bytes, running(1).memory_bytes);
    let [disk] = counted.disks.as_slice() else { panic!("{counted:?}") };
    assert_eq!(disk.volume, first.volume);
    assert_eq!(disk.read, OperationStatistics { operations: 3, bytes: 1536, nanoseconds: 6 });
    assert_eq!(disk.flush, OperationStatistics { operations: 5, bytes: 0, nanoseconds: 8 });
    let balloon = BalloonStatistics { actual_bytes: Some(100), total_bytes: Some(90), ..BalloonStatistics::default() };
    assert_eq!(counted.balloon, Some(balloon));
    assert_eq!(counted.file_systems.len(), 1, "one without a size is left out");
    assert_eq!(counted.file_systems[0].mountpoint.chars().count(), LONGEST_NAME);
    let asked = |command: &str| fake.received().iter().filter(|each| each.command == command).count();
    assert_eq!((asked("query-blockstats"), asked("qom-set")), (1, 1));
    let taps: Vec<_> = counted.interfaces.iter().map(|interface| interface.tap.clone()).collect();
    assert!(taps.iter().all(|tap| tap.starts_with("tap")), "{taps:?}");
}

#[tokio::test]
async fn a_paused_guest_is_not_asked_and_a_machine_without_qemu_has_its_memory_alone() {
    let (of_guest, agent) = agent().await;
    let machine = Machine::of(None, None, Some(agent));
    let paused = Status { paused: Some(PauseReason::PausedByUser), ..running(2) };
    machine.status.send_replace(paused);
    let counted = machine.counted().await;
    let memory_bytes = running(1).memory_bytes;
    assert_eq!(counted, Statistics { paused: true, memory_bytes, ..Statistics::default() });
    assert!(of_guest.received().is_empty());
}

#[tokio::test]
async fn a_qemu_that_has_reported_its_end_is_not_asked() {
    let (fake, monitor) = monitor().await;
    let mut events = monitor.subscribe(Interest::Named(&["SHUTDOWN"]));
    fake.emit("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
    assert!(events.next().await.is_some());
    let counted = Machine::of(Some(monitor), Some(plan()), None).counted().await;
    assert_eq!((counted.memory_bytes, counted.disks.len()), (running(1).memory_bytes, 0));
    assert!(fake.received().iter().all(|each| each.command != "query-blockstats"));
}

// Time passes only while nothing else is left to do, however busy the machine.
#[tokio::test(start_paused = true)]
async fn what_does_not_answer_in_time_is_left_out_and_the_rest_is_there() {
    let (fake, monitor) = monitor().await;
    let plan = plan();
    let device = plan.disks[0].device.clone();
    fake.script("query-blockstats", Behaviour::Reply(json!([block(&device, 1)])));
    fake.script("query-balloon", Behaviour::Silence);
    let (of_guest, agent) = agent().await;
    of_guest.on("guest-get-fsinfo", AgentBehaviour::Silence);
    let machine = Machine::of(Some(monitor), Some(plan), Some(agent));
    let began = Instant::now();
    let counted = machine.counted().await;
    assert!(began.elapsed() <= WITHIN * 2, "{:?}", began.elapsed());
    assert_eq!((counted.disks.len(), counted.balloon, counted.file_systems.len()), (1, None, 0));
}
