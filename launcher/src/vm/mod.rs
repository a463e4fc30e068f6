//! The life of one machine: states, what happens to it, and what follows. Pure: no clock, no socket.
//!
//! ```text
//!                    Spawned              MonitorReady
//!   ┌───────────┐          ┌──────────┐               ┌───────────────────────────┐
//!   │ Preparing ├─────────►│ Launched ├──────────────►│ Running {vcpus}           │◄─┐ pause, unpause,
//!   └─────┬─────┘          └────┬─────┘               └──────┬─────────────┬──────┘──┘ reset, soft reboot, I/O error
//!         │ stop, failure       │ stop              stop     │             │ panic, watchdog, force
//!         │                     └────────────┐   ┌───────────┘             │
//!         │                                  ▼   ▼          grace over     ▼
//!         │                             ┌──────────┐  or force       ┌────────┐
//!         │                             │ Stopping ├────────────────►│ Ending │ QEMU ends: after `quit`, or as it reported
//!         │                             └────┬─────┘                 └───┬────┘
//!         │           PID 1: QEMU is gone    │                           │
//!         └─────────────────────────────────►▼◄──────────────────────────┘
//!                                       ┌─────────┐
//!                                       │  Ended  │  (from every state: QEMU may die at any moment)
//!                                       └─────────┘
//! ```
//!
//! [`step()`] is the only function that moves a [`State`]; its match has no wildcard. The driver ([`crate::supervisor`])
//! executes the [`Effect`]s in order and feeds their results back as events. When time itself is the next event, [`Life::wake_at_ms`]
//! is that time, from the state alone: no deadline can be missed. Deadlines are on the clock that starts at the host's boot.

#[cfg(test)]
mod each;
pub(crate) mod guest_interfaces;
mod io_retry;
mod now;
pub(crate) mod numbers;
pub(crate) mod publish;
mod queue;
mod step;

pub use io_retry::{IoError, IoRetry};
pub use now::Now;
pub use queue::{Denial, RequestQueue, Verdict, View};
pub use step::{QUIT_PATIENCE, step};

use garboard_api::defaults::GRACE_PERIOD_SECONDS;
use garboard_plan::{Lifecycle, RebootPolicy};
use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{Ended, PauseReason};
use garboard_protocol::exit::{EndHints, ExitReport};

/// Where the machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Disks, networks and sockets are being made; there is no QEMU.
    Preparing,
    /// QEMU was executed; its monitor has not answered yet.
    Launched,
    /// QEMU holds the guest.
    Running {
        /// Whether the guest executes.
        vcpus: Vcpus,
    },
    /// The guest was asked to power down.
    Stopping {
        /// When it will be ended by force, milliseconds since boot.
        force_at_ms: i64,
        /// Whether it was asked.
        asked: PowerDownRequest,
    },
    /// QEMU got the command `quit`, or leaves on its own.
    Ending {
        /// When PID 1 kills it, milliseconds since boot.
        kill_at_ms: i64,
    },
    /// QEMU is gone.
    Ended(Box<Ended>),
}

/// Whether the guest executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vcpus {
    /// It does.
    Running,
    /// It does not, and why.
    Stopped(PauseReason),
}

