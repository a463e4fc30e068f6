//! The driver's queue of commands to QEMU, one after the other, beside the driver, so that a QEMU that is slow to answer
//! delays nothing else. The outcome of a command becomes an event if it contradicts the state.

use garboard_protocol::causes::ErrorChain;
use garboard_qmp::{CallError, Monitor, qmp};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::supervisor::query_state;
use crate::supervisor::trace::Cause;
use crate::vm::{Event, RunState};

/// Commands that may wait; more wait only for a QEMU that has stopped answering.
const BACKLOG: usize = 16;

/// What is done to QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `cont`.
    LetRun,
    /// `stop`.
    StopVcpus,
    /// `system_reset`.
    Reset,
}

impl Command {
    fn name(self) -> &'static str {
        match self {
            Self::LetRun => "cont",
            Self::StopVcpus => "stop",
            Self::Reset => "system_reset",
        }
    }
}

/// One of them, and its cause.
struct Task {
    monitor: Monitor,
    command: Command,
    cause: Cause,
}

/// Where commands go in.
pub(super) struct CommandQueue(mpsc::Sender<Task>);

impl CommandQueue {
    /// The queue, and the receiver of what contradicts the state.
    pub(super) fn new() -> (Self, mpsc::Receiver<Event>) {
        let (todo, mut commands) = mpsc::channel::<Task>(BACKLOG);
        let (report, contradictions) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            while let Some(task) = commands.recv().await {
                let span = task.cause.span();
                let Some(contradiction) = perform(&task).instrument(span).await else { continue };
                if report.send(contradiction).await.is_err() {
                    return;
                }
            }
        });
        (Self(todo), contradictions)
    }

    /// Has a command done.
    pub(super) fn begin(&self, monitor: &Monitor, command: Command, cause: &Cause) {
        if self.0.try_send(Task { monitor: monitor.clone(), command, cause: cause.clone() }).is_err() {
            tracing::error!(
                command = command.name(),
                "QEMU has not answered earlier commands; this command is left out"
            );
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
async fn perform(Task { monitor, command, cause }: &Task) -> Option<Event> {
    let sent = match command {
        Command::LetRun => cause.command(&qmp::cont {}),
        Command::StopVcpus => cause.command(&qmp::stop {}),
        Command::Reset => cause.command(&qmp::system_reset {}),
    };
    let error = match monitor.send(sent).await {
        Ok(_) | Err(CallError::Disconnected { .. }) => return None,
        Err(error) => error,
    };
    tracing::error!(command = command.name(), error = %ErrorChain(&error), "QMP command failed");
    let found = query_state(monitor).await.ok();
    match (command, found) {
        (Command::Reset, _) => None,
        (Command::LetRun | Command::StopVcpus, Some(RunState::Running)) => Some(Event::VcpusResumed),
        (Command::LetRun | Command::StopVcpus, Some(run_state)) => Some(Event::VcpusStopped { run_state }),
        // Events report what may have taken effect; a refused command has no effect.
        (Command::LetRun, None) if !error.may_have_taken_effect() => {
            Some(Event::VcpusStopped { run_state: RunState::Paused })
        }
        (Command::LetRun | Command::StopVcpus, None) => None,
    }
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
        Task { monitor: monitor.clone(), command, cause: Cause::supervisor() }
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
    async fn a_command_that_hangs_does_not_hold_up_quit() {
        let (fake, monitor) = monitor().await;
        fake.script("stop", Behaviour::Silence);
        let (commands, _events) = CommandQueue::new();
        commands.begin(&monitor, Command::StopVcpus, &Cause::supervisor());
        fake.until_received("stop", 1).await;
        quit(&monitor, &Cause::supervisor());
        fake.until_received("quit", 1).await;
    }
}
