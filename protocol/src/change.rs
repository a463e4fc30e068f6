//! Requests that change a running machine, among those of its control socket. They can have a number, by which they are done once
//! however often they are sent.

use crate::control::{ControlRequest, StopMode};

/// A request that changes the machine, and is answered by what became of it: what may have a
/// [`Number`](crate::number::Number).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRequest {
    /// End the run.
    Stop(StopMode),
    /// Give the guest more time for each stop from now on that names none of its own.
    Prolong {
        /// Seconds that it has to power itself down. Less than it has already changes nothing.
        grace_seconds: u64,
    },
    /// Stop the vCPUs.
    Pause,
    /// Let the vCPUs run again.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Have the guest shut down and start again.
    SoftReboot,
    /// Freeze the guest's file systems.
    Freeze {
        /// After how many seconds they are thawed unasked; never, if it is not set.
        thaw_after_seconds: Option<u64>,
    },
    /// Thaw the guest's file systems.
    Unfreeze,
}

impl ControlRequest {
    /// The change; nothing of one that asks, or that opens a stream.
    #[must_use]
    pub const fn change(&self) -> Option<ChangeRequest> {
        match self {
            Self::Stop { mode } => Some(ChangeRequest::Stop(*mode)),
            Self::Prolong { grace_seconds } => Some(ChangeRequest::Prolong { grace_seconds: *grace_seconds }),
            Self::Pause => Some(ChangeRequest::Pause),
            Self::Unpause => Some(ChangeRequest::Unpause),
            Self::Reset => Some(ChangeRequest::Reset),
            Self::SoftReboot => Some(ChangeRequest::SoftReboot),
            Self::Freeze { thaw_after_seconds } => {
                Some(ChangeRequest::Freeze { thaw_after_seconds: *thaw_after_seconds })
            }
            Self::Unfreeze => Some(ChangeRequest::Unfreeze),
            Self::Status
            | Self::Watch
            | Self::Guest { .. }
            | Self::Statistics
            | Self::LogVerbosity { .. }
            | Self::Show { .. }
            | Self::Console { .. }
            | Self::Vnc { .. }
            | Self::UsbRedir
            | Self::Screenshot { .. }
            | Self::Qmp { .. }
            | Self::Probe { .. }
            // Asked inside the pod, where no connection is lost between one try and the next.
            | Self::BackupHook { .. } => None,
        }
    }
}
