//! Phases of a VirtualMachineInstance that this implementation goes through.

use crate::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};

/// A phase, by KubeVirt's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It was created, and nothing was done yet.
    Pending,
    /// Its pod exists.
    Scheduling,
    /// Its pod's containers run on a node.
    Scheduled,
    /// QEMU runs its guest.
    Running,
    /// A name that is none of these (KubeVirt's `Unknown`, `WaitingForSync`): of another program, which may run the guest.
    Unknown,
    /// Its run is over, and ended well.
    Succeeded,
    /// Its run is over, and ended badly.
    Failed,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 7] =
        [Self::Pending, Self::Scheduling, Self::Scheduled, Self::Running, Self::Unknown, Self::Succeeded, Self::Failed];

    /// KubeVirt's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The phase of an instance; `Pending` if its status has none.
    #[must_use]
    pub fn of(vmi: &VirtualMachineInstance) -> Self {
        vmi.status.as_ref().map_or(Self::Pending, Self::of_status)
    }

    /// The phase in a status.
    #[must_use]
    pub fn of_status(status: &VirtualMachineInstanceStatus) -> Self {
        Self::from_name(status.phase.as_deref())
    }

    /// The phase of this name; `Pending` without one.
    #[must_use]
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            None | Some("") => Self::Pending,
            Some(name) => Self::ALL.into_iter().find(|phase| phase.name() == name).unwrap_or(Self::Unknown),
        }
    }

    /// Whether nothing comes after it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Whether an instance was ever in this phase.
    #[must_use]
    pub fn was_seen(self, vmi: &VirtualMachineInstance) -> bool {
        let transitions = vmi.status.iter().flat_map(|status| &status.phase_transition_timestamps);
        Self::of(vmi) == self || transitions.into_iter().any(|each| each.phase.as_deref() == Some(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_of_another_program_is_not_taken_for_an_instance_that_was_never_started() {
        assert_eq!([None, Some("")].map(Phase::from_name), [Phase::Pending; 2]);
        assert_eq!([Some("Unknown"), Some("WaitingForSync"), Some("x")].map(Phase::from_name), [Phase::Unknown; 3]);
        assert!(Phase::ALL.iter().all(|phase| Phase::from_name(Some(phase.name())) == *phase));
    }
}