/// Whether the guest was asked to power down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerDownRequest {
    /// It has. A guest that is booting ignores the power button, so it is pressed again.
    Sent {
        /// When, milliseconds since boot.
        again_at_ms: i64,
    },
    /// QEMU's monitor has to be there first.
    NotYet,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// PID 1 executed QEMU.
    Spawned,
    /// QEMU's monitor answered and what it holds was verified.
    MonitorReady {
        /// What QEMU reported of itself.
        run_state: RunState,
        /// Whether the guest is to be resumed now (not for `startStrategy: Paused`, not on re-attach).
        on_ready: OnReady,
    },
    /// QEMU reported `SHUTDOWN`: it leaves.
    Shutdown {
        /// QEMU's reason.
        kind: ShutdownKind,
    },
    /// QEMU reported `RESET`, asked for by the guest or by us.
    WasReset,
    /// QEMU holds the vCPUs: it reported `STOP`, or refused `cont`.
    VcpusStopped {
        /// What QEMU reports of itself. The event alone has no reason.
        run_state: RunState,
    },
    /// QEMU reported `RESUME`.
    VcpusResumed,
    /// QEMU reported `BLOCK_IO_ERROR` with the action `stop`.
    StoppedByIoError(IoError),
    /// QEMU reported `GUEST_PANICKED`.
    Panicked,
    /// QEMU reported `WATCHDOG` with an action that stops the machine.
    WatchdogFired,
    /// There is no guest agent to reboot the guest, or it refused.
    AgentDidNotReboot,
    /// The power button could not be pressed for a soft reboot.
    ButtonNotPressed,
    /// The guest agent froze the file systems.
    Froze,
    /// It did not.
    DidNotFreeze {
        /// Whether it may do so yet: its answer did not come, or made no sense.
        may_have_frozen: bool,
    },
    /// The guest agent thawed the file systems, or they were thawed.
    Thawed,
    /// It did not.
    DidNotThaw,
    /// The guest agent reports whether file systems are frozen.
    FreezeReported {
        /// Whether they are.
        frozen: bool,
    },
    /// A user's request, accepted by the queue.
    Requested(ChangeRequest),
    /// A deadline passed.
    TimePassed,
    /// PID 1 reports that QEMU is gone.
    QemuGone(Box<ExitReport>),
    /// QEMU and PID 1 are gone together, without a report.
    Lost,
    /// Preparation failed, with the message for the user.
    PreparationFailed(String),
}

/// What to do once the monitor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReady {
    /// Let the guest run.
    LetRun,
    /// Leave it as it is.
    Leave,
}

/// QEMU's `RunState` (`qapi/run-state.json`), as far as it makes a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// `running`.
    Running,
    /// `prelaunch`: the guest has not executed anything yet.
    Prelaunch,
    /// `paused`, or `postmigrate`: a command holds the guest.
    Paused,
    /// `suspended` (the guest sleeps), the states that a migration or a snapshot passes through, and states of a later QEMU:
    /// no pause of a user and none that we may end.
    Other,
    /// `io-error`.
    IoError,
    /// `guest-panicked`.
    GuestPanicked,
    /// `watchdog`.
    Watchdog,
    /// `shutdown`.
    Shutdown,
    /// `internal-error`: KVM gave up on the guest.
    InternalError,
}

/// QEMU's `ShutdownCause` (`qapi/run-state.json`), grouped by its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownKind {
    /// `guest-shutdown`.
    Guest,
    /// `guest-reset`, or `host-qmp-system-reset`, under `rebootPolicy: Terminate`.
    GuestReset,
    /// `guest-panic`.
    GuestPanic,
    /// Everything the host's side caused.
    Host,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// QMP `cont`.
    LetRun,
    /// QMP `stop`.
    StopVcpus,
    /// QMP `system_reset`.
    Reset,
    /// Ask the guest to power down.
    AskGuest(PowerDownMethod),
    /// Have the guest agent reboot the guest.
    AskAgentToReboot,
    /// QMP `set-action` with `shutdown=pause`, so that QEMU stays when the guest is off, then `system_powerdown`.
    PressButtonAndStay,
    /// QMP `set-action` with `shutdown=poweroff`: QEMU leaves again when the guest is off.
    LeaveAtPowerOff,
    /// QMP `quit`.
    Quit,
    /// Have PID 1 send SIGKILL.
    Kill,
    /// Have the guest agent freeze the file systems, if they are not.
    Freeze,
    /// Have the guest agent thaw them, if they are frozen.
    Thaw,
    /// Send PID 1 the time by which it will be over.
    TellInit {
        /// Milliseconds since boot.
        by_ms: i64,
    },
    /// Report how it ended, to all, and end.
    Finish,
}

/// How a guest is asked to power down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerDownMethod {
    /// By its agent; by the power button if there is none or it declines.
    AgentFirst,
    /// By the power button (ACPI).
    Button,
    /// By its agent alone: without ACPI it has no power button.
    Agent,
}

