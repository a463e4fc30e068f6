//! The one task that owns the machine. It alone moves [`Life`], issues state-changing QMP commands and
//! publishes; everybody else posts to one of two inboxes. What the guest did goes before what people ask.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use garboard_protocol::control::{DiskStatus, GuestStatus, InterfaceStatus, Status};
use garboard_protocol::exit::ExitReport;
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_qmp::{CallError, Monitor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::{
    Effect, Event, Life, OnReady, Request, RequestQueue, RunState, State, Verdict, View, guest_interfaces, step,
};
use crate::supervisor::{PowerDown, journal, query_state};

/// What a plan says about the machine, for its status.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Whether vCPUs are interpreted.
    pub software_emulation: bool,
    /// Machine type.
    pub machine: String,
    /// Guest memory, bytes.
    pub memory_bytes: u64,
    /// Memory asked for beside it, bytes.
    pub overhead_bytes: u64,
    /// vCPUs.
    pub vcpus: u32,
    /// What the next start keeps.
    pub stored: Option<serde_json::Value>,
    /// Disks in the order of the manifest.
    pub disks: Vec<DiskStatus>,
    /// Interfaces with the addresses they will lease.
    pub interfaces: Vec<InterfaceStatus>,
}

/// What reaches the driver beside people's requests.
pub enum Input {
    /// The machine was planned, or the plan of an earlier supervisor was found.
    Planned(Box<Planned>),
    /// A launch is about to be sent to PID 1; answered once the journal says so.
    Launching(oneshot::Sender<()>),
    /// PID 1 said something.
    Init(FromInit),
    /// QEMU's monitor answered and the machine is as planned.
    MonitorUp {
        /// The connection.
        monitor: Monitor,
        /// What QEMU said of itself.
        run_state: RunState,
    },
    /// QEMU closed its monitor; everything it said there has been told.
    MonitorGone,
    /// QEMU said something that matters.
    Guest(Event),
    /// The guest agent came or went.
    AgentUp(Option<Arc<dyn PowerDown>>),
    /// The guest agent told something about the guest.
    AgentSaid {
        /// Names and versions.
        guest: GuestStatus,
        /// Addresses by MAC; nothing if it does not say (file systems are frozen, it is busy), which takes nothing back.
        interfaces: Option<Vec<InterfaceStatus>>,
    },
    /// Somebody changed the machine by a QMP command of their own.
    Tainted(String),
    /// Preparation failed, with the sentence for the user.
    PreparationFailed(String),
    /// QEMU cannot be driven, with the sentence for the user.
    MonitorFailed(String),
    /// The supervisor itself should go; the machine stays.
    Leave,
}

/// The driver's inboxes.
pub struct Inputs {
    /// What happened.
    pub happened: mpsc::Receiver<Input>,
    /// What people ask.
    pub requests: mpsc::Receiver<(Request, oneshot::Sender<Verdict>)>,
}

/// What a driver starts from.
pub struct DriverSeed {
    /// The machine.
    pub life: Life,
    /// The journal so far.
    pub journal: Journal,
    /// The first status.
    pub status: Status,
    /// What to do once the monitor answers.
    pub on_ready: OnReady,
    /// The directory the journal is in.
    pub shared: PathBuf,
}

/// How long QEMU's last events may take to arrive after PID 1 has told of its end.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// An end that PID 1 has told of, kept back until QEMU's last events are in: they say why.
struct PendingEnd {
    report: Box<ExitReport>,
    until: Instant,
}

/// The driver.
pub struct Driver {
    seed: DriverSeed,
    /// What the file holds.
    written: Journal,
    /// The interfaces without what the guest says of them.
    planned: Vec<InterfaceStatus>,
    pending_end: Option<PendingEnd>,
    queue: RequestQueue,
    monitor: Option<Monitor>,
    agent: Option<Arc<dyn PowerDown>>,
    init: mpsc::Sender<ToInit>,
    publish: watch::Sender<Status>,
    wake_at_ms: Option<i64>,
}

