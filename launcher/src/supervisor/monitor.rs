//! Bringing up the connection to QEMU: greet, compare what QEMU holds with the plan, then pass on events.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use garboard_protocol::paths;
use garboard_qmp::{CallError, ConnectError, ConnectOptions, Interest, Monitor, Notice, Subscription, TranscriptSink};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::guest_events::{run_state, translate};
use super::run::Bench;
use crate::plan::{LaunchPlan, LinkState, Tray};
use crate::vm::{Chain, Event, Input, RunState};

/// How long PID 1 may take to tell that QEMU is gone, before its monitor alone is blamed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long to wait before a QEMU that is known to run is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How much longer than usual QEMU may take to greet, for each GiB of the guest: huge pages are all taken before.
const GREETING_PER_GIB: Duration = Duration::from_secs(1);

/// What becomes of a machine whose monitor does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
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
    #[error("QEMU could not be asked what it holds")]
    Call(#[from] CallError),
    /// It runs something else.
    #[error("QEMU does not hold the block nodes {missing:?} of the plan")]
    MissingNodes {
        /// Their names.
        missing: Vec<String>,
    },
}

/// A monitor that answered, its events, and what QEMU said of itself.
type Up = (Monitor, Subscription, RunState);

/// Connects, verifies, then forwards events until QEMU closes the connection.
pub(crate) async fn run(
    bench: Bench,
    plan: Arc<LaunchPlan>,
    transcript: Option<Arc<dyn TranscriptSink>>,
    up: watch::Sender<Option<Monitor>>,
    unheard: Unheard,
) {
    let options = ConnectOptions {
        name: format!("{}/{}", plan.identity.namespace, plan.identity.name),
        transcript,
        greeting_limit: greeting_limit(plan.resources.guest_memory_bytes),
        ..ConnectOptions::default()
    };
    let Some((monitor, mut events, state)) = reach(&bench, &plan, options, unheard).await else { return };
    drop(plan);
    let happened = bench.happened;
    let observer = monitor.clone();
    up.send_replace(Some(monitor.clone()));
    if happened.send(Input::MonitorUp { monitor, run_state: state }).await.is_err() {
        return;
    }
    while let Some(notice) = events.next().await {
        if !forward(notice, &observer, &happened).await {
            break;
        }
    }
    up.send_replace(None);
    let _ = happened.send(Input::MonitorGone).await;
}

/// How long QEMU may take to greet with a guest of this size.
fn greeting_limit(guest_memory_bytes: u64) -> Duration {
    let gibibytes = u32::try_from(guest_memory_bytes.div_ceil(1 << 30)).unwrap_or(u32::MAX);
    ConnectOptions::default().greeting_limit.saturating_add(GREETING_PER_GIB.saturating_mul(gibibytes))
}

/// Brings the connection up. Where there is none, the driver was told, or QEMU is gone.
async fn reach(bench: &Bench, plan: &LaunchPlan, options: ConnectOptions, unheard: Unheard) -> Option<Up> {
    let socket = bench.shared.join(paths::MONITOR_SOCKET);
    let mut was_told = false;
    loop {
        let error = match bring_up(socket.clone(), plan, options.clone(), unheard).await {
            Ok(up) => return Some(up),
            Err(error) => error,
        };
        if unheard == Unheard::GivenUp || !is_passing(&error) {
            give_up(bench, &error).await;
            return None;
        }
        if !was_told {
            tracing::error!(error = %Chain(&error), "QEMU does not answer; trying until it does or ends");
            was_told = true;
        }
        // The driver goes when PID 1 has told of QEMU's end.
        if tokio::time::timeout(RETRY, bench.happened.closed()).await.is_ok() {
            return None;
        }
    }
}

/// Whether waiting helps. Another machine than the planned one does not become it; what was refused is refused again.
fn is_passing(error: &MonitorError) -> bool {
    use CallError::{Disconnected, TimedOut};
    matches!(error, MonitorError::Connect(_) | MonitorError::Call(TimedOut { .. } | Disconnected { .. }))
}

