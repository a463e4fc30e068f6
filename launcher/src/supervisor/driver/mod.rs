//! The one task that owns the machine. It alone moves [`Life`](crate::vm::Life), issues state-changing QMP commands and
//! publishes; all others post to one of two inboxes. Events of the guest go before requests.

use std::sync::Arc;
use std::time::Duration;

use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{InterfaceStatus, Status};
use garboard_protocol::exit::ExitReport;
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::{FromInit, ToInit};
use garboard_qmp::Monitor;
use garboard_qmp::agent::Agent;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

mod command_queue;
mod guest_request;
mod held;
mod input;
mod journaling;
mod numbered;
mod planned;

pub(crate) use held::REQUEST_PATIENCE;
pub(super) use input::{Client, DriverExit, DriverSeed, Heartbeat, Input, Inputs, Offer, Outcome, Planned};

use command_queue::{Command, CommandQueue};
use guest_request::GuestRequest;
use held::Held;
use numbered::{Numbers, Repeatable};

use super::trace::Cause;
use crate::clock::{self, boot_id, boot_ms, now_ms};
use crate::vm::{
    Denial, Effect, Event, OnReady, PowerDownMethod, RequestQueue, State, Verdict, View, guest_interfaces, numbers,
    publish, step,
};

/// How long QEMU's last events may take to arrive after PID 1 has reported its end.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// The longest sleep until a deadline: what sleeps here does not count while the host sleeps, and deadlines do.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// How many generations are reserved in the journal at once.
const GENERATIONS: u64 = 1024;

/// An end that PID 1 has reported, held until QEMU's last events are in: they have the cause.
struct PendingEnd {
    report: Box<ExitReport>,
    until: Instant,
}

/// The driver.
pub(super) struct Driver {
    seed: DriverSeed,
    /// What the file holds.
    written: Journal,
    /// The interfaces without what the guest reports of them.
    planned: Vec<InterfaceStatus>,
    pending_end: Option<PendingEnd>,
    queue: RequestQueue,
    held: Held,
    monitor: Option<Monitor>,
    agent: Option<Agent>,
    init: mpsc::Sender<ToInit>,
    publish: watch::Sender<Status>,
    commands: CommandQueue,
    numbers: Numbers,
    /// What the command queue found to contradict the state.
    contradictions: mpsc::Receiver<Event>,
    boot_id: String,
    /// The cause of the driver's present work.
    cause: Cause,
    /// Held while file systems are frozen or thawed: one after the other.
    freezing: Arc<Mutex<()>>,
    /// What the agent's last report had of file systems, where it contradicts what is known.
    doubted: Option<bool>,
    /// Where the outcome of the request goes that is being done, if the guest agent does it.
    done: Option<Outcome>,
    /// The cause of a stop in progress: its deadline is part of it.
    stop: Cause,
}

impl Driver {
    /// A driver that sends to PID 1 through `init` and to all others through `publish`. To be called inside a tokio runtime.
    #[must_use]
    pub(super) fn new(mut seed: DriverSeed, init: mpsc::Sender<ToInit>, publish: watch::Sender<Status>) -> Self {
        let (queue, written) = (RequestQueue::default(), seed.journal.clone());
        let (planned, pending_end, monitor, agent) = (seed.status.interfaces.clone(), None, None, None);
        let ((commands, contradictions), boot_id) = (CommandQueue::new(), boot_id());
        let held = Held::new(&seed.life.state);
        numbers::interrupt(&mut seed.journal.requests);
        Self {
            seed,
            written,
            planned,
            pending_end,
            queue,
            held,
            monitor,
            agent,
            init,
            publish,
            commands,
            numbers: Numbers::default(),
            contradictions,
            boot_id,
            cause: Cause::supervisor(),
            freezing: Arc::default(),
            doubted: None,
            done: None,
            stop: Cause::supervisor(),
        }
    }

    /// Drives the machine until it has ended or the supervisor is to leave. After an end requests are still answered.
    pub(super) async fn run(mut self, mut inputs: Inputs) -> DriverExit {
        self.publish_if_changed();
        loop {
            if let State::Ended(_) = self.seed.life.state {
                let requests = self.last_requests();
                tokio::spawn(numbered::answer_after_end(inputs.requests, requests));
                return DriverExit::MachineEnded;
            }
            let (wake, end) = (self.wake_instant(), self.pending_end.as_ref().map(|pending| pending.until));
            let held = self.held.wake();
            tokio::select! {
                biased;
                input = inputs.happened.recv() => match input {
                    None => return DriverExit::Detached,
                    Some(input) => self.take(input).await,
                },
                Some(event) = self.contradictions.recv() => self.apply(event).await,
                Some(settled) = self.numbers.settled() => self.note_settled(settled),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.time_passed().await;
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => self.finish_pending_end().await,
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
                Some(offer) = inputs.requests.recv() => {
                    if let Some(offer) = self.held.hold(offer, &self.seed.life.state) {
                        self.serve(offer).await;
                    }
                }
            }
            self.do_accepted().await;
            for offer in self.held.due(&self.seed.life.state) {
                self.serve(offer).await;
            }
            self.publish_if_changed();
        }
    }

