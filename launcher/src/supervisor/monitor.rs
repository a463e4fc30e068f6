//! Bringing up the connection to QEMU: greet, compare what QEMU holds with the plan, then pass on events.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use garboard_plan::{LaunchPlan, Tray};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::paths;
use garboard_qmp::{
    CallError, ConnectError, ConnectOptions, Interest, Monitor, Notice, Subscription, TranscriptSink, qmp,
};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use super::driver::{Heartbeat, Input};
use super::flood::{Flood, Line};
use super::guest_events::{EVENTS, run_state, shutdown_kind, translate};
use super::live::{Live, block_nodes};
use super::lost;
use super::run::Context;
use crate::vm::{Event, RunState, ShutdownKind};

/// How long PID 1 may take to report that QEMU is gone, before the monitor is reported as failed.
const LAST_REPORT: Duration = Duration::from_secs(1);
/// The same where QEMU is gone: PID 1 may have been killed with it, which takes [`lost::PATIENCE`] and a second to find out.
const LAST_REPORT_OF_LOST: Duration = lost::PATIENCE.saturating_add(Duration::from_secs(3));
/// How long to wait before a QEMU that is known to run is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How much longer than usual QEMU may take to greet, for each GiB of the guest: huge pages are all taken before.
const GREETING_PER_GIB: Duration = Duration::from_secs(1);
/// The most events of QEMU that are logged in ten seconds.
const EVENTS_LOGGED: u32 = 30;
/// How often QEMU is asked whether it answers, and how often while it does not.
const HEARTBEAT: Duration = Duration::from_secs(30);
const HEARTBEAT_WHEN_SILENT: Duration = Duration::from_secs(5);

/// What becomes of a machine whose monitor does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// Its guest never ran: the driver decides.
    GivenUp,
    /// Its guest runs; QEMU is busy and will answer again.
    TriedAgain,
}

/// Why QEMU is not what was planned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    /// No connection.
    #[error("QEMU's monitor could not be reached")]
    Connect(#[from] ConnectError),
    /// A question was not answered.
    #[error("query of QEMU's devices failed")]
    Call(#[from] CallError),
    /// It runs something else.
    #[error("QEMU lacks the block nodes {missing:?} of the plan")]
    MissingNodes {
        /// Their names.
        missing: Vec<String>,
    },
    /// It leaves, and may never answer again.
    #[error("QEMU was terminating before its devices had been queried")]
    Leaving {
        /// Its cause.
        kind: ShutdownKind,
    },
}

/// The participants of a connection.
pub(crate) struct MonitorUsers {
    /// Everything that sends commands.
    pub(crate) monitor: watch::Sender<Option<Monitor>>,
    /// What QEMU holds.
    pub(crate) live: Live,
}

/// What a machine is to be before its guest runs.
#[derive(Clone, Copy)]
struct Expected<'a> {
    plan: &'a LaunchPlan,
    /// Cards whose cable is out, by ID of the device: those of the plan, or what QMP clients have made of them. A guest that was reset while
    /// its vCPUs were stopped looks to the next supervisor like one that has not run.
    pulled: &'a [String],
}

/// A monitor that answered, its events, and what QEMU reported of itself.
type Reached = (Monitor, Subscription, RunState);