async fn give_up(bench: &Bench, error: &MonitorError) {
    let sentence = Chain(error).to_string();
    tracing::error!(error = sentence, "the machine cannot be driven");
    // If QEMU is dying, PID 1 says why, and better; this is for the case that it is not.
    tokio::time::sleep(LAST_WORDS).await;
    let _ = bench.happened.send(Input::MonitorFailed(sentence)).await;
}

async fn bring_up(
    socket: PathBuf,
    plan: &LaunchPlan,
    options: ConnectOptions,
    unheard: Unheard,
) -> Result<Up, MonitorError> {
    let (monitor, greeting) = Monitor::connect(socket, options).await?;
    tracing::info!(qemu = %greeting.version, "QEMU's monitor answered");
    let events = monitor.subscribe(Interest::Named(&[
        "SHUTDOWN",
        "RESET",
        "STOP",
        "RESUME",
        "GUEST_PANICKED",
        "WATCHDOG",
        "BLOCK_IO_ERROR",
    ]));
    verify(&monitor, plan).await?;
    for interface in plan.interfaces.iter().filter(|interface| interface.link == LinkState::Down) {
        let arguments = json!({ "name": interface.device, "up": false });
        monitor.call_raw("set_link", Some(arguments), Vec::new()).await?;
    }
    if unheard == Unheard::GivenUp {
        open_trays(&monitor, plan).await?;
    }
    let state = query_state(&monitor).await?;
    Ok((monitor, events, state))
}

/// Only before the guest runs: later its trays are as it, or somebody else, left them. One that is open stays open.
async fn open_trays(monitor: &Monitor, plan: &LaunchPlan) -> Result<(), CallError> {
    for disk in plan.disks.iter().filter(|disk| disk.tray == Some(Tray::Open)) {
        monitor.call_raw("blockdev-open-tray", Some(json!({ "id": disk.device })), Vec::new()).await?;
    }
    Ok(())
}

/// What QEMU says of itself.
pub(crate) async fn query_state(monitor: &Monitor) -> Result<RunState, CallError> {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
    }
    let reply: Reply = monitor.send_decoding(garboard_qmp::Request::new("query-status")).await?;
    Ok(run_state(&reply.status))
}

/// QEMU must hold every block node of the plan: a machine with other disks must not run.
async fn verify(monitor: &Monitor, plan: &LaunchPlan) -> Result<(), MonitorError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Node {
        node_name: Option<String>,
    }
    let request = garboard_qmp::Request::new("query-named-block-nodes").arguments(&json!({ "flat": true }));
    let nodes: Vec<Node> = monitor.send_decoding(request).await?;
    let held: BTreeSet<String> = nodes.into_iter().filter_map(|node| node.node_name).collect();
    let planned = plan.disks.iter().flat_map(|disk| {
        let nodes = &disk.nodes;
        [&nodes.image, &nodes.file, &nodes.base, &nodes.base_file].into_iter().flatten().cloned()
    });
    let missing: Vec<String> = planned.filter(|name| !held.contains(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(MonitorError::MissingNodes { missing }) }
}

/// Answers whether to go on.
async fn forward(notice: Notice, monitor: &Monitor, happened: &mpsc::Sender<Input>) -> bool {
    let event = match notice {
        Notice::Event(event) => {
            tracing::info!(event = event.name, data = event.data_text(), "QEMU");
            match translate(&event.name, event.data_text()) {
                // KVM giving up on the guest says nothing but this.
                Some(Event::VcpusStopped { .. }) => {
                    let run_state = query_state(monitor).await.unwrap_or(RunState::Paused);
                    Some(Event::VcpusStopped { run_state })
                }
                translated => translated,
            }
        }
        Notice::Lagged(count) => {
            tracing::warn!(count, "events of QEMU were lost; asking for its state");
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
    use super::*;

    #[test]
    fn a_large_guest_has_more_time_to_greet() {
        let usual = ConnectOptions::default().greeting_limit;
        assert_eq!(greeting_limit(0), usual);
        assert_eq!(greeting_limit(512 << 20), usual + Duration::from_secs(1));
        assert_eq!(greeting_limit(256 << 30), usual + Duration::from_secs(256));
        assert!(greeting_limit(u64::MAX) > usual);
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