    async fn do_accepted(&mut self) {
        while let Some(request) = self.queue.take() {
            self.apply(Event::Requested(request)).await;
        }
    }

    /// Answers a request, and does it if it is accepted.
    async fn serve(&mut self, Offer { request, client, cause }: Offer) {
        match client {
            Client::Once { reply, done } => {
                let verdict = self.judge(request, done, cause).await;
                // What a client reads of the status from now on is later than its request.
                let _ = reply.send(verdict);
            }
            Client::Numbered { id, ask, reply } => {
                self.serve_numbered(request, Repeatable { id, ask, reply }, cause).await
            }
        }
    }

    /// Judges a request, and does it if it is accepted.
    async fn judge(&mut self, request: ChangeRequest, done: Option<Outcome>, cause: Cause) -> Verdict {
        let verdict = match self.denial(request) {
            Some(denial) => Verdict::Denied(denial),
            None => self.queue.offer(request, View::from(&self.seed.life.state)),
        };
        if verdict == Verdict::Queued && matches!(request, ChangeRequest::Stop(_)) {
            self.stop = cause.clone();
        }
        let span = cause.span();
        self.cause = cause;
        self.done = done.filter(|_| verdict == Verdict::Queued);
        self.do_accepted().instrument(span).await;
        // Where nothing came of it, its client learns that by the end of this.
        self.done = None;
        self.cause = Cause::supervisor();
        verdict
    }

    /// Why a request is not even offered: what only the driver knows of the guest and of QEMU. What is accepted is not left out later.
    fn denial(&self, request: ChangeRequest) -> Option<Denial> {
        if !matches!(self.seed.life.state, State::Running { .. }) {
            return None;
        }
        if request == ChangeRequest::SoftReboot && self.agent.is_none() && !self.seed.life.has_acpi {
            return Some(Denial::CannotBeAsked);
        }
        let is_lost = match request {
            // Whether the guest is to run is compared when the monitor is back; a reset would be lost.
            ChangeRequest::Reset => self.monitor.is_none() || self.commands.is_full(),
            ChangeRequest::Pause | ChangeRequest::Unpause => self.commands.is_full(),
            ChangeRequest::Stop(_)
            | ChangeRequest::Prolong { .. }
            | ChangeRequest::SoftReboot
            | ChangeRequest::Freeze { .. }
            | ChangeRequest::Unfreeze => false,
        };
        is_lost.then_some(Denial::NotAnswering)
    }

    /// A deadline has come. While a stop is under way it is the stop's.
    async fn time_passed(&mut self) {
        let cause = if self.deadline_ms().is_some() { self.stop.clone() } else { Cause::supervisor() };
        let span = cause.span();
        self.cause = cause;
        self.apply(Event::TimePassed).instrument(span).await;
        self.cause = Cause::supervisor();
    }