/// Why a driver returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The run is over and told.
    MachineEnded,
    /// The supervisor was asked to leave; QEMU runs on.
    Asked,
}

impl Driver {
    /// A driver that tells PID 1 through `init` and everybody else through `publish`.
    #[must_use]
    pub fn new(seed: DriverSeed, init: mpsc::Sender<ToInit>, publish: watch::Sender<Status>) -> Self {
        let wake_at_ms = match seed.life.state {
            State::Stopping { force_at_ms, .. } => Some(force_at_ms),
            State::Ending { kill_at_ms } => Some(kill_at_ms),
            State::Preparing | State::Launched | State::Running { .. } | State::Ended(_) => None,
        };
        let (queue, written) = (RequestQueue::default(), seed.journal.clone());
        let (planned, pending_end, monitor, agent) = (seed.status.interfaces.clone(), None, None, None);
        Self { seed, written, planned, pending_end, queue, monitor, agent, init, publish, wake_at_ms }
    }

    /// Drives the machine until it has ended or the supervisor is to leave.
    pub async fn run(mut self, mut inputs: Inputs) -> Left {
        self.publish_if_changed();
        loop {
            if let State::Ended(_) = self.seed.life.state {
                return Left::MachineEnded;
            }
            let (wake, end) = (self.wake_instant(), self.pending_end.as_ref().map(|pending| pending.until));
            tokio::select! {
                biased;
                input = inputs.happened.recv() => match input {
                    None | Some(Input::Leave) => return Left::Asked,
                    Some(input) => self.take(input).await,
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.wake_at_ms = None;
                    self.apply(Event::TimePassed).await;
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => self.finish_pending_end().await,
                Some((request, reply)) = inputs.requests.recv() => {
                    let verdict = self.queue.offer(request, View::from(&self.seed.life.state));
                    let _ = reply.send(verdict);
                }
            }
            while let Some(request) = self.queue.take() {
                self.apply(Event::Requested(request)).await;
            }
            self.publish_if_changed();
        }
    }

    fn wake_instant(&self) -> Option<Instant> {
        let left = self.wake_at_ms?.saturating_sub(now_ms()).max(0);
        Some(Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)))
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Launching(written) => {
                self.seed.journal.launched = true;
                self.write_journal();
                let _ = written.send(());
            }
            Input::Init(FromInit::Spawned { pid }) => {
                tracing::info!(pid, "QEMU was executed");
                self.apply(Event::Spawned).await;
            }
            Input::Init(FromInit::TerminationRequested) => {
                tracing::info!("PID 1 was told to terminate");
                let graceful = garboard_protocol::control::StopMode::Graceful { within_seconds: None };
                let verdict = self.queue.offer(Request::Stop(graceful), View::from(&self.seed.life.state));
                if let (Verdict::AlreadySo, State::Stopping { force_at_ms, .. }) = (verdict, &self.seed.life.state) {
                    self.tell_init_of_deadline(*force_at_ms).await;
                }
            }
            Input::Init(FromInit::Ended { report }) => {
                let until = Instant::now() + LAST_EVENTS;
                self.pending_end = Some(PendingEnd { report: Box::new(report), until });
                if self.monitor.is_none() {
                    self.finish_pending_end().await;
                }
            }
            Input::Init(FromInit::Hello { .. }) => {}
            Input::Planned(planned) => {
                let status = &mut self.seed.status;
                status.software_emulation = planned.software_emulation;
                status.machine = planned.machine;
                status.memory_bytes = planned.memory_bytes;
                status.overhead_bytes = planned.overhead_bytes;
                status.vcpus = planned.vcpus;
                status.stored = planned.stored;
                status.disks = planned.disks;
                status.interfaces.clone_from(&planned.interfaces);
                self.planned = planned.interfaces;
            }
            Input::MonitorUp { monitor, run_state } => {
                self.monitor = Some(monitor);
                let on_ready = std::mem::replace(&mut self.seed.on_ready, OnReady::Leave);
                self.apply(Event::MonitorReady { run_state, on_ready }).await;
            }
            Input::MonitorGone => {
                self.monitor = None;
                self.finish_pending_end().await;
            }
            Input::Guest(event) => self.apply(event).await,
            Input::AgentUp(agent) => {
                self.agent = agent;
                if self.agent.is_none() {
                    self.seed.status.guest = None;
                    self.seed.status.interfaces.clone_from(&self.planned);
                }
            }
            Input::AgentSaid { guest, interfaces } => {
                self.seed.status.guest = Some(guest);
                if let Some(interfaces) = interfaces {
                    self.seed.status.interfaces = guest_interfaces::beside(&self.planned, interfaces);
                }
            }
            Input::Tainted(what) => self.note_taint(what),
            Input::PreparationFailed(message) => self.apply(Event::PreparationFailed(message)).await,
            // A guest that runs is worth more than our view of it; one that never ran is nothing but a process that waits.
            Input::MonitorFailed(message) if !self.seed.journal.started => {
                self.apply(Event::PreparationFailed(message)).await;
            }
            Input::MonitorFailed(_) => {}
            Input::Leave => {}
        }
    }

    async fn finish_pending_end(&mut self) {
        if let Some(pending) = self.pending_end.take() {
            self.apply(Event::QemuGone(pending.report)).await;
        }
    }

    /// Takes an event, and then what its effects came to if that is not as the state says.
    async fn apply(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let name = event_name(&event);
            let effects = step(&mut self.seed.life, event, now_ms());
            tracing::debug!(event = name, state = ?View::from(&self.seed.life.state), ?effects, "step");
            // What must not be forgotten is written before anything irreversible is done.
            self.write_journal();
            for effect in effects {
                if let Some(contradiction) = self.execute(effect).await {
                    next = Some(contradiction);
                }
            }
        }
        self.publish_if_changed();
    }

    /// Does what is to be done; answers with an event if QEMU would not.
    async fn execute(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::LetRun => return self.let_run().await,
            Effect::StopVcpus => self.command("stop").await,
            Effect::Reset => self.command("system_reset").await,
            Effect::AskGuest => self.ask_guest(),
            Effect::Quit if self.monitor.is_some() => self.command("quit").await,
            Effect::Quit | Effect::Kill => self.tell_init(ToInit::Kill).await,
            Effect::TellInit { force_at_ms } => self.tell_init_of_deadline(force_at_ms).await,
            Effect::WakeAt { at_ms } => {
                self.wake_at_ms = Some(self.wake_at_ms.map_or(at_ms, |earlier| earlier.min(at_ms)));
            }
            Effect::Finish => self.log_end(),
        }
        None
    }

    /// The state says already that the guest runs. Where QEMU refuses, its own word is what the state goes back to.
    async fn let_run(&mut self) -> Option<Event> {
        if self.is_refused("cont").await {
            let monitor = self.monitor.as_ref()?;
            let run_state = query_state(monitor).await.unwrap_or(RunState::Paused);
            return Some(Event::VcpusStopped { run_state });
        }
        if !self.seed.journal.started {
            self.seed.journal.started = true;
            self.seed.journal.started_at_ms = now_ms();
            self.write_journal();
            tracing::info!("the guest runs");
        }
        None
    }

    async fn command(&self, name: &'static str) {
        let _ = self.is_refused(name).await;
    }

    /// Sends a command and answers whether it was refused. One that QEMU may have followed was not.
    async fn is_refused(&self, name: &'static str) -> bool {
        let Some(monitor) = &self.monitor else { return false };
        match monitor.call_raw(name, None, Vec::new()).await {
            // `quit` may cut the connection before its reply, and a dying QEMU answers nothing.
            Ok(_) | Err(CallError::Disconnected { .. }) => false,
            Err(error) => {
                tracing::error!(command = name, error = %Chain(&error), "QEMU did not do as it was told");
                !error.may_have_taken_effect()
            }
        }
    }

    /// Agent first, ACPI if there is none or it declines; beside the driver, because a guest may be slow.
    fn ask_guest(&self) {
        let (agent, monitor) = (self.agent.clone(), self.monitor.clone());
        tokio::spawn(async move {
            if let Some(agent) = agent {
                match agent.power_down().await {
                    Ok(()) => return tracing::info!("the guest agent was asked to power down"),
                    Err(reason) => tracing::info!(reason, "the guest agent did not power down; using ACPI"),
                }
            }
            let Some(monitor) = monitor else { return };
            match monitor.call_raw("system_powerdown", None, Vec::new()).await {
                Ok(_) => tracing::info!("the power button was pressed"),
                Err(error) => tracing::warn!(error = %Chain(&error), "the power button could not be pressed"),
            }
        });
    }

    async fn tell_init_of_deadline(&self, force_at_ms: i64) {
        let left = u64::try_from(force_at_ms.saturating_sub(now_ms()).max(0)).unwrap_or(0);
        self.tell_init(ToInit::PoweringDown { within_seconds: left.div_ceil(1000) }).await;
    }

    async fn tell_init(&self, message: ToInit) {
        // A full inbox means that PID 1 is not connected; it acts on its own then.
        let _ = self.init.try_send(message);
    }

    fn note_taint(&mut self, what: String) {
        const MOST_TAINTS: usize = 16;
        tracing::warn!(command = what, "the machine is tainted: somebody changed it over QMP");
        if self.seed.journal.taints.len() < MOST_TAINTS && !self.seed.journal.taints.contains(&what) {
            self.seed.journal.taints.push(what);
            self.write_journal();
        }
    }

    fn write_journal(&mut self) {
        let life = &self.seed.life;
        let journal = &mut self.seed.journal;
        journal.version = garboard_protocol::PROTOCOL_VERSION;
        journal.hints = life.memory.hints;
        journal.resets = life.memory.resets;
        journal.stop_deadline_ms = match life.state {
            State::Stopping { force_at_ms, .. } => Some(force_at_ms),
            State::Ending { kill_at_ms } => Some(kill_at_ms),
            State::Preparing | State::Launched | State::Running { .. } | State::Ended(_) => None,
        };
        if let State::Ended(ended) = &life.state {
            journal.ended = Some((**ended).clone());
        }
        if *journal != self.written {
            journal::write(&self.seed.shared, journal);
            self.written = journal.clone();
        }
    }

    fn publish_if_changed(&mut self) {
        super::publish::refresh(&mut self.seed.status, &self.seed.life, &self.seed.journal.taints, now_ms());
        let status = &self.seed.status;
        self.publish.send_if_modified(|published| {
            let changed = super::publish::differs(published, status);
            if changed {
                let generation = published.generation + 1;
                *published = status.clone();
                published.generation = generation;
            }
            changed
        });
    }

    fn log_end(&self) {
        let State::Ended(ended) = &self.seed.life.state else { return };
        let last_words = ended.report.as_ref().map(|report| report.last_words.as_str()).unwrap_or_default();
        if ended.cause.is_success() {
            tracing::info!(cause = ?ended.cause, sentence = ended.sentence, "the run is over");
        } else {
            tracing::error!(cause = ?ended.cause, sentence = ended.sentence, last_words, "the run is over");
        }
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Spawned => "spawned",
        Event::MonitorReady { .. } => "monitor-ready",
        Event::Shutdown { .. } => "shutdown",
        Event::WasReset => "reset",
        Event::VcpusStopped { .. } => "stop",
        Event::VcpusResumed => "resume",
        Event::StoppedByIoError => "io-error",
        Event::Panicked => "panicked",
        Event::WatchdogFired => "watchdog",
        Event::Requested(_) => "requested",
        Event::TimePassed => "time-passed",
        Event::QemuGone(_) => "qemu-gone",
        Event::PreparationFailed(_) => "preparation-failed",
    }
}

/// Milliseconds since 1970 by the host's clock.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// An error with its causes, for a log field.
pub struct Chain<'a>(pub &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(inner) = cause {
            write!(formatter, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}
