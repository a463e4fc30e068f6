//! A machine starts and stops as its plan says, whether this supervisor made the plan or an earlier one.

use std::path::Path;

use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, Lifecycle, StartState};
use garboard_protocol::control::StopMode;
use garboard_protocol::paths::{self, Layout};
use garboard_qmp::ConnectOptions;
use garboard_qmp::testing::{AgentBehaviour, FakeMonitor};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::*;
use super::{PATIENCE, agent, lifecycle, planned};
use crate::supervisor::seed::{self, MachineMetadata};
use crate::vm::RunState;

fn write(directory: &Path, name: &str, content: &Value) {
    std::fs::write(directory.join(name), content.to_string()).unwrap();
}

/// The directory of a machine that was launched with this plan, or that waits for one. What the manifest says of start and stop
/// is never the plan's answer here.
fn directory(room: &Path, launched_with: Option<&Lifecycle>) -> (Layout, Journal) {
    let layout = Layout::new(room);
    std::fs::create_dir(layout.supervisor()).unwrap();
    std::fs::create_dir(layout.order()).unwrap();
    if let Some(lifecycle) = launched_with {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
        let plan: LaunchPlan = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let plan = LaunchPlan { lifecycle: lifecycle.clone(), ..plan };
        write(&layout.supervisor(), paths::PLAN, &serde_json::to_value(plan).unwrap());
        return (layout, Journal { launched: true, started: true, ..Journal::default() });
    }
    let spec = json!({"startStrategy": "Paused", "terminationGracePeriodSeconds": 5, "domain": {"devices": {}}});
    write(&layout.order(), paths::VMI, &json!({"metadata": {"name": "vm"}, "spec": spec}));
    write(&layout.order(), paths::FACTS, &serde_json::to_value(HostFacts::reference()).unwrap());
    write(&layout.order(), paths::OPTIONS, &json!({}));
    write(&layout.order(), paths::VOLUMES, &json!({}));
    (layout, Journal::default())
}

/// A driver that a supervisor of this directory starts.
struct Driven {
    happened: mpsc::Sender<Input>,
    requests: mpsc::Sender<Offer>,
    status: watch::Receiver<Status>,
    to_init: mpsc::Receiver<ToInit>,
    fake: FakeMonitor,
    monitor: Monitor,
}

impl Driven {
    async fn start(room: &Path, launched_with: Option<&Lifecycle>) -> Self {
        let (layout, journal) = directory(room, launched_with);
        let whose = MachineMetadata::read(&layout, &journal).unwrap();
        let first = seed::first_status(&whose, &journal, "1");
        let seed = seed::from_journal(&journal, &whose, first.clone(), &layout.supervisor());
        let (happened, inbox) = mpsc::channel(4);
        let (requests, request_inbox) = mpsc::channel(4);
        let (init, to_init) = mpsc::channel(16);
        let (publish, status) = watch::channel(first);
        tokio::spawn(Driver::new(seed, init, publish).run(Inputs { happened: inbox, requests: request_inbox }));
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        Self { happened, requests, status, to_init, fake, monitor }
    }

    async fn happens(&self, input: Input) {
        self.happened.send(input).await.ok().unwrap();
    }

    async fn monitor_is_up(&self, run_state: RunState) {
        self.happens(Input::MonitorUp { monitor: self.monitor.clone(), run_state }).await;
    }

    async fn until(&mut self, is_so: impl FnMut(&Status) -> bool) {
        tokio::time::timeout(PATIENCE, self.status.wait_for(is_so)).await.unwrap().unwrap();
    }

    async fn receives(&self, command: &str) {
        let received = tokio::time::timeout(PATIENCE, self.fake.until_received(command, 1)).await;
        assert!(received.is_ok(), "{command} is missing: {:?}", self.fake.received());
    }

    fn has_received(&self, command: &str) -> bool {
        self.fake.received().iter().any(|received| received.command == command)
    }

    async fn stop(&self) {
        let (reply, verdict) = oneshot::channel();
        let request = ChangeRequest::Stop(StopMode::Graceful { within_seconds: None });
        self.requests
            .send(Offer { request, client: Client::Once { reply, done: None }, cause: Cause::supervisor() })
            .await
            .ok()
            .unwrap();
        assert_eq!(verdict.await, Ok(Verdict::Queued));
    }

