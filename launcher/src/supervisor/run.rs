//! The supervisor's whole run, in the order in which things happen.
//!
//! ```text
//!   prepared before? ── no, or PID 1 waits ──► prepare ──► launch ─┐
//!            ── PID 1 runs QEMU ────► plan.json ──────────────────┴─► drive ──► the end reported
//!            ── exit.json is there ─────────────────────────────────► explain ──┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use garboard_agent::client::NetworkPlace;
use garboard_log::Levels;
use garboard_plan::LaunchPlan;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::InitState;
use garboard_protocol::paths::{self, Layout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::attach::{self, ControlReceivers};
use super::driver::{Driver, DriverExit, Input, Inputs};
use super::init_link::{self, Handshake, InitChannel, ReadyLaunch};
use super::lost;
use super::monitor::RetryPolicy;
use super::prepare::sockets::{SocketError, listen_async};
use super::prepare::{self, Prepared};
use super::seed::{self, MachineMetadata};
use super::{control, journal, network, record, report, served};

/// Messages that may wait for PID 1.
const INIT_BACKLOG: usize = 8;
/// Events that may wait for the driver.
const EVENT_BACKLOG: usize = 64;
/// How long the driver may take to note an end that was found when the supervisor got its signal to end.
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
pub enum Environment {
    /// On a bare host: a shim made the machine's directory, and looks after it itself.
    Host,
    /// In a launcher pod: a node agent plumbs inside the pod's network namespace and passes reports on.
    Pod,
}

impl Environment {
    pub(crate) fn network_place(self) -> NetworkPlace {
        match self {
            Self::Host => NetworkPlace::Agents,
            Self::Pod => NetworkPlace::Ours,
        }
    }
}

/// The program that a supervisor is.
pub struct Program<'a> {
    /// Its version.
    pub version: &'a str,
    /// What it logs, which requests change.
    pub levels: Levels,
}

/// Everything that is shared by the parts of one supervisor.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) layout: Layout,
    pub(crate) environment: Environment,
    pub(crate) happened: mpsc::Sender<Input>,
}

/// Supervises a machine until it is asked to exit (SIGTERM).
///
/// # Errors
/// [`SupervisorError`] if it cannot begin; what happens to the machine is not an error but its status.
pub async fn run(layout: &Layout, environment: Environment, program: Program<'_>) -> Result<(), SupervisorError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(SupervisorError::Signals)?;
    let own = layout.supervisor();
    let mut journal = journal::read(&own)?.unwrap_or_default();
    if journal.run.is_empty() {
        // Written down with the first request that has a number, before that is done.
        journal.run = uuid::Uuid::new_v4().to_string();
    }
    let whose = MachineMetadata::read(layout, &journal)?;
    let launch_socket = listen_async(&layout.init(), paths::LAUNCH_SOCKET)?;
    let control_socket = listen_async(&own, paths::CONTROL_SOCKET)?;

    let (happened, inbox) = mpsc::channel(EVENT_BACKLOG);
    let (requests, request_inbox) = mpsc::channel(16);
    let (to_init, init_outbox) = mpsc::channel(INIT_BACKLOG);
    let first = seed::first_status(&whose, &journal, program.version);
    let (publish, published) = watch::channel(first.clone());
    let context = Context { layout: layout.clone(), environment, happened: happened.clone() };
    let reporter = (environment == Environment::Pod).then(|| report::start(&layout.order(), published.clone()));
    let recorder = (environment == Environment::Pod).then(|| record::start(layout, published.clone()));
    let (senders, receivers) = attach::open_channels(requests, published, program.levels, layout);
    tokio::spawn(control::serve(control_socket, senders.clone()));
    attach::serve_public_sockets(&own, &senders)?;
    if environment == Environment::Pod {
        // Its probes come from the container of PID 1 and QEMU, which the control socket is not in.
        let probes = listen_async(&layout.init(), paths::PROBE_SOCKET)?;
        tokio::spawn(control::serve_probes(probes, senders.clone()));
        served::start(&layout.order(), move |stream| control::client_of_agent(stream, senders.clone()));
    }

    let driver = Driver::new(seed::from_journal(&journal, &whose, first, &own), to_init, publish);
    let channel = InitChannel { socket: launch_socket, outbox: init_outbox };
    tokio::spawn(bring_up(context, journal, channel, receivers));
    let inputs = Inputs { happened: inbox, requests: request_inbox };
    let driving = driver.run(inputs);
    tokio::pin!(driving);
    let left = tokio::select! {
        left = &mut driving => {
            if left == DriverExit::MachineEnded {
                // The last status stays readable until the shim or node agent has seen it.
                terminate.recv().await;
            }
            left
        }
        _ = terminate.recv() => match last_look(layout, environment, &happened).await {
            true => timeout(LAST_STEPS, driving).await.unwrap_or(DriverExit::Detached),
            false => DriverExit::Detached,
        },
    };
    match (left, reporter) {
        (DriverExit::MachineEnded, Some(reporter)) => {
            let recorded = async {
                if let Some(recorder) = recorder {
                    recorder.finish().await;
                }
            };
            tokio::join!(reporter.finish(), recorded);
        }
        (DriverExit::MachineEnded, None) => {}
        (DriverExit::Detached, _) => tracing::info!("the supervisor exits; the machine keeps running"),
    }
    Ok(())
}

