//! What this host can do for machines, as text, and the remedy for what it cannot.
//!
//! ```text
//! Survey + HostConditions ──(pure)──► Vec<Check> ──► the command's table or JSON
//! ```
//!
//! Every check that is not fine states what that costs and what to do. Commands are Debian's; elsewhere the name of the
//! thing is enough to look for.

mod compute;
mod isolation;
mod network;
mod qemu;
mod resources;

use std::path::PathBuf;

use serde::Serialize;

use crate::free_space::FreeSpace;
use crate::landlock::Landlock;
use crate::namespaces::Namespaces;
use crate::root::{HostRoot, ReadError};
use crate::survey::{GatherOptions, Survey};

/// One question about the host and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name for programs, for example `kvm-speed`. `room` is there once for each directory, all others once.
    pub id: &'static str,
    /// What was looked at, for users.
    pub title: &'static str,
    /// The answer.
    pub verdict: CheckVerdict,
    /// Whether a machine can run without it.
    pub weight: Weight,
    /// What was found.
    pub detail: String,
    /// What to do about it; present whenever the verdict is not `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// As it should be.
    Ok,
    /// It works, slower or with less.
    Degraded,
    /// It is not there or does not work.
    Missing,
}

/// Whether machines need something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// No machine runs without.
    Essential,
    /// Machines run without, with less.
    Optional,
}

impl Check {
    fn new(id: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { id, title, verdict: CheckVerdict::Ok, weight: Weight::Optional, detail: detail.into(), remedy: None }
    }

    fn essential(self) -> Self {
        Self { weight: Weight::Essential, ..self }
    }

    fn degraded(self, remedy: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Degraded, remedy: Some(remedy.into()), ..self }
    }

    fn missing(self, remedy: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Missing, remedy: Some(remedy.into()), ..self }
    }
}

/// What matters to a machine without being a fact of its plan.
#[derive(Debug)]
pub struct HostConditions {
    /// Namespaces this process may make.
    pub namespaces: Namespaces,
    /// Landlock.
    pub landlock: Landlock,
    /// The kernel filters system calls: what `-sandbox` of QEMU is made of.
    pub seccomp: bool,
    /// Guests may have guests.
    pub nested: Option<bool>,
    /// Forwarding of packets between networks: IPv4, IPv6.
    pub forwarding: [Option<bool>; 2],
    /// File systems of the directories machines are kept in.
    pub rooms: Vec<FreeSpace>,
}

impl HostConditions {
    /// Looks at them. Takes a few milliseconds: children are made to try namespaces.
    #[must_use]
    pub fn look(root: &HostRoot, directories: &[PathBuf]) -> Self {
        let switch = |path: &str| root.read_trimmed(path).map(|value| value != "0");
        Self {
            namespaces: Namespaces::probe(root),
            landlock: Landlock::probe(),
            seccomp: root
                .read_trimmed("/proc/sys/kernel/seccomp/actions_avail")
                .is_some_and(|actions| actions.split_whitespace().any(|action| action == "kill_process")),
            nested: crate::kvm::nested(root),
            forwarding: [switch("/proc/sys/net/ipv4/ip_forward"), switch("/proc/sys/net/ipv6/conf/all/forwarding")],
            rooms: directories.iter().filter_map(|directory| FreeSpace::of(root, directory)).collect(),
        }
    }
}

/// Examines the host and judges it. `directories` are those machines are kept in.
///
/// # Errors
/// `/proc` cannot be read.
pub fn diagnose(options: &GatherOptions, directories: &[PathBuf]) -> Result<Vec<Check>, ReadError> {
    let survey = Survey::take(options)?;
    Ok(judge(&survey, &HostConditions::look(&options.root, directories)))
}

/// Judges what was found. Pure.
#[must_use]
pub fn judge(survey: &Survey, conditions: &HostConditions) -> Vec<Check> {
    let mut checks = compute::checks(survey, conditions);
    checks.extend(qemu::checks(survey));
    checks.extend(network::checks(survey, conditions));
    checks.extend(isolation::checks(survey, conditions));
    checks.extend(resources::checks(survey, conditions));
    checks
}

/// Whether a machine can run here: nothing essential is missing.
#[must_use]
pub fn can_run(checks: &[Check]) -> bool {
    !checks.iter().any(|check| check.weight == Weight::Essential && check.verdict == CheckVerdict::Missing)
}

/// Bytes for users: `23.5 GiB`.
fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = bytes.saturating_mul(10);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    if tenths.is_multiple_of(10) || unit == 0 {
        format!("{} {}", tenths / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

#[cfg(test)]
mod tests;