/// Connects, verifies, then forwards events until QEMU closes the connection.
pub(crate) async fn run(
    context: Context,
    plan: Arc<LaunchPlan>,
    transcript: Option<Arc<dyn TranscriptSink>>,
    up: MonitorUsers,
    retry: RetryPolicy,
) {
    let options = ConnectOptions {
        name: format!("{}/{}", plan.identity.namespace, plan.identity.name),
        transcript,
        greeting_limit: greeting_limit(plan.resources.guest_memory_bytes),
        ..ConnectOptions::default()
    };
    let pulled = up.live.pulled();
    let before = Expected { plan: &plan, pulled: &pulled };
    let Some((monitor, mut events, state)) = reach(&context, before, options, retry).await else { return };
    drop(plan);
    let happened = context.happened;
    let observer = monitor.clone();
    up.monitor.send_replace(Some(monitor.clone()));
    if happened.send(Input::MonitorUp { monitor, run_state: state }).await.is_err() {
        return;
    }
    let heart = tokio::spawn(beat(observer.clone(), happened.clone(), HEARTBEAT));
    // Ends with the connection, as what is held by it does not matter any more then.
    tokio::spawn(up.live.follow(observer.clone()));
    let mut flood = Flood::new(EVENTS_LOGGED);
    while let Some(notice) = events.next().await {
        log(&notice, &mut flood);
        if !forward(notice, &observer, &happened).await {
            break;
        }
    }
    heart.abort();
    up.monitor.send_replace(None);
    let _ = happened.send(Input::MonitorGone).await;
}

/// Asks QEMU now and then whether it answers, and reports when that changes.
async fn beat(monitor: Monitor, happened: mpsc::Sender<Input>, often: Duration) {
    let mut last = Heartbeat::Answers;
    loop {
        tokio::time::sleep(if last == Heartbeat::Answers { often } else { HEARTBEAT_WHEN_SILENT }).await;
        // It leaves, and might hang for ever where a command reaches it then.
        if monitor.shutdown_reason().is_some() {
            continue;
        }
        let found = match query_state(&monitor).await {
            Err(CallError::TimedOut { .. }) => Heartbeat::Silent,
            Err(CallError::Disconnected { .. }) => return,
            Ok(_) | Err(_) => Heartbeat::Answers,
        };
        if found == last {
            continue;
        }
        match found {
            Heartbeat::Silent => tracing::error!("QEMU does not answer its monitor"),
            Heartbeat::Answers => tracing::info!("QEMU answers its monitor again"),
        }
        last = found;
        if happened.send(Input::Heartbeat(found)).await.is_err() {
            return;
        }
    }
}

/// How long QEMU may take to greet with a guest of this size.
fn greeting_limit(guest_memory_bytes: u64) -> Duration {
    let gibibytes = u32::try_from(guest_memory_bytes.div_ceil(1 << 30)).unwrap_or(u32::MAX);
    ConnectOptions::default().greeting_limit.saturating_add(GREETING_PER_GIB.saturating_mul(gibibytes))
}

/// Brings the connection up. Where there is none, the driver has an event of it, or QEMU is gone.
async fn reach(
    context: &Context,
    expected: Expected<'_>,
    options: ConnectOptions,
    retry: RetryPolicy,
) -> Option<Reached> {
    let socket = context.layout.supervisor().join(paths::MONITOR_SOCKET);
    let mut was_logged = false;
    loop {
        let attempt = tokio::select! {
            attempt = bring_up(socket.clone(), expected, options.clone()) => attempt,
            // The monitor sends nothing of it until it has taken its first command.
            () = lost::leaves_for_a_signal(&context.layout) => Err(MonitorError::Leaving { kind: ShutdownKind::Host }),
        };
        let error = match attempt {
            Ok(up) => return Some(up),
            Err(MonitorError::Leaving { kind }) => {
                tracing::warn!("QEMU reported the guest's end before its monitor could be used");
                let _ = context.happened.send(Input::Guest(Event::Shutdown { kind })).await;
                if retry == RetryPolicy::GivenUp {
                    return None;
                }
                // In a soft reboot it stays.
                MonitorError::Leaving { kind }
            }
            Err(error) => error,
        };
        if retry == RetryPolicy::GivenUp || !is_passing(&error) {
            give_up(context, &error).await;
            return None;
        }
        if !was_logged && !matches!(error, MonitorError::Leaving { .. }) {
            tracing::error!(error = %ErrorChain(&error), "QEMU does not answer; tried again until it answers or ends");
            was_logged = true;
        }
        // The driver ends when PID 1 has reported QEMU's end.
        if tokio::time::timeout(RETRY, context.happened.closed()).await.is_ok() {
            return None;
        }
    }
}