/// A kubelet ends the supervisor as soon as the container with QEMU has ended, however that was: whether it has is looked
/// at once more, and reported to the driver. Answers whether it has.
async fn last_look(layout: &Layout, environment: Environment, happened: &mpsc::Sender<Input>) -> bool {
    match environment {
        Environment::Host => false,
        Environment::Pod => match lost::end(layout).await {
            Some(end) => happened.send(end).await.is_ok(),
            None => false,
        },
    }
}

/// How the machine was found.
enum Start {
    /// QEMU runs already.
    Attach { plan: Arc<LaunchPlan>, handshake: Handshake },
    /// It is ready to be executed.
    Launch { prepared: Box<Prepared>, handshake: Handshake },
    /// It cannot be executed; PID 1 is to go.
    Refuse { handshake: Handshake },
}

/// Gets the machine from wherever it is to being driven, then talks to PID 1 until the end.
async fn bring_up(context: Context, journal: Journal, channel: InitChannel, receivers: ControlReceivers) {
    // Where an earlier supervisor has prepared, PID 1 is asked first: its answer is more current than a journal, and
    // preparing takes QEMU's sockets away.
    let was_prepared = journal.launched || context.layout.supervisor().join(paths::MONITOR_SOCKET).exists();
    let start = if was_prepared { resume(&context, &channel).await } else { begin(&context, &channel).await };
    let Some(start) = start else { return };
    let (handshake, launch) = match start {
        Start::Attach { plan, handshake } => {
            tracing::info!("QEMU runs already; the supervisor attaches to it");
            let _ = context.happened.send(Input::Found).await;
            let interfaces = network::regain(&context, &plan).await;
            attach::machine(&context, plan, receivers, interfaces, RetryPolicy::TriedAgain).await;
            (handshake, None)
        }
        Start::Launch { prepared, handshake } => {
            let Prepared { plan, launch, descriptors, interfaces } = *prepared;
            attach::machine(&context, Arc::new(plan), receivers, interfaces, RetryPolicy::GivenUp).await;
            (handshake, Some(ReadyLaunch { launch: Box::new(launch), descriptors }))
        }
        Start::Refuse { handshake } => (handshake, None),
    };
    init_link::serve(channel, handshake, launch, context).await;
}

/// First start: prepare while PID 1 may still be on its way.
async fn begin(context: &Context, channel: &InitChannel) -> Option<Start> {
    let prepared = prepare_or_report(context).await;
    let handshake = init_link::wait(&channel.socket, context).await?;
    Some(launch_or_refuse(prepared, handshake))
}

/// Prepares; a failure is reported to the driver, which publishes it.
async fn prepare_or_report(context: &Context) -> Option<Box<Prepared>> {
    let message = match prepare::Order::read(&context.layout.order()) {
        Ok(order) => match prepare::prepare(context, order).await {
            Ok(prepared) => return Some(Box::new(prepared)),
            Err(error) => ErrorChain(&error).to_string(),
        },
        Err(error) => ErrorChain(&error).to_string(),
    };
    tracing::error!(error = message, "the machine cannot be started");
    let _ = context.happened.send(Input::PreparationFailed(message)).await;
    None
}

fn launch_or_refuse(prepared: Option<Box<Prepared>>, handshake: Handshake) -> Start {
    match prepared {
        Some(prepared) => Start::Launch { prepared, handshake },
        None => Start::Refuse { handshake },
    }
}

/// An earlier supervisor launched QEMU, or prepared to: PID 1 reports which.
async fn resume(context: &Context, channel: &InitChannel) -> Option<Start> {
    let handshake = init_link::wait(&channel.socket, context).await?;
    match handshake.state {
        InitState::Running { .. } | InitState::Unknown => match prepare::read_plan(&context.layout.supervisor()) {
            Ok(plan) => Some(Start::Attach { plan: Arc::new(plan), handshake }),
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "QEMU runs, but its plan cannot be read; only PID 1 can end it");
                Some(Start::Refuse { handshake })
            }
        },
        InitState::Waiting => Some(launch_or_refuse(prepare_or_report(context).await, handshake)),
    }
}
