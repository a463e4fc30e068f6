//! The supervisor's whole run, in the order in which things happen.
//!
//! ```text
//!   journal? ── none, or PID 1 still waits ──► prepare ──► launch ─┐
//!            ── QEMU was executed ──► plan.json ──────────────────┴─► drive ──► told how it ended
//!            ── exit.json is there ─────────────────────────────────► explain ──┘
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use garboard_protocol::journal::Journal;
use garboard_protocol::launch::InitState;
use garboard_protocol::paths;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::agent_client::NetworkPlace;
use super::attach::{self, Stations};
use super::init_link::{self, Greeted, Line, ReadyLaunch};
use super::monitor::Unheard;
use super::prepare::sockets::{SocketError, listen_async};
use super::prepare::{self, Prepared};
use super::{control, journal, network, report, seed};
use crate::plan::LaunchPlan;
use crate::vm::{Chain, Driver, Input, Inputs, Left};

/// Messages that may wait for PID 1.
const INIT_BACKLOG: usize = 8;
/// Events that may wait for the driver.
const EVENT_BACKLOG: usize = 64;

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
    /// Signals cannot be received.
    #[error("could not listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Where a supervisor works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// On a bare host: a keeper made the shared directory, and looks after it itself.
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
    pub(crate) shared: PathBuf,
    pub(crate) setting: Setting,
    pub(crate) happened: mpsc::Sender<Input>,
}

/// Supervises the machine of a shared directory until it is told to go (SIGTERM).
///
/// # Errors
/// [`SupervisorError`] if it cannot begin; what happens to the machine is not an error but its status.
pub async fn run(shared: &Path, setting: Setting) -> Result<(), SupervisorError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(SupervisorError::Signals)?;
    let journal = journal::read(shared)?.unwrap_or_default();
    let order = prepare::Order::read(shared)?;
    let launch_socket = listen_async(shared, paths::LAUNCH_SOCKET)?;
    let control_socket = listen_async(shared, paths::CONTROL_SOCKET)?;

    let (happened, inbox) = mpsc::channel(EVENT_BACKLOG);
    let (requests, request_inbox) = mpsc::channel(16);
    let (to_init, init_outbox) = mpsc::channel(INIT_BACKLOG);
    let first = seed::first_status(&order, &journal);
    let (publish, published) = watch::channel(first.clone());
    let bench = Bench { shared: shared.to_owned(), setting, happened: happened.clone() };
    let reporter = (setting == Setting::Pod).then(|| report::start(shared, published.clone()));
    let (desks, stations) = attach::open_desks(requests, published);
    tokio::spawn(control::serve(control_socket, desks.clone()));
    attach::serve_public_sockets(shared, &desks)?;

    let driver = Driver::new(seed::from_journal(&journal, &order, first, shared), to_init, publish);
    let line = Line { socket: launch_socket, outbox: init_outbox };
    tokio::spawn(bring_up(bench, order, journal, line, stations));
    let inputs = Inputs { happened: inbox, requests: request_inbox };
    tokio::select! {
        left = driver.run(inputs) => {
            if left == Left::MachineEnded {
                // The last status stays readable until whoever started us has seen it.
                terminate.recv().await;
                if let Some(reporter) = reporter {
                    reporter.finish().await;
                }
            }
        }
        _ = terminate.recv() => tracing::info!("the supervisor goes; the machine runs on"),
    }
    Ok(())
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
async fn bring_up(bench: Bench, order: prepare::Order, journal: Journal, line: Line, stations: Stations) {
    let start = if journal.launched { resume(&bench, order, &line).await } else { begin(&bench, order, &line).await };
    let Some(start) = start else { return };
    let (greeted, launch) = match start {
        Start::Attach { plan, greeted } => {
            tracing::info!("QEMU runs already; attaching");
            let interfaces = network::regain(&bench, &plan).await;
            let unheard = if journal.started { Unheard::TriedAgain } else { Unheard::GivenUp };
            attach::machine(&bench, plan, stations, interfaces, unheard);
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
async fn begin(bench: &Bench, order: prepare::Order, line: &Line) -> Option<Start> {
    let prepared = prepare_or_tell(bench, order).await;
    let greeted = init_link::wait(&line.socket, bench).await?;
    Some(launch_or_refuse(prepared, greeted))
}

/// Prepares; a failure is told to the driver, who tells everybody else.
async fn prepare_or_tell(bench: &Bench, order: prepare::Order) -> Option<Box<Prepared>> {
    let sentence = match prepare::prepare(bench, order).await {
        Ok(prepared) => return Some(Box::new(prepared)),
        Err(error) => Chain(&error).to_string(),
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

/// An earlier supervisor launched QEMU, or was about to: PID 1 knows which.
async fn resume(bench: &Bench, order: prepare::Order, line: &Line) -> Option<Start> {
    let greeted = init_link::wait(&line.socket, bench).await?;
    match greeted.state {
        InitState::Running { .. } => match prepare::read_plan(&bench.shared) {
            Ok(plan) => Some(Start::Attach { plan: Arc::new(plan), greeted }),
            Err(error) => {
                tracing::error!(error = %Chain(&error), "QEMU runs, but its plan is lost; only PID 1 can end it");
                Some(Start::Refuse { greeted })
            }
        },
        InitState::Waiting => Some(launch_or_refuse(prepare_or_tell(bench, order).await, greeted)),
    }
}
