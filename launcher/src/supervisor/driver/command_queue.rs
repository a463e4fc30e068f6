//! The driver's queue of commands to QEMU, one after the other, beside the driver, so that a QEMU that is slow to answer
//! delays nothing else. The outcome of a command becomes an event if it contradicts the state.

use std::sync::atomic::{AtomicBool, Ordering};

use garboard_protocol::causes::ErrorChain;
use garboard_qmp::{CallError, Monitor, Request, qmp};
use tokio::sync::mpsc;
use tracing::Instrument;

use super::numbered::Ticket;
use crate::supervisor::query_state;
use crate::supervisor::trace::Cause;
use crate::vm::{Event, RunState};

/// Commands that may wait; more wait only for a QEMU that has stopped answering.
pub(super) const BACKLOG: usize = 16;

/// What is done to QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `cont`.
    LetRun,
    /// `stop`.
    StopVcpus,
    /// `system_reset`.
    Reset,
    /// `set-action` with `shutdown=pause`, then `system_powerdown`.
    PressButtonAndStay,
    /// `set-action` with `shutdown=poweroff`.
    LeaveAtPowerOff,
}

impl Command {
    fn name(self) -> &'static str {
        match self {
            Self::LetRun => "cont",
            Self::StopVcpus => "stop",
            Self::Reset => "system_reset",
            Self::PressButtonAndStay => "set-action, system_powerdown",
            Self::LeaveAtPowerOff => "set-action",
        }
    }
}

/// One of them, and its cause.
struct Task {
    monitor: Monitor,
    command: Command,
    cause: Cause,
    /// Of the request that it is done for, if that has a number.
    ticket: Option<Ticket>,
    /// QEMU has answered whether it did it.
    is_answered: AtomicBool,
}

/// Where commands go in, and what contradicts the state comes out.
pub(super) struct CommandQueue {
    todo: mpsc::Sender<Task>,
    report: mpsc::Sender<Event>,
}

impl CommandQueue {
    /// The queue, and the receiver of what contradicts the state.
    pub(super) fn new() -> (Self, mpsc::Receiver<Event>) {
        let (todo, mut commands) = mpsc::channel::<Task>(BACKLOG);
        let (report, contradictions) = mpsc::channel(BACKLOG);
        let queue = Self { todo, report: report.clone() };
        tokio::spawn(async move {
            while let Some(task) = commands.recv().await {
                let span = task.cause.span();
                let contradiction = perform(&task).instrument(span).await;
                // Otherwise nobody knows whether it was done.
                if let Some(ticket) = task.ticket.filter(|_| task.is_answered.into_inner()) {
                    ticket.settle();
                }
                let Some(contradiction) = contradiction else { continue };
                if report.send(contradiction).await.is_err() {
                    return;
                }
            }
        });
        (queue, contradictions)
    }

    /// For what is asked of the guest beside this queue.
    pub(super) fn report(&self) -> mpsc::Sender<Event> {
        self.report.clone()
    }

    /// Whether one more command would be left out.
    pub(super) fn is_full(&self) -> bool {
        self.todo.capacity() == 0
    }

    /// Has a command done. A user's is asked for only where there is room for it ([`Self::is_full`]).
    pub(super) fn begin(&self, monitor: &Monitor, command: Command, cause: &Cause, ticket: Option<Ticket>) {
        let task = Task {
            monitor: monitor.clone(),
            command,
            cause: cause.clone(),
            ticket,
            is_answered: AtomicBool::default(),
        };
        if let Err(left_out) = self.todo.try_send(task) {
            tracing::error!(
                command = command.name(),
                "QEMU has not answered earlier commands; this command is left out"
            );
            if let Some(ticket) = left_out.into_inner().ticket {
                ticket.deny("QEMU has not answered earlier commands");
            }
        }
    }
}

/// Sends `quit` to QEMU, without waiting for what is being done: it may never be done.
pub(super) fn quit(monitor: &Monitor, cause: &Cause) {
    let (monitor, cause) = (monitor.clone(), cause.clone());
    let span = cause.span();
    let quitting = async move {
        // It may cut the connection before its reply, and a dying QEMU answers nothing.
        match monitor.send(cause.command(&qmp::quit {})).await {
            Ok(_) | Err(CallError::Disconnected { .. }) => {}
            Err(error) => {
                tracing::error!(command = "quit", error = %ErrorChain(&error), "QMP command failed")
            }
        }
    };
    tokio::spawn(quitting.instrument(span));
}

/// The state already assumes that the command succeeded. Where it failed, the state returns to what QEMU reports.
async fn perform(task: &Task) -> Option<Event> {
    let cause = &task.cause;
    let error = match task.command {
        Command::LetRun => task.sent(cause.command(&qmp::cont {})).await?,
        Command::StopVcpus => task.sent(cause.command(&qmp::stop {})).await?,
        Command::Reset => task.sent(cause.command(&qmp::system_reset {})).await?,
        Command::PressButtonAndStay => return press(task).await,
        Command::LeaveAtPowerOff => task.sent(cause.command(&at_power_off(qmp::ShutdownAction::poweroff))).await?,
    };
    let found = query_state(&task.monitor).await.ok();
    match (task.command, found) {
        // A QEMU that stays where it should leave gets `quit`.
        (Command::Reset | Command::PressButtonAndStay | Command::LeaveAtPowerOff, _) => None,
        (Command::LetRun | Command::StopVcpus, Some(RunState::Running)) => Some(Event::VcpusResumed),
        (Command::LetRun | Command::StopVcpus, Some(run_state)) => Some(Event::VcpusStopped { run_state }),
        // Events report what may have taken effect; a refused command has no effect.
        (Command::LetRun, None) if !error.may_have_taken_effect() => {
            Some(Event::VcpusStopped { run_state: RunState::Paused })
        }
        (Command::LetRun | Command::StopVcpus, None) => None,
    }
}

