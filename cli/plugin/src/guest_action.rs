//! `kubectl garboard pause | unpause | reset | soft-reboot | freeze | unfreeze`: what the supervisor does at once. It is asked over the same way as for a
//! console, and the status that it reports shows when it is done.

use std::time::{Duration, Instant};

use garboard_protocol::control::{ControlRequest, PauseReason, Status};

use crate::args::GuestActionArgs;
use crate::exit::{FAILED, REFUSED, exit_error};
use crate::find;
use crate::kubectl::Kubectl;
use crate::line::{Line, Outcome, Statuses};
use crate::link::Link;
use crate::output::outln;
use crate::several;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestAction {
    /// Its vCPUs are stopped.
    Pause,
    /// They run again.
    Unpause,
    /// Its reset button is pressed.
    Reset,
    /// Its guest shuts down and starts again.
    SoftReboot,
    /// Its file systems are frozen.
    Freeze {
        /// After how many seconds they are thawed unasked.
        thaw_after_seconds: Option<u64>,
    },
    /// Its file systems are thawed.
    Unfreeze,
}

impl GuestAction {
    fn request(self) -> ControlRequest {
        match self {
            Self::Pause => ControlRequest::Pause,
            Self::Unpause => ControlRequest::Unpause,
            Self::Reset => ControlRequest::Reset,
            Self::SoftReboot => ControlRequest::SoftReboot,
            Self::Freeze { thaw_after_seconds } => ControlRequest::Freeze { thaw_after_seconds },
            Self::Unfreeze => ControlRequest::Unfreeze,
        }
    }

    /// The state afterwards, as on a bare host.
    const fn result(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Unpause => "running",
            Self::Reset => "reset",
            Self::SoftReboot => "rebooted",
            Self::Freeze { .. } => "frozen",
            Self::Unfreeze => "thawed",
        }
    }

    /// Whether a machine that was like `before` is in that state.
    fn is_so(self, before: &Status, now: &Status) -> bool {
        match self {
            Self::Pause => now.paused == Some(PauseReason::PausedByUser),
            Self::Unpause => now.paused.is_none(),
            Self::Reset | Self::SoftReboot => now.resets > before.resets,
            Self::Freeze { .. } => now.frozen,
            Self::Unfreeze => !now.frozen,
        }
    }

    /// Whether the guest still has time to react.
    const fn is_under_way(self, now: &Status) -> bool {
        match self {
            Self::Pause | Self::Unpause | Self::Reset | Self::Freeze { .. } | Self::Unfreeze => true,
            Self::SoftReboot => now.soft_rebooting,
        }
    }
}

/// `kubectl garboard pause MACHINE…` and its like.
pub(crate) fn run(kubectl: &Kubectl, args: &GuestActionArgs, action: GuestAction) -> anyhow::Result<u8> {
    let patience = Duration::from_secs(args.timeout);
    several::each(&args.machines, |name| settle(kubectl, name, action, patience))
}

fn settle(kubectl: &Kubectl, name: &str, action: GuestAction, patience: Duration) -> anyhow::Result<()> {
    let place = find::place(kubectl, name)?;
    let watching = Link::open(kubectl, &place)?;
    let asking = Asking { kubectl, place: &place, action, deadline: Instant::now() + patience };
    let outcome = watch(watching.line, &asking);
    let result = watching.exec.close(outcome)?;
    outln!("{} {result}", place.machine)
}

/// What is asked of which machine.
struct Asking<'a> {
    kubectl: &'a Kubectl,
    place: &'a find::Place,
    action: GuestAction,
    deadline: Instant,
}

fn watch(watching: Line, Asking { kubectl, place, action, deadline }: &Asking<'_>) -> anyhow::Result<String> {
    let (action, deadline) = (*action, *deadline);
    let mut statuses = watching.statuses()?;
    let Some(before) = statuses.next(deadline)? else {
        anyhow::bail!("the supervisor closed the connection without an answer")
    };
    let Link { mut line, exec } = Link::open(kubectl, place)?;
    let asked = line.request(action.request());
    drop(line);
    match exec.close(asked)? {
        Outcome::AlreadySo => return Ok(format!("is {} already", action.result())),
        Outcome::Queued => {}
    }
    follow(&mut statuses, &before, action, deadline).map_err(|error| match error {
        Stayed::Over(message) => {
            exit_error(REFUSED, format!("{} was not {}: {message}", place.machine, action.result()))
        }
        Stayed::Lost(error) => {
            exit_error(FAILED, format!("it is unknown whether {} is {}: {error:#}", place.machine, action.result()))
        }
    })?;
    Ok(action.result().to_owned())
}

/// Why it was not seen to be so.
enum Stayed {
    /// The run is over, or the guest has let its time pass.
    Over(String),
    /// Nothing more was reported.
    Lost(anyhow::Error),
}

fn follow(statuses: &mut Statuses, before: &Status, action: GuestAction, deadline: Instant) -> Result<(), Stayed> {
    let mut was_asked = false;
    loop {
        let status = statuses.next(deadline).map_err(Stayed::Lost)?;
        let status = status.ok_or_else(|| Stayed::Lost(anyhow::anyhow!("the supervisor closed the connection")))?;
        if action.is_so(before, &status) {
            return Ok(());
        }
        if let Some(ended) = status.ended {
            return Err(Stayed::Over(ended.message));
        }
        let is_under_way = action.is_under_way(&status);
        if was_asked && !is_under_way {
            return Err(Stayed::Over("the guest did not react".to_owned()));
        }
        was_asked |= is_under_way;
    }
}
