//! The driver and the monitor together, over a simulated QEMU: what takes several steps, and what another supervisor goes on with.

use std::collections::BTreeMap;

use garboard_plan::{LaunchPlan, StartState};
use garboard_protocol::control::{GuestStatus, Link, StopMode};
use garboard_protocol::journal::{Deadline, JournaledFreeze, JournaledSoftReboot, SoftRebootStep};
use garboard_protocol::paths::{self, Layout};
use garboard_qmp::testing::{AgentBehaviour, FakeAgent, FakeMonitor, GuestPower};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::*;
use super::{PATIENCE, agent, lifecycle, planned};
use crate::supervisor::journal;
use crate::supervisor::live::Live;
use crate::supervisor::monitor::{self, MonitorUsers, RetryPolicy};
use crate::supervisor::run::{Context, Environment};
use crate::supervisor::seed::{self, MachineMetadata};

/// A QEMU whose guest runs, and the directory of its machine.
pub(super) struct Qemu {
    room: tempfile::TempDir,
    pub(super) fake: FakeMonitor,
}

/// A supervisor of it.
pub(super) struct Supervisor {
    happened: mpsc::Sender<Input>,
    pub(super) requests: mpsc::Sender<Offer>,
    pub(super) status: watch::Receiver<Status>,
    _to_init: mpsc::Receiver<ToInit>,
}

fn plan() -> LaunchPlan {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    plan["argv"] = json!([]);
    serde_json::from_value(plan).unwrap()
}

impl Qemu {
    pub(super) fn start(guest: GuestPower) -> Self {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        std::fs::write(layout.supervisor().join(paths::PLAN), serde_json::to_vec(&plan()).unwrap()).unwrap();
        let fake = FakeMonitor::listen(&layout.supervisor().join(paths::MONITOR_SOCKET)).unwrap();
        fake.machine(|machine| {
            "running".clone_into(&mut machine.status);
            machine.guest_power = guest;
        });
        let qemu = Self { room, fake };
        assert!(qemu.write(&Journal { launched: true, started: true, ..Journal::default() }));
        qemu
    }

    fn layout(&self) -> Layout {
        Layout::new(self.room.path())
    }

    pub(super) fn journal(&self) -> Journal {
        journal::read(&self.layout().supervisor()).unwrap().unwrap()
    }

    pub(super) fn write(&self, journal: &Journal) -> bool {
        journal::write(&self.layout().supervisor(), journal)
    }

    /// A supervisor that finds what the last one has left.
    pub(super) fn attach(&self) -> Supervisor {
        let (layout, journal) = (self.layout(), self.journal());
        let whose = MachineMetadata::read(&layout, &journal).unwrap();
        let status = seed::first_status(&whose, &journal, "1");
        let seed = seed::from_journal(&journal, &whose, status.clone(), &layout.supervisor());
        let (happened, inbox) = mpsc::channel(64);
        let (requests, request_inbox) = mpsc::channel(4);
        let (to_init, init_outbox) = mpsc::channel(4);
        let (publish, published) = watch::channel(status);
        tokio::spawn(Driver::new(seed, to_init, publish).run(Inputs { happened: inbox, requests: request_inbox }));
        let plan = plan();
        let users = MonitorUsers { monitor: watch::channel(None).0, live: Live::resume(&layout.supervisor(), &plan) };
        let context = Context { layout, environment: Environment::Pod, happened: happened.clone() };
        tokio::spawn(monitor::run(context, Arc::new(plan), None, users, RetryPolicy::TriedAgain));
        Supervisor { happened, requests, status: published, _to_init: init_outbox }
    }

    /// What was done to the guest, in its order.
    pub(super) fn done(&self) -> Vec<(String, Value)> {
        let acts = ["set-action", "system_powerdown", "system_reset", "cont", "quit"];
        let received = self.fake.received().into_iter();
        received
            .filter(|each| acts.contains(&each.command.as_str()))
            .map(|each| (each.command, each.arguments["shutdown"].clone()))
            .collect()
    }

    fn is_as_before(&self) -> bool {
        self.fake.machine(|machine| machine.status == "running" && !machine.stays_at_power_off)
    }
}

impl Supervisor {
    async fn asked(&self, request: ChangeRequest) -> (Verdict, oneshot::Receiver<Result<(), String>>) {
        let ((reply, verdict), (done, outcome)) = (oneshot::channel(), oneshot::channel());
        let offer = Offer { request, client: Client::Once { reply, done: Some(done) }, cause: Cause::supervisor() };
        self.requests.send(offer).await.ok().unwrap();
        (timeout(PATIENCE, verdict).await.unwrap().unwrap(), outcome)
    }

    pub(super) async fn until(&self, holds: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.status.clone();
        timeout(PATIENCE, status.wait_for(holds)).await.unwrap().unwrap().clone()
    }

    pub(super) async fn has_attached(&self) {
        self.until(|status| status.observed).await;
    }

