//! The supervisor's whole run, in the order in which things happen.
//!
//! ```text
//!   prepared before? ── no, or PID 1 waits ──► prepare ──► launch ─┐
//!            ── PID 1 runs QEMU ────► plan.json ──────────────────┴─► drive ──► told how it ended
//!            ── exit.json is there ─────────────────────────────────► explain ──┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use garboard_agent::client::NetworkPlace;
use garboard_plan::LaunchPlan;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::InitState;
use garboard_protocol::paths::{self, Layout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::attach::{self, Stations};
use super::driver::{Driver, DriverExit, Input, Inputs};
use super::init_link::{self, Greeted, Line, ReadyLaunch};
use super::lost;
use super::monitor::Unheard;
use super::prepare::sockets::{SocketError, listen_async};
use super::prepare::{self, Prepared};
use super::seed::{self, Whose};
use super::{control, journal, network, report};

/// Messages that may wait for PID 1.
const INIT_BACKLOG: usize = 8;
/// Events that may wait for the driver.
const EVENT_BACKLOG: usize = 64;
/// How long the driver may take to note an end that was found when the supervisor was told to go.
const LAST_STEPS: Duration = Duration::from_secs(3);

/// Why a supervisor could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// A socket could not be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The VMI, the facts or the options cannot be read.
    #[error(transparent)]
    Order(#[from] prepare::OrderError),
    /// The kernel refuses the rules of Landlock.
    #[error("could not restrict the supervisor to its own files")]
    Landlock(#[source] landlock::RulesetError),
    /// Signals cannot be received.
    #[error("could not listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Where a supervisor works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// On a bare host: a keeper made the machine's directory, and looks after it itself.
    Host,
    /// In a launcher pod: a node agent plumbs inside the pod's network namespace and passes reports on.
    Pod,
}

impl Setting {
    pub(crate) fn network_place(self) -> NetworkPlace {
        match self {
            Self::Host => NetworkPlace::Agents,
            Self::Pod => NetworkPlace::Ours,
        }
    }
}

/// Everything that is shared by the parts of one supervisor.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) layout: Layout,
    pub(crate) setting: Setting,
    pub(crate) happened: mpsc::Sender<Input>,
}

/// Supervises a machine until it is told to go (SIGTERM).
///
/// # Errors
/// [`SupervisorError`] if it cannot begin; what happens to the machine is not an error but its status.
pub async fn run(layout: &Layout, setting: Setting) -> Result<(), SupervisorError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(SupervisorError::Signals)?;
    let own = layout.supervisor();
    let journal = journal::read(&own)?.unwrap_or_default();
    let whose = Whose::read(layout, &journal)?;
    let launch_socket = listen_async(&layout.init(), paths::LAUNCH_SOCKET)?;
    let control_socket = listen_async(&own, paths::CONTROL_SOCKET)?;

    let (happened, inbox) = mpsc::channel(EVENT_BACKLOG);
    let (requests, request_inbox) = mpsc::channel(16);
    let (to_init, init_outbox) = mpsc::channel(INIT_BACKLOG);
    let first = seed::first_status(&whose, &journal);
    let (publish, published) = watch::channel(first.clone());
    let bench = Bench { layout: layout.clone(), setting, happened: happened.clone() };
    let reporter = (setting == Setting::Pod).then(|| report::start(&layout.order(), published.clone()));
    let (desks, stations) = attach::open_desks(requests, published);
    tokio::spawn(control::serve(control_socket, desks.clone()));
    attach::serve_public_sockets(&own, &desks)?;
    if setting == Setting::Pod {
        // Its probes come from the container of PID 1 and QEMU, which the control socket is not in.
        let probes = listen_async(&layout.init(), paths::PROBE_SOCKET)?;
        tokio::spawn(control::serve_probes(probes, desks.clone()));
    }

    let driver = Driver::new(seed::from_journal(&journal, &whose, first, &own), to_init, publish);
    let line = Line { socket: launch_socket, outbox: init_outbox };
    tokio::spawn(bring_up(bench, journal, line, stations));
    let inputs = Inputs { happened: inbox, requests: request_inbox };
    let driving = driver.run(inputs);
    tokio::pin!(driving);
    let left = tokio::select! {
        left = &mut driving => {
            if left == DriverExit::MachineEnded {
                // The last status stays readable until whoever started us has seen it.
                terminate.recv().await;
            }
            left
        }
        _ = terminate.recv() => match last_look(layout, setting, &happened).await {
            true => timeout(LAST_STEPS, driving).await.unwrap_or(DriverExit::Detached),
            false => DriverExit::Detached,
        },
    };
    match (left, reporter) {
        (DriverExit::MachineEnded, Some(reporter)) => reporter.finish().await,
        (DriverExit::MachineEnded, None) => {}
        (DriverExit::Detached, _) => tracing::info!("the supervisor goes; the machine runs on"),
    }
    Ok(())
}

