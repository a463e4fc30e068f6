//! Phases of a VirtualMachineInstance that this implementation goes through.

use crate::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};

/// A phase; KubeVirt's words.
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
    /// A word that is none of these (KubeVirt's `Unknown`, `WaitingForSync`): another program's, which may run the guest.
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

    /// KubeVirt's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
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

    /// The phase of an instance; one that says nothing is pending.
    #[must_use]
    pub fn of(vmi: &VirtualMachineInstance) -> Self {
        vmi.status.as_ref().map_or(Self::Pending, Self::of_status)
    }

    /// The phase a status says.
    #[must_use]
    pub fn of_status(status: &VirtualMachineInstanceStatus) -> Self {
        Self::of_word(status.phase.as_deref())
    }

    /// The phase of a word; none is pending.
    #[must_use]
    pub fn of_word(word: Option<&str>) -> Self {
        match word {
            None | Some("") => Self::Pending,
            Some(word) => Self::ALL.into_iter().find(|phase| phase.word() == word).unwrap_or(Self::Unknown),
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
        Self::of(vmi) == self || transitions.into_iter().any(|each| each.phase.as_deref() == Some(self.word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_program_is_not_taken_for_an_instance_that_was_never_started() {
        assert_eq!([None, Some("")].map(Phase::of_word), [Phase::Pending; 2]);
        assert_eq!([Some("Unknown"), Some("WaitingForSync"), Some("x")].map(Phase::of_word), [Phase::Unknown; 3]);
        assert!(Phase::ALL.iter().all(|phase| Phase::of_word(Some(phase.word())) == *phase));
    }
}