impl Task {
    /// Sends a command; gives its failure, unless QEMU has ended.
    async fn sent(&self, request: Request) -> Option<CallError> {
        let outcome = self.monitor.send(request).await;
        let is_answered = !outcome.as_ref().is_err_and(CallError::may_have_taken_effect);
        self.is_answered.store(is_answered, Ordering::Relaxed);
        match outcome {
            Ok(_) | Err(CallError::Disconnected { .. }) => None,
            Err(error) => {
                tracing::error!(command = self.command.name(), error = %ErrorChain(&error), "QMP command failed");
                Some(error)
            }
        }
    }
}

/// The button is pressed only if QEMU is known to stay: otherwise the run would end instead of going on.
async fn press(task: &Task) -> Option<Event> {
    let stay = task.cause.command(&at_power_off(qmp::ShutdownAction::pause));
    if task.sent(stay).await.is_some() {
        return Some(Event::ButtonNotPressed);
    }
    let refused = task.sent(task.cause.command(&qmp::system_powerdown {})).await?;
    (!refused.may_have_taken_effect()).then_some(Event::ButtonNotPressed)
}

/// What QEMU does when the guest is off.
fn at_power_off(action: qmp::ShutdownAction) -> qmp::set_action {
    qmp::set_action { shutdown: Some(action), panic: None, reboot: None, watchdog: None }
}

#[cfg(test)]
mod tests {
    use garboard_qmp::ConnectOptions;
    use garboard_qmp::testing::{Behaviour, FakeMonitor};

    use super::*;

    async fn monitor() -> (FakeMonitor, Monitor) {
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        (fake, monitor)
    }

    fn task(monitor: &Monitor, command: Command) -> Task {
        Task {
            monitor: monitor.clone(),
            command,
            cause: Cause::supervisor(),
            ticket: None,
            is_answered: AtomicBool::default(),
        }
    }

    #[tokio::test]
    async fn a_pause_that_qemu_refuses_is_taken_back() {
        let (fake, monitor) = monitor().await;
        fake.script("stop", Behaviour::Refuse("GenericError", "not now"));
        fake.script("query-status", Behaviour::Reply(serde_json::json!({"status": "running", "running": true})));
        assert_eq!(perform(&task(&monitor, Command::StopVcpus)).await, Some(Event::VcpusResumed));
        fake.script("cont", Behaviour::Refuse("GenericError", "not now"));
        fake.script("query-status", Behaviour::Reply(serde_json::json!({"status": "io-error", "running": false})));
        let held = Event::VcpusStopped { run_state: RunState::IoError };
        assert_eq!(perform(&task(&monitor, Command::LetRun)).await, Some(held));
    }

    #[tokio::test]
    async fn the_button_is_pressed_only_if_qemu_stays() {
        let (fake, monitor) = monitor().await;
        assert_eq!(perform(&task(&monitor, Command::PressButtonAndStay)).await, None);
        let sent: Vec<_> = fake.received().into_iter().map(|each| (each.command, each.arguments)).collect();
        let stay = ("set-action".to_owned(), serde_json::json!({"shutdown": "pause"}));
        assert!(sent.ends_with(&[stay, ("system_powerdown".to_owned(), serde_json::json!({}))]), "{sent:?}");
        fake.script("set-action", Behaviour::Refuse("GenericError", "no"));
        let refused = perform(&task(&monitor, Command::PressButtonAndStay)).await;
        assert_eq!(refused, Some(Event::ButtonNotPressed));
        assert_eq!(fake.received().iter().filter(|each| each.command == "system_powerdown").count(), 1);
        fake.script("system_powerdown", Behaviour::Refuse("GenericError", "no"));
        let refused = perform(&task(&monitor, Command::PressButtonAndStay)).await;
        assert_eq!(refused, Some(Event::ButtonNotPressed));
    }

    #[tokio::test]
    async fn a_command_that_hangs_does_not_hold_up_quit() {
        let (fake, monitor) = monitor().await;
        fake.script("stop", Behaviour::Silence);
        let (commands, _events) = CommandQueue::new();
        commands.begin(&monitor, Command::StopVcpus, &Cause::supervisor(), None);
        fake.until_received("stop", 1).await;
        quit(&monitor, &Cause::supervisor());
        fake.until_received("quit", 1).await;
    }

    #[tokio::test]
    async fn the_queue_is_full_before_a_command_is_left_out() {
        let (fake, monitor) = monitor().await;
        fake.script("stop", Behaviour::Silence);
        let (commands, _events) = CommandQueue::new();
        let begin = || commands.begin(&monitor, Command::StopVcpus, &Cause::supervisor(), None);
        begin();
        fake.until_received("stop", 1).await;
        for _ in 0..BACKLOG {
            assert!(!commands.is_full());
            begin();
        }
        assert!(commands.is_full());
    }
}