    fn wake_instant(&self) -> Option<Instant> {
        let left = self.seed.life.wake_at_ms()?.saturating_sub(boot_ms()).max(0);
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        Some(Instant::now() + left.min(LONGEST_SLEEP))
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Launching(written) => {
                self.seed.journal.launched = true;
                let _ = written.send(self.write_journal());
            }
            Input::Init(message) => self.take_from_init(message).await,
            Input::Found if !self.seed.journal.launched => {
                tracing::error!("QEMU runs but the journal has no launch; the guest is assumed to be running");
                self.seed.journal.launched = true;
                self.seed.life.memory.has_run = true;
                self.write_journal();
            }
            Input::Found => {}
            Input::Heartbeat(heartbeat) => {
                self.seed.life.memory.is_silent = heartbeat == Heartbeat::Silent;
            }
            Input::Lost if self.pending_end.is_some() => self.finish_pending_end().await,
            Input::Lost => self.apply(Event::Lost).await,
            Input::Planned(planned) => self.note_plan(*planned),
            Input::LinksChanged(links) => self.note_links(&links),
            Input::MonitorUp { monitor, run_state } => {
                self.monitor = Some(monitor);
                let on_ready = std::mem::replace(&mut self.seed.on_ready, OnReady::Leave);
                self.apply(Event::MonitorReady { run_state, on_ready }).await;
            }
            Input::MonitorGone => {
                self.monitor = None;
                self.seed.life.memory.is_silent = false;
                self.finish_pending_end().await;
            }
            Input::Guest(event) => self.apply(event).await,
            Input::AgentUp(agent) => {
                self.agent = agent;
                self.seed.life.memory.has_agent = self.agent.is_some();
                if self.agent.is_none() {
                    self.seed.status.guest = None;
                    self.seed.status.interfaces.clone_from(&self.planned);
                }
            }
            Input::GuestAgentReported { guest, frozen, interfaces } => {
                match guest {
                    Some(guest) => self.seed.status.guest = Some(*guest),
                    None => drop(self.seed.status.guest.get_or_insert_default()),
                }
                // A report that was asked for before a freeze or a thaw was done may arrive after it: the next one repeats what is true.
                let differs = frozen.filter(|frozen| *frozen != self.seed.life.memory.frozen);
                if let Some(frozen) = differs.filter(|_| self.doubted == differs) {
                    self.apply(Event::FreezeReported { frozen }).await;
                }
                self.doubted = differs.filter(|frozen| *frozen != self.seed.life.memory.frozen);
                if let Some(interfaces) = interfaces {
                    self.seed.status.interfaces = guest_interfaces::beside(&self.planned, interfaces);
                }
            }
            Input::CredentialsTried(tried) => self.seed.status.access_credentials = Some(tried),
            Input::Tainted(what) => self.note_taint(what),
            Input::PreparationFailed(message) => self.apply(Event::PreparationFailed(message)).await,
            // A guest that runs is kept although our state lacks it; one that never ran is only a process that waits.
            Input::MonitorFailed(message) if !self.seed.journal.started => {
                self.apply(Event::PreparationFailed(message)).await;
            }
            Input::MonitorFailed(_) => {}
        }
    }

    /// Messages of PID 1.
    async fn take_from_init(&mut self, message: FromInit) {
        match message {
            FromInit::Spawned { pid } => {
                self.note_execution(pid);
                self.apply(Event::Spawned).await;
            }
            FromInit::TerminationRequested => {
                tracing::info!("PID 1 received SIGTERM");
                let graceful = garboard_protocol::control::StopMode::Graceful { within_seconds: None };
                let verdict = self.queue.offer(ChangeRequest::Stop(graceful), View::from(&self.seed.life.state));
                if let (Verdict::AlreadySo, Some(by_ms)) = (verdict, self.deadline_ms()) {
                    self.send_deadline(by_ms);
                }
            }
            FromInit::Ended { report } => {
                let until = Instant::now() + LAST_EVENTS;
                self.pending_end = Some(PendingEnd { report: Box::new(report), until });
                if self.monitor.is_none() {
                    self.finish_pending_end().await;
                }
            }
            FromInit::HelperEnded { program } => {
                tracing::error!(
                    program,
                    "a program beside QEMU ended; the guest's network is gone until its next start"
                );
                self.seed.status.ended_helper = Some(program);
            }
            FromInit::Hello { .. } | FromInit::Unknown => {}
        }
    }

    async fn finish_pending_end(&mut self) {
        if let Some(pending) = self.pending_end.take() {
            self.apply(Event::QemuGone(pending.report)).await;
        }
    }

    async fn apply(&mut self, event: Event) {
        let name = event_name(&event);
        let effects = step(&mut self.seed.life, event, clock::now());
        tracing::debug!(event = name, state = ?View::from(&self.seed.life.state), ?effects, "event applied");
        // The journal is written before anything irreversible is done.
        self.write_journal();
        for effect in effects {
            self.execute(effect);
        }
        self.publish_if_changed();
    }

    /// Does what is to be done, or has it done. Nothing here waits for QEMU.
    fn execute(&mut self, effect: Effect) {
        match (effect, &self.monitor) {
            (Effect::LetRun, Some(_)) => self.command(Command::LetRun),
            (Effect::StopVcpus, Some(_)) => self.command(Command::StopVcpus),
            (Effect::Reset, Some(_)) => self.command(Command::Reset),
            (Effect::PressButtonAndStay, Some(_)) => self.command(Command::PressButtonAndStay),
            (Effect::LeaveAtPowerOff, Some(_)) => self.command(Command::LeaveAtPowerOff),
            (
                Effect::LetRun
                | Effect::StopVcpus
                | Effect::Reset
                | Effect::PressButtonAndStay
                | Effect::LeaveAtPowerOff,
                None,
            ) => {}
            (Effect::AskGuest(way), monitor) => {
                let (agent, button) = match way {
                    PowerDownMethod::AgentFirst => (self.agent.clone(), monitor.clone()),
                    PowerDownMethod::Button => (None, monitor.clone()),
                    PowerDownMethod::Agent => (self.agent.clone(), None),
                };
                self.guest(agent).power_down(button);
            }
            (Effect::AskAgentToReboot, _) => self.guest(self.agent.clone()).reboot(),
            (Effect::Freeze, _) => self.guest(self.agent.clone()).freeze(self.done.take()),
            (Effect::Thaw, _) => self.guest(self.agent.clone()).thaw(self.done.take()),
            (Effect::Quit, Some(monitor)) => command_queue::quit(monitor, &self.cause),
            (Effect::Quit, None) | (Effect::Kill, _) => {
                tracing::warn!("PID 1 is asked to kill QEMU");
                self.send_to_init(ToInit::Kill);
            }
            (Effect::TellInit { by_ms }, _) => self.send_deadline(by_ms),
            (Effect::Finish, _) => self.log_end(),
        }
    }

    /// Has QEMU do something for the present cause.
    fn command(&mut self, command: Command) {
        let ticket = match command {
            Command::LetRun | Command::StopVcpus | Command::Reset => self.numbers.take(),
            Command::PressButtonAndStay | Command::LeaveAtPowerOff => None,
        };
        if let Some(monitor) = &self.monitor {
            self.commands.begin(monitor, command, &self.cause, ticket);
        }
    }

    /// The guest, to be asked something for the present cause.
    fn guest(&self, agent: Option<Agent>) -> GuestRequest {
        let (turn, report, cause) = (Arc::clone(&self.freezing), self.commands.report(), self.cause.clone());
        GuestRequest { agent, turn, report, cause }
    }

    /// By when a stop that is under way is enforced, milliseconds since boot.
    fn deadline_ms(&self) -> Option<i64> {
        match self.seed.life.state {
            State::Stopping { force_at_ms, .. } => Some(force_at_ms),
            State::Ending { kill_at_ms } => Some(kill_at_ms),
            State::Preparing | State::Launched | State::Running { .. } | State::Ended(_) => None,
        }
    }

    fn send_deadline(&self, by_ms: i64) {
        let left = u64::try_from(by_ms.saturating_sub(boot_ms()).max(0)).unwrap_or(0);
        self.send_to_init(ToInit::PoweringDown { within_seconds: left.div_ceil(1000) });
    }

    fn send_to_init(&self, message: ToInit) {
        // A full inbox means that PID 1 is not connected; it acts on its own then.
        let _ = self.init.try_send(message);
    }

    fn note_taint(&mut self, what: String) {
        const MOST_TAINTS: usize = 16;
        tracing::warn!(command = what, "machine tainted: changed by a QMP command of a client");
        if self.seed.journal.taints.len() < MOST_TAINTS && !self.seed.journal.taints.contains(&what) {
            self.seed.journal.taints.push(what);
            self.write_journal();
        }
    }

    fn publish_if_changed(&mut self) {
        publish::refresh(&mut self.seed.status, &self.seed.life, &self.seed.journal.taints, now_ms());
        let generation = self.publish.borrow().generation + 1;
        if !publish::differs(&self.publish.borrow(), &self.seed.status) {
            return;
        }
        if generation > self.seed.journal.generation {
            // Before it is published: the next supervisor must begin above.
            self.seed.journal.generation = generation + GENERATIONS;
            self.write_journal();
        }
        self.publish.send_replace(Status { generation, ..self.seed.status.clone() });
    }

    fn log_end(&self) {
        let State::Ended(ended) = &self.seed.life.state else { return };
        let last_output = ended.report.as_ref().map(|report| report.last_output.as_str()).unwrap_or_default();
        if ended.cause.is_success() {
            tracing::info!(cause = ?ended.cause, end_message = ended.message, "the run is over");
        } else {
            tracing::error!(cause = ?ended.cause, end_message = ended.message, last_output, "the run is over");
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
        Event::StoppedByIoError(_) => "io-error",
        Event::Panicked => "panicked",
        Event::WatchdogFired => "watchdog",
        Event::AgentDidNotReboot => "agent-did-not-reboot",
        Event::ButtonNotPressed => "button-not-pressed",
        Event::Froze => "froze",
        Event::DidNotFreeze { .. } => "did-not-freeze",
        Event::Thawed => "thawed",
        Event::DidNotThaw => "did-not-thaw",
        Event::FreezeReported { .. } => "freeze-reported",
        Event::Requested(_) => "requested",
        Event::TimePassed => "time-passed",
        Event::QemuGone(_) => "qemu-gone",
        Event::Lost => "lost",
        Event::PreparationFailed(_) => "preparation-failed",
    }
}

#[cfg(test)]
mod tests;