    /// Nothing is left of QEMU.
    pub(super) async fn is_over(&self) {
        self.happened.send(Input::Lost).await.ok().unwrap();
        self.until(|status| status.ended.is_some()).await;
    }

    pub(super) async fn has_agent(&self) -> FakeAgent {
        let (fake, agent) = agent().await;
        self.happened.send(Input::AgentUp(Some(agent))).await.ok().unwrap();
        fake
    }
}

fn act(command: &str, shutdown: Value) -> (String, Value) {
    (command.to_owned(), shutdown)
}

#[tokio::test]
async fn a_soft_reboot_by_the_power_button_ends_with_a_guest_that_runs() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    assert_eq!(supervisor.asked(ChangeRequest::SoftReboot).await.0, Verdict::Queued);
    supervisor.until(|status| status.resets == 1 && !status.soft_rebooting && status.paused.is_none()).await;
    qemu.fake.until_received("cont", 1).await;
    let expected = [
        act("set-action", json!("pause")),
        act("system_powerdown", Value::Null),
        act("system_reset", Value::Null),
        act("set-action", json!("poweroff")),
        act("cont", Value::Null),
    ];
    assert_eq!(qemu.done(), expected);
    assert!(qemu.is_as_before());
    assert_eq!(qemu.journal().soft_reboot, None);
}

#[tokio::test]
async fn another_supervisor_gives_a_stop_the_time_that_was_asked_for() {
    let qemu = Qemu::start(GuestPower::Ignores);
    let first = qemu.attach();
    first.has_attached().await;
    assert_eq!(first.asked(ChangeRequest::Prolong { grace_seconds: 4000 }).await.0, Verdict::Queued);
    assert_eq!(qemu.journal().prolonged_ms, 4_000_000);
    drop(first);
    qemu.fake.hang_up();
    let second = qemu.attach();
    second.has_attached().await;
    let stop = ChangeRequest::Stop(StopMode::Graceful { within_seconds: None });
    assert_eq!(second.asked(stop).await.0, Verdict::Queued);
    let left_ms = qemu.journal().deadline.unwrap().at_ms - boot_ms();
    assert!((3_900_000..=4_000_000).contains(&left_ms), "{left_ms}");
}

#[tokio::test]
async fn a_second_stop_with_less_time_ends_qemu_also_under_another_supervisor() {
    let stop = |within_seconds| ChangeRequest::Stop(StopMode::Graceful { within_seconds: Some(within_seconds) });
    let qemu = Qemu::start(GuestPower::Ignores);
    let first = qemu.attach();
    first.has_attached().await;
    assert_eq!(first.asked(stop(4000)).await.0, Verdict::Queued);
    qemu.fake.until_received("system_powerdown", 1).await;
    drop(first);
    qemu.fake.hang_up();
    let second = qemu.attach();
    second.until(|status| status.stopping).await;
    assert_eq!(second.asked(stop(100)).await.0, Verdict::Queued);
    let left_ms = qemu.journal().deadline.unwrap().at_ms - boot_ms();
    assert!((0..=100_000).contains(&left_ms), "{left_ms}");
    assert_eq!(second.asked(stop(0)).await.0, Verdict::Queued);
    qemu.fake.until_received("quit", 1).await;
}

#[tokio::test]
async fn another_supervisor_finishes_a_soft_reboot() {
    let qemu = Qemu::start(GuestPower::Ignores);
    let first = qemu.attach();
    first.has_attached().await;
    assert_eq!(first.asked(ChangeRequest::SoftReboot).await.0, Verdict::Queued);
    qemu.fake.until_received("system_powerdown", 1).await;
    let written = qemu.journal().soft_reboot.unwrap();
    assert_eq!(written.step, SoftRebootStep::PowerButton, "it is in the journal before the button is pressed");
    // The guest shuts down while nobody looks.
    drop(first);
    qemu.fake.hang_up();
    qemu.fake.machine(|machine| "shutdown".clone_into(&mut machine.status));
    let second = qemu.attach();
    second.until(|status| status.resets == 1 && !status.soft_rebooting && status.paused.is_none()).await;
    qemu.fake.until_received("cont", 1).await;
    assert!(qemu.is_as_before() && qemu.journal().soft_reboot.is_none(), "{:?}", qemu.done());
}

#[tokio::test]
async fn a_guest_that_shut_down_by_itself_ends_its_run_under_another_supervisor() {
    let late = JournaledSoftReboot {
        step: SoftRebootStep::PowerButton,
        deadline: Deadline { boot_id: boot_id(), at_ms: boot_ms() - 1 },
    };
    for soft_reboot in [None, Some(late)] {
        let qemu = Qemu::start(GuestPower::Ignores);
        assert!(qemu.write(&Journal { soft_reboot, ..qemu.journal() }));
        qemu.fake.machine(|machine| "shutdown".clone_into(&mut machine.status));
        let _supervisor = qemu.attach();
        qemu.fake.until_received("quit", 1).await;
        assert_eq!(qemu.done(), [act("quit", Value::Null)]);
    }
}