/// A kubelet ends the supervisor as soon as the container with QEMU has ended, however that was: whether it has is looked
/// at once more, and told to the driver. Answers whether it has.
async fn last_look(layout: &Layout, setting: Setting, happened: &mpsc::Sender<Input>) -> bool {
    match setting {
        Setting::Host => false,
        Setting::Pod => match lost::end(layout).await {
            Some(end) => happened.send(end).await.is_ok(),
            None => false,
        },
    }
}

/// How the machine was found.
enum Start {
    /// QEMU runs already.
    Attach { plan: Arc<LaunchPlan>, greeted: Greeted },
    /// It is ready to be executed.
    Launch { prepared: Box<Prepared>, greeted: Greeted },
    /// It cannot be executed; PID 1 is to go.
    Refuse { greeted: Greeted },
}

/// Gets the machine from wherever it is to being driven, then talks to PID 1 until the end.
async fn bring_up(bench: Bench, journal: Journal, line: Line, stations: Stations) {
    // Where an earlier supervisor has prepared, PID 1 is heard first: it knows better than a journal whether QEMU runs, and
    // preparing takes QEMU's sockets away.
    let was_prepared = journal.launched || bench.layout.supervisor().join(paths::MONITOR_SOCKET).exists();
    let start = if was_prepared { resume(&bench, &line).await } else { begin(&bench, &line).await };
    let Some(start) = start else { return };
    let (greeted, launch) = match start {
        Start::Attach { plan, greeted } => {
            tracing::info!("QEMU runs already; attaching");
            let _ = bench.happened.send(Input::Found).await;
            let interfaces = network::regain(&bench, &plan).await;
            attach::machine(&bench, plan, stations, interfaces, Unheard::TriedAgain);
            (greeted, None)
        }
        Start::Launch { prepared, greeted } => {
            let Prepared { plan, launch, descriptors, interfaces } = *prepared;
            attach::machine(&bench, Arc::new(plan), stations, interfaces, Unheard::GivenUp);
            (greeted, Some(ReadyLaunch { launch: Box::new(launch), descriptors }))
        }
        Start::Refuse { greeted } => (greeted, None),
    };
    init_link::serve(line, greeted, launch, bench).await;
}

/// First start: prepare while PID 1 may still be on its way.
async fn begin(bench: &Bench, line: &Line) -> Option<Start> {
    let prepared = prepare_or_tell(bench).await;
    let greeted = init_link::wait(&line.socket, bench).await?;
    Some(launch_or_refuse(prepared, greeted))
}

/// Prepares; a failure is told to the driver, who tells everybody else.
async fn prepare_or_tell(bench: &Bench) -> Option<Box<Prepared>> {
    let sentence = match prepare::Order::read(&bench.layout.order()) {
        Ok(order) => match prepare::prepare(bench, order).await {
            Ok(prepared) => return Some(Box::new(prepared)),
            Err(error) => ErrorChain(&error).to_string(),
        },
        Err(error) => ErrorChain(&error).to_string(),
    };
    tracing::error!(error = sentence, "the machine cannot be started");
    let _ = bench.happened.send(Input::PreparationFailed(sentence)).await;
    None
}

fn launch_or_refuse(prepared: Option<Box<Prepared>>, greeted: Greeted) -> Start {
    match prepared {
        Some(prepared) => Start::Launch { prepared, greeted },
        None => Start::Refuse { greeted },
    }
}

/// An earlier supervisor launched QEMU, or prepared to: PID 1 knows which.
async fn resume(bench: &Bench, line: &Line) -> Option<Start> {
    let greeted = init_link::wait(&line.socket, bench).await?;
    match greeted.state {
        InitState::Running { .. } => match prepare::read_plan(&bench.layout.supervisor()) {
            Ok(plan) => Some(Start::Attach { plan: Arc::new(plan), greeted }),
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "QEMU runs, but its plan is lost; only PID 1 can end it");
                Some(Start::Refuse { greeted })
            }
        },
        InitState::Waiting => Some(launch_or_refuse(prepare_or_tell(bench).await, greeted)),
    }
}
