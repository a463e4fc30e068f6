//! When a machine runs: KubeVirt's `runStrategy` and the pause between failed starts, for a cluster and a bare host alike.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::v1::VirtualMachine;

/// The pause after the first failed start; it grows with the square of their number (KubeVirt's
/// `calculateStartBackoffTime`).
const BACKOFF_BASE_SECONDS: u64 = 10;
/// The longest pause.
const BACKOFF_MAX_SECONDS: u64 = 300;

/// When a machine is started again after its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStrategy {
    /// Whenever a run ends.
    Always,
    /// When a run failed.
    RerunOnFailure,
    /// Never; what an instance without a VM does as well.
    #[default]
    Once,
    /// Only when a user requests it.
    Manual,
    /// It should not run.
    Halted,
}

impl RunStrategy {
    /// Reads KubeVirt's name; `None` for one that is not supported (`WaitAsReceiver`) or unknown.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "Always" => Some(Self::Always),
            "RerunOnFailure" => Some(Self::RerunOnFailure),
            "Once" => Some(Self::Once),
            "Manual" => Some(Self::Manual),
            "Halted" => Some(Self::Halted),
            _ => None,
        }
    }

    /// KubeVirt's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Once => "Once",
            Self::Manual => "Manual",
            Self::Halted => "Halted",
        }
    }

    /// The strategy of a VirtualMachine; `running` is the older field. `None` if neither has a supported value.
    #[must_use]
    pub fn of(vm: &VirtualMachine) -> Option<Self> {
        match (&vm.spec.run_strategy, vm.spec.running) {
            (Some(name), _) => Self::parse(name),
            (None, Some(true)) => Some(Self::Always),
            (None, Some(false)) => Some(Self::Halted),
            (None, None) => None,
        }
    }
}

/// The pause after so many failed starts: base × failures², and by chance up to half as much again.
#[must_use]
pub fn backoff(failures: u32, chance: u64) -> Duration {
    let seconds = BACKOFF_BASE_SECONDS.saturating_mul(u64::from(failures).saturating_pow(2));
    let extra = chance % (seconds / 2 + 1);
    Duration::from_secs(seconds.saturating_add(extra).min(BACKOFF_MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};
        for strategy in [Always, RerunOnFailure, Once, Manual, Halted] {
            assert_eq!(RunStrategy::parse(strategy.name()), Some(strategy));
        }
        assert_eq!(RunStrategy::parse("WaitAsReceiver"), None);
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(backoff(0, 7), Duration::ZERO);
        assert_eq!(backoff(1, 0), Duration::from_secs(10));
        assert_eq!(backoff(2, 0), Duration::from_secs(40));
        assert!(backoff(1, u64::MAX) <= Duration::from_secs(15));
        assert_eq!(backoff(u32::MAX, 0), Duration::from_secs(300));
    }
}