#[tokio::test]
async fn a_guest_that_cannot_be_asked_is_not_rebooted() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    let planned = planned(lifecycle(StartState::Running, false));
    supervisor.happened.send(planned).await.ok().unwrap();
    assert_eq!(supervisor.asked(ChangeRequest::SoftReboot).await.0, Verdict::Denied(Denial::CannotBeAsked));
    let agent = supervisor.has_agent().await;
    agent.on("guest-shutdown", AgentBehaviour::Silence);
    assert_eq!(supervisor.asked(ChangeRequest::SoftReboot).await.0, Verdict::Queued);
    supervisor.until(|status| status.soft_rebooting).await;
}

#[tokio::test]
async fn a_freeze_is_answered_when_it_is_done_and_thawed_by_another_supervisor_in_time() {
    let qemu = Qemu::start(GuestPower::Ignores);
    let first = qemu.attach();
    first.has_attached().await;
    let (verdict, outcome) = first.asked(ChangeRequest::Freeze { thaw_after_seconds: Some(300) }).await;
    assert_eq!(verdict, Verdict::Queued);
    assert_eq!(outcome.await.unwrap(), Err("the QEMU guest agent is not connected".to_owned()));
    let agent = first.has_agent().await;
    agent.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
    agent.on("guest-fsfreeze-freeze", AgentBehaviour::Reply(json!(1)));
    let (_, outcome) = first.asked(ChangeRequest::Freeze { thaw_after_seconds: Some(300) }).await;
    assert_eq!(timeout(PATIENCE, outcome).await.unwrap().unwrap(), Ok(()));
    first.until(|status| status.frozen).await;
    let JournaledFreeze { thaw_at } = qemu.journal().freeze.unwrap();
    let left_ms = thaw_at.unwrap().at_ms - boot_ms();
    assert!((200_000..=300_000).contains(&left_ms), "{left_ms}");
    // Another supervisor, after the time is over.
    drop(first);
    qemu.fake.hang_up();
    let over = Deadline { boot_id: boot_id(), at_ms: boot_ms() };
    assert!(qemu.write(&Journal { freeze: Some(JournaledFreeze { thaw_at: Some(over) }), ..qemu.journal() }));
    let second = qemu.attach();
    assert!(second.status.borrow().frozen, "before anything was asked");
    let agent = second.has_agent().await;
    agent.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("frozen")));
    agent.on("guest-fsfreeze-thaw", AgentBehaviour::Reply(json!(1)));
    second.until(|status| !status.frozen).await;
    assert_eq!(qemu.journal().freeze, None);
    let (_, outcome) = second.asked(ChangeRequest::Unfreeze).await;
    assert_eq!(timeout(PATIENCE, outcome).await.unwrap().unwrap(), Ok(()));
}

#[tokio::test]
async fn a_link_stays_as_it_was_left_whatever_the_guest_reports() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    let Input::Planned(mut plan) = planned(lifecycle(StartState::Running, true)) else { panic!("no plan") };
    let card =
        InterfaceStatus { name: "default".into(), mac: "02:00:00:00:00:01".into(), ..InterfaceStatus::default() };
    plan.interfaces = vec![InterfaceStatus { link: Some(Link::Up), ..card.clone() }];
    let in_guest = InterfaceStatus { name: String::new(), interface_name: Some("eth0".into()), ..card };
    let seen = Input::GuestAgentReported { guest: None, frozen: None, interfaces: Some(vec![in_guest]) };
    let pulled = Input::LinksChanged(BTreeMap::from([("default".to_owned(), Link::Down)]));
    for (input, name, link) in [
        (Input::Planned(plan), None, Link::Up),
        (pulled, None, Link::Down),
        (seen, Some("eth0"), Link::Down),
        (Input::AgentUp(None), None, Link::Down),
    ] {
        supervisor.happened.send(input).await.ok().unwrap();
        let is_so = |one: &InterfaceStatus| one.interface_name.as_deref() == name && one.link == Some(link);
        supervisor.until(|status| status.interfaces.first().is_some_and(is_so)).await;
    }
}

#[tokio::test]
async fn a_report_that_contradicts_a_freeze_counts_when_it_is_repeated() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let frozen = Some(JournaledFreeze { thaw_at: None });
    assert!(qemu.write(&Journal { launched: true, started: true, freeze: frozen, ..Journal::default() }));
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    // One that was asked for before the freeze was done may come after it; names tell the reports apart.
    for (name, reported, expected) in [("a", false, true), ("b", true, true), ("c", false, true), ("d", false, false)] {
        let guest = Some(Box::new(GuestStatus { hostname: Some(name.to_owned()), ..GuestStatus::default() }));
        let report = Input::GuestAgentReported { guest, frozen: Some(reported), interfaces: None };
        supervisor.happened.send(report).await.unwrap();
        let is_this =
            |status: &Status| status.guest.as_ref().is_some_and(|guest| guest.hostname.as_deref() == Some(name));
        let status = supervisor.until(|status| is_this(status) && status.frozen == expected).await;
        assert_eq!(status.frozen, expected, "{name}");
    }
}