/// Whether waiting helps. Another machine than the planned one does not become it; what was refused is refused again.
fn is_passing(error: &MonitorError) -> bool {
    use CallError::{Disconnected, TimedOut};
    matches!(
        error,
        MonitorError::Connect(_)
            | MonitorError::Call(TimedOut { .. } | Disconnected { .. })
            | MonitorError::Leaving { .. }
    )
}

async fn give_up(context: &Context, error: &MonitorError) {
    let message = ErrorChain(error).to_string();
    tracing::error!(error = message, "control of the machine failed");
    // If QEMU is dying, PID 1 reports the reason, and better; this is for the case that it is not. The driver ends once it has it.
    let wait = if lost::is_gone(&context.layout).await { LAST_REPORT_OF_LOST } else { LAST_REPORT };
    if tokio::time::timeout(wait, context.happened.closed()).await.is_err() {
        let _ = context.happened.send(Input::MonitorFailed(message)).await;
    }
}

async fn bring_up(socket: PathBuf, expected: Expected<'_>, options: ConnectOptions) -> Result<Reached, MonitorError> {
    let (monitor, greeting) = Monitor::connect(socket, options).await?;
    tracing::info!(qemu = %greeting.version, "QEMU's monitor answered");
    let events = monitor.subscribe(Interest::Named(&EVENTS));
    let state = tokio::select! {
        state = look(&monitor, expected) => state?,
        kind = shutdown(&monitor) => return Err(MonitorError::Leaving { kind }),
    };
    Ok((monitor, events, state))
}

/// Ends when QEMU has reported that it ends. What it has been asked then is not always answered.
async fn shutdown(monitor: &Monitor) -> ShutdownKind {
    let mut events = monitor.subscribe(Interest::Named(&["SHUTDOWN"]));
    loop {
        if let Some(reason) = monitor.shutdown_reason() {
            return shutdown_kind(&reason);
        }
        if events.next().await.is_none() {
            // Questions fail as well then, with the reason.
            std::future::pending::<()>().await;
        }
    }
}

/// What QEMU does, and whether it is what was planned.
async fn look(monitor: &Monitor, expected: Expected<'_>) -> Result<RunState, MonitorError> {
    let state = query_state(monitor).await?;
    // Jobs, ejected media and unplugged devices change what a guest that runs has, which is no reason to leave it alone:
    // what QEMU holds then is compared with what was written down last ([`Live`]).
    if state == RunState::Prelaunch {
        make_ready(monitor, expected).await?;
    }
    Ok(state)
}

/// Before the guest executes anything: it must be the machine that was planned, and gets the settings that no argument sets.
async fn make_ready(monitor: &Monitor, Expected { plan, pulled }: Expected<'_>) -> Result<(), MonitorError> {
    verify(monitor, plan).await?;
    for device in pulled {
        monitor.call(&qmp::set_link { name: device.clone(), up: false }).await?;
    }
    open_trays(monitor, plan).await?;
    Ok(())
}

/// Only before the guest runs: later its trays are as it, or a QMP client, left them. One that is open stays open.
async fn open_trays(monitor: &Monitor, plan: &LaunchPlan) -> Result<(), CallError> {
    for disk in plan.disks.iter().filter(|disk| disk.tray == Some(Tray::Open)) {
        monitor.call(&open_tray(&disk.device)).await?;
    }
    Ok(())
}

#[expect(deprecated, reason = "a literal has every field, the one that `id` replaces too")]
fn open_tray(device: &str) -> qmp::blockdev_open_tray {
    qmp::blockdev_open_tray { id: Some(device.to_owned()), force: None, device: None }
}

/// What QEMU reports of itself.
pub(crate) async fn query_state(monitor: &Monitor) -> Result<RunState, CallError> {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
    }
    let reply: Reply = monitor.ask(&qmp::query_status {}).await?;
    Ok(run_state(&reply.status))
}