    /// The time that PID 1 got, seconds.
    async fn seconds_left(&mut self) -> u64 {
        match tokio::time::timeout(PATIENCE, self.to_init.recv()).await.unwrap() {
            Some(ToInit::PoweringDown { within_seconds }) => within_seconds,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_first_start_lets_the_guest_run_or_wait_as_its_plan_says() {
    let room = tempfile::tempdir().unwrap();
    let mut runs = Driven::start(room.path(), None).await;
    runs.happens(planned(lifecycle(StartState::Running, true))).await;
    runs.monitor_is_up(RunState::Prelaunch).await;
    runs.receives("cont").await;
    runs.until(|status| status.observed && status.paused.is_none()).await;

    let room = tempfile::tempdir().unwrap();
    let mut waits = Driven::start(room.path(), None).await;
    waits.happens(planned(lifecycle(StartState::Paused, true))).await;
    waits.monitor_is_up(RunState::Prelaunch).await;
    waits.until(|status| status.paused.is_some()).await;
    assert!(!waits.has_received("cont"), "{:?}", waits.fake.received());
}

#[tokio::test]
async fn when_qemu_was_executed_is_reported_by_the_supervisor_that_started_the_machine_alone() {
    let usual = lifecycle(StartState::Running, true);
    let has_executed = |status: &Status| status.supervisor.as_ref().is_some_and(|own| own.executed_at_ms.is_some());
    let room = tempfile::tempdir().unwrap();
    let mut starts = Driven::start(room.path(), None).await;
    starts.happens(planned(usual.clone())).await;
    starts.happens(Input::Init(FromInit::Spawned { pid: 7 })).await;
    starts.monitor_is_up(RunState::Prelaunch).await;
    starts.until(|status| status.observed && has_executed(status)).await;

    let room = tempfile::tempdir().unwrap();
    let mut attaches = Driven::start(room.path(), Some(&usual)).await;
    attaches.happens(planned(usual.clone())).await;
    attaches.monitor_is_up(RunState::Running).await;
    attaches.until(|status| status.observed).await;
    let last = attaches.status.borrow().clone();
    assert!(!has_executed(&last), "{last:?}");
}

#[tokio::test]
async fn a_stop_waits_as_long_as_the_plan_says_and_presses_a_button_that_is_there() {
    let has_acpi = lifecycle(StartState::Running, true);
    for launched_with in [None, Some(&has_acpi)] {
        let room = tempfile::tempdir().unwrap();
        let mut driven = Driven::start(room.path(), launched_with).await;
        driven.happens(planned(has_acpi.clone())).await;
        driven.monitor_is_up(RunState::Running).await;
        driven.until(|status| status.observed).await;
        driven.stop().await;
        driven.receives("system_powerdown").await;
        assert!((890..=900).contains(&driven.seconds_left().await), "first start: {}", launched_with.is_none());
    }
}

#[tokio::test]
async fn a_guest_without_acpi_is_asked_by_its_agent_or_not_at_all() {
    let no_acpi = lifecycle(StartState::Running, false);
    for launched_with in [None, Some(&no_acpi)] {
        let room = tempfile::tempdir().unwrap();
        let mut with_agent = Driven::start(room.path(), launched_with).await;
        with_agent.happens(planned(no_acpi.clone())).await;
        with_agent.monitor_is_up(RunState::Running).await;
        let (fake, agent) = agent().await;
        fake.on("guest-shutdown", AgentBehaviour::Reply(json!({})));
        with_agent.happens(Input::AgentUp(Some(agent))).await;
        with_agent.until(|status| status.observed).await;
        with_agent.stop().await;
        let was_asked = async {
            while !fake.received().iter().any(|command| command == "guest-shutdown") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, was_asked).await.unwrap();
        assert!((890..=900).contains(&with_agent.seconds_left().await));
        assert!(!with_agent.has_received("system_powerdown") && !with_agent.has_received("quit"));

        let room = tempfile::tempdir().unwrap();
        let mut without = Driven::start(room.path(), launched_with).await;
        without.happens(planned(no_acpi.clone())).await;
        without.monitor_is_up(RunState::Running).await;
        without.until(|status| status.observed).await;
        without.stop().await;
        without.receives("quit").await;
        assert!(!without.has_received("system_powerdown"), "{:?}", without.fake.received());
    }
}