/// File systems that are to be frozen, or are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// When they are thawed unasked, milliseconds since boot; never, if it is not set.
    pub thaw_at_ms: Option<i64>,
    /// The guest agent has not answered yet whether it froze them.
    pub is_asked: bool,
}

/// A soft reboot that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftReboot {
    /// How far it is.
    pub step: RebootStep,
    /// When it is given up; where the guest is off, when it is reset again. Milliseconds since boot.
    pub until_ms: i64,
}

/// How far a soft reboot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootStep {
    /// The guest agent is asked to reboot the guest.
    Agent,
    /// The power button is pressed, and QEMU stays when the guest is off.
    PowerButton,
    /// The guest is off, and is reset.
    Reset,
}

/// What is remembered beside the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Hints about an end that is coming.
    pub hints: EndHints,
    /// Resets and reboots so far.
    pub resets: u32,
    /// The guest has executed something.
    pub has_run: bool,
    /// QEMU does not answer its monitor.
    pub is_silent: bool,
    /// The guest agent answers.
    pub has_agent: bool,
    /// A user paused the guest, as recorded by an earlier supervisor.
    pub paused_by_user: bool,
    /// The pauses that I/O errors cause.
    pub io: IoRetry,
    /// How long the guest has for a stop, if a request prolonged it, milliseconds: more than the plan's, or nothing new.
    pub prolonged_ms: i64,
    /// A soft reboot that is under way; only while QEMU holds the guest, and no stop.
    pub soft_reboot: Option<SoftReboot>,
    /// File systems were to be frozen on request, and were not thawed since.
    pub freeze: Option<Freeze>,
    /// File systems are frozen, as far as is known.
    pub frozen: bool,
}

/// The machine as [`step()`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Where it is.
    pub state: State,
    /// What is remembered.
    pub memory: Memory,
    /// How long a guest may take to power down by its plan, milliseconds.
    pub grace_ms: i64,
    /// The guest has ACPI: its power button can be pressed.
    pub has_acpi: bool,
    /// A reboot of the guest ends the run (`rebootPolicy: Terminate`).
    pub reboot_ends_run: bool,
}

impl Life {
    /// A machine whose plan is not known. A stop that comes before the plan meets a guest that has not executed anything, so
    /// the usual grace period only limits how long it takes to get there.
    #[must_use]
    pub fn unplanned(state: State, memory: Memory) -> Self {
        let grace_ms = i64::from(GRACE_PERIOD_SECONDS) * 1000;
        Self { state, memory, grace_ms, has_acpi: true, reboot_ends_run: false }
    }

    /// Takes over from the plan how the machine starts and stops.
    pub fn follow(&mut self, planned: &Lifecycle) {
        self.grace_ms = i64::try_from(planned.grace_period_seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        self.has_acpi = planned.acpi;
        self.reboot_ends_run = planned.reboot == RebootPolicy::Terminate;
    }

    /// When [`Event::TimePassed`] is due, milliseconds since boot; nothing if only others can move the machine.
    #[must_use]
    pub fn wake_at_ms(&self) -> Option<i64> {
        match self.state {
            State::Running { .. } => {
                let soft_reboot = self.memory.soft_reboot.map(|reboot| reboot.until_ms);
                let thaw = self.memory.freeze.and_then(|freeze| freeze.thaw_at_ms);
                [soft_reboot, thaw, self.memory.io.at_ms()].into_iter().flatten().min()
            }
            State::Stopping { force_at_ms, asked } => {
                let again_at_ms = match asked {
                    PowerDownRequest::Sent { again_at_ms } => Some(again_at_ms),
                    PowerDownRequest::NotYet => None,
                };
                [Some(force_at_ms), again_at_ms, self.memory.io.at_ms()].into_iter().flatten().min()
            }
            State::Ending { kill_at_ms } => Some(kill_at_ms),
            State::Preparing | State::Launched | State::Ended(_) => None,
        }
    }
}