/// QEMU must hold every block node of the plan: a machine with other disks must not run.
async fn verify(monitor: &Monitor, plan: &LaunchPlan) -> Result<(), MonitorError> {
    let held = block_nodes(monitor).await?;
    let planned = plan.disks.iter().flat_map(|disk| {
        let nodes = &disk.nodes;
        [&nodes.image, &nodes.room, &nodes.file, &nodes.base, &nodes.base_file].into_iter().flatten().cloned()
    });
    let missing: Vec<String> = planned.filter(|name| !held.contains(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(MonitorError::MissingNodes { missing }) }
}

/// A guest causes most events, and may do so without end.
fn log(notice: &Notice, flood: &mut Flood) {
    let Notice::Event(event) = notice else { return };
    let Line::Write { left_out } = flood.judge(Instant::now()) else { return };
    if left_out > 0 {
        tracing::warn!(left_out, "events of QEMU were left out of the log");
    }
    tracing::info!(event = event.name, data = event.data_text(), "QEMU event");
}

/// Answers whether to go on.
async fn forward(notice: Notice, monitor: &Monitor, happened: &mpsc::Sender<Input>) -> bool {
    let event = match notice {
        Notice::Event(event) => {
            match translate(&event.name, event.data_text()) {
                // KVM giving up on the guest reports nothing but this.
                Some(Event::VcpusStopped { .. }) => {
                    let run_state = query_state(monitor).await.unwrap_or(RunState::Paused);
                    Some(Event::VcpusStopped { run_state })
                }
                translated => translated,
            }
        }
        Notice::Lagged(count) => {
            tracing::warn!(count, "events of QEMU were lost; its state is queried");
            match query_state(monitor).await {
                Ok(RunState::Running) => Some(Event::VcpusResumed),
                Ok(run_state) => Some(Event::VcpusStopped { run_state }),
                Err(_) => None,
            }
        }
        Notice::Closed { reason } => {
            tracing::info!(reason = reason.map(|reason| reason.to_string()), "QEMU closed its monitor");
            return false;
        }
    };
    match event {
        Some(event) => happened.send(Input::Guest(event)).await.is_ok(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::journal::Journal;
    use garboard_protocol::paths::Layout;
    use garboard_qmp::testing::{Behaviour, FakeMonitor};
    use serde_json::json;

    use super::super::journal;
    use super::super::run::Environment;
    use super::*;

    #[test]
    fn a_large_guest_has_more_time_to_greet() {
        let usual = ConnectOptions::default().greeting_limit;
        assert_eq!(greeting_limit(0), usual);
        assert_eq!(greeting_limit(512 << 20), usual + Duration::from_secs(1));
        assert_eq!(greeting_limit(256 << 30), usual + Duration::from_secs(256));
        assert!(greeting_limit(u64::MAX) > usual);
    }

    #[tokio::test(start_paused = true)]
    async fn a_qemu_that_does_not_answer_is_reported_once_and_so_is_one_that_does_again() {
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        fake.script("query-status", Behaviour::Silence);
        fake.script("query-status", Behaviour::Silence);
        let (happened, mut inbox) = mpsc::channel(8);
        let heart = tokio::spawn(beat(monitor, happened, HEARTBEAT));
        for expected in [Heartbeat::Silent, Heartbeat::Answers] {
            let Some(Input::Heartbeat(heartbeat)) = inbox.recv().await else { panic!("no heartbeat") };
            assert_eq!(heartbeat, expected);
        }
        heart.abort();
        assert!(inbox.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_qemu_that_has_reported_its_end_is_not_asked_whether_it_answers() {
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        let mut events = monitor.subscribe(Interest::Named(&["SHUTDOWN", "RESET"]));
        fake.emit("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
        assert!(events.next().await.is_some());
        let (happened, _inbox) = mpsc::channel(8);
        let heart = tokio::spawn(beat(monitor, happened, HEARTBEAT));
        tokio::time::sleep(3 * HEARTBEAT).await;
        assert!(fake.received().iter().all(|each| each.command != "query-status"));
        // It stays after all, as in a soft reboot.
        fake.emit("RESET", json!({"guest": false, "reason": "host-qmp-system-reset"}));
        assert!(events.next().await.is_some());
        fake.until_received("query-status", 1).await;
        heart.abort();
    }

    /// How long it takes until the driver receives that there is no monitor.
    async fn given_up_after(is_gone: bool) -> Duration {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        std::fs::create_dir(layout.supervisor()).unwrap();
        assert!(journal::write(&layout.supervisor(), &Journal { launched: true, ..Journal::default() }));
        let listener = std::os::unix::net::UnixListener::bind(layout.supervisor().join(paths::MONITOR_SOCKET)).unwrap();
        let _alive = (!is_gone).then_some(listener);
        let (happened, mut inbox) = mpsc::channel(1);
        let context = Context { layout, environment: Environment::Pod, happened };
        let began = tokio::time::Instant::now();
        let error =
            ConnectError::Open { path: "monitor.sock".into(), source: std::io::ErrorKind::ConnectionRefused.into() };
        give_up(&context, &MonitorError::Connect(error)).await;
        assert!(matches!(inbox.try_recv(), Ok(Input::MonitorFailed(_))));
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_qemu_that_is_gone_leaves_time_to_find_out_how() {
        assert!(given_up_after(false).await < lost::PATIENCE);
        // Found out by then: it is looked for once a second.
        assert!(given_up_after(true).await > lost::PATIENCE + Duration::from_secs(2));
    }

    fn plan() -> LaunchPlan {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
        let mut plan: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        plan["argv"] = json!([]);
        serde_json::from_value(plan).unwrap()
    }

    #[tokio::test]
    async fn what_a_job_changed_is_accepted_once_the_guest_has_run() {
        for (state, is_accepted) in [("prelaunch", false), ("running", true), ("paused", true)] {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join(paths::MONITOR_SOCKET);
            let fake = FakeMonitor::listen(&socket).unwrap();
            fake.script("query-status", Behaviour::Reply(json!({"status": state, "running": false})));
            fake.script("query-blockstats", Behaviour::Reply(json!([{"node-name": "pivoted"}])));
            let before = Expected { plan: &plan(), pulled: &[] };
            let up = bring_up(socket, before, ConnectOptions::named("vm")).await;
            match up {
                Ok(_) => assert!(is_accepted, "{state}"),
                Err(error) => assert!(!is_accepted && matches!(error, MonitorError::MissingNodes { .. }), "{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_cable_that_is_out_is_pulled_before_the_guest_runs_and_not_later() {
        for (state, expected) in [("prelaunch", vec![json!({"name": "nic", "up": false})]), ("running", Vec::new())] {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join(paths::MONITOR_SOCKET);
            let fake = FakeMonitor::listen(&socket).unwrap();
            fake.machine(|machine| {
                state.clone_into(&mut machine.status);
                machine.devices.insert("nic".to_owned(), json!({}));
            });
            let (plan, pulled) = (LaunchPlan { disks: Vec::new(), ..plan() }, ["nic".to_owned()]);
            let before = Expected { plan: &plan, pulled: &pulled };
            assert!(bring_up(socket, before, ConnectOptions::named("vm")).await.is_ok(), "{state}");
            let sent = fake.received().into_iter().filter(|each| each.command == "set_link");
            assert_eq!(sent.map(|each| each.arguments).collect::<Vec<_>>(), expected, "{state}");
        }
    }

    /// What the driver receives of a QEMU that never answers a command because it leaves, and after how long.
    async fn of_a_qemu_that_leaves(
        silent_on: &str,
        leave: impl AsyncFnOnce(&FakeMonitor, &Layout),
    ) -> (Event, Duration) {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        let fake = FakeMonitor::listen(&layout.supervisor().join(paths::MONITOR_SOCKET)).unwrap();
        fake.script(silent_on, Behaviour::Silence);
        let (happened, mut inbox) = mpsc::channel(1);
        let context = Context { layout: layout.clone(), environment: Environment::Pod, happened };
        let plan = plan();
        let began = tokio::time::Instant::now();
        let before = Expected { plan: &plan, pulled: &[] };
        let reaching = reach(&context, before, ConnectOptions::named("vm"), RetryPolicy::GivenUp);
        let leaving = async {
            fake.until_received(silent_on, 1).await;
            leave(&fake, &layout).await;
        };
        let (reached, ()) = tokio::join!(reaching, leaving);
        assert!(reached.is_none());
        let Ok(Input::Guest(event)) = inbox.try_recv() else {
            panic!("the driver received something else than the end")
        };
        (event, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_qemu_that_leaves_is_not_blamed_for_its_silence() {
        let by_host = Event::Shutdown { kind: ShutdownKind::Host };
        let reports = async |fake: &FakeMonitor, _: &Layout| {
            fake.emit("SHUTDOWN", json!({"guest": false, "reason": "host-signal"}));
        };
        let (event, after) = of_a_qemu_that_leaves("query-status", reports).await;
        assert!(event == by_host && after < Duration::from_secs(10), "{event:?} after {after:?}");
        let by_guest = async |fake: &FakeMonitor, _: &Layout| {
            fake.emit("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
        };
        let (event, _) = of_a_qemu_that_leaves("query-status", by_guest).await;
        assert_eq!(event, Event::Shutdown { kind: ShutdownKind::Guest });
        // Before its first command it sends no events.
        let prints = async |_: &FakeMonitor, layout: &Layout| {
            let output = "qemu-system-x86_64: terminating on signal 15 from pid 7 (kill)\n";
            std::fs::write(layout.init().join(paths::QEMU_LOG), output).unwrap();
        };
        let (event, after) = of_a_qemu_that_leaves("qmp_capabilities", prints).await;
        assert!(event == by_host && after < Duration::from_secs(10), "{event:?} after {after:?}");
    }

    /// As in a soft reboot whose supervisor was replaced.
    #[tokio::test(start_paused = true)]
    async fn a_qemu_that_stays_when_its_guest_is_off_is_reached_again() {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        let fake = FakeMonitor::listen(&layout.supervisor().join(paths::MONITOR_SOCKET)).unwrap();
        fake.script("query-status", Behaviour::Silence);
        fake.script("query-status", Behaviour::Reply(json!({"status": "shutdown", "running": false})));
        let (happened, mut inbox) = mpsc::channel(1);
        let context = Context { layout, environment: Environment::Pod, happened };
        let plan = plan();
        let before = Expected { plan: &plan, pulled: &[] };
        let reaching = reach(&context, before, ConnectOptions::named("vm"), RetryPolicy::TriedAgain);
        let powering_off = async {
            fake.until_received("query-status", 1).await;
            fake.emit("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
        };
        let (reached, ()) = tokio::join!(reaching, powering_off);
        assert!(matches!(reached, Some((_, _, RunState::Shutdown))));
        let event = inbox.try_recv();
        assert!(matches!(event, Ok(Input::Guest(Event::Shutdown { kind: ShutdownKind::Guest }))));
    }

    #[test]
    fn only_silence_is_waited_for() {
        let (after, command) = (Duration::from_secs(30), "query-status".into());
        assert!(is_passing(&ConnectError::NoGreeting { monitor: "vm".into(), after }.into()));
        assert!(is_passing(&CallError::TimedOut { command, after }.into()));
        let (class, desc) = ("GenericError".into(), "no".into());
        assert!(!is_passing(&CallError::Refused { command: "set_link".into(), class, desc }.into()));
        assert!(!is_passing(&MonitorError::MissingNodes { missing: vec!["disk".into()] }));
    }
}
