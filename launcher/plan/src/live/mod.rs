//! What QEMU holds now. Pure.
//!
//! A [`LaunchPlan`] is what was executed first, and stays as it is. A [`LivePlan`] begins as what that plan made QEMU hold
//! ([`LivePlan::of`]) and follows every change: a change by command is noted before it is sent ([`LivePlan::intend`]) and
//! when its outcome is known ([`LivePlan::settle`]), and what QEMU itself reports is taken over
//! ([`LivePlan::observe`]).
//!
//! QEMU is not asked for network backends, which no query lists: those follow from commands alone.

mod argv;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::disk::Tray;
use super::launch::LaunchPlan;

/// Version of [`LivePlan`]. Later ones only add fields.
pub const LIVE_VERSION: u32 = 1;

/// What QEMU holds now, and what is being changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LivePlan {
    /// [`LIVE_VERSION`] of its writer.
    pub version: u32,
    /// What it holds.
    pub held: HeldByQemu,
    /// Changes that were begun and whose outcome is not known yet, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Change>,
}

/// What a QEMU holds, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldByQemu {
    /// Block nodes that have a name of their own.
    pub block_nodes: BTreeSet<String>,
    /// Devices with an ID: children of `/machine/peripheral`.
    pub devices: BTreeSet<String>,
    /// Character devices (`query-chardev`).
    pub chardevs: BTreeSet<String>,
    /// Network backends.
    pub netdevs: BTreeSet<String>,
    /// Drives whose medium can be changed, by ID of the device.
    pub drives: BTreeMap<String, Drive>,
}

/// A drive whose medium can be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Drive {
    /// Whether its tray is open.
    pub is_open: bool,
    /// Block node of the medium, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
}

/// A command that may change what QEMU holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Change {
    /// The QMP command.
    pub command: String,
    /// The node, device, backend or job that it names, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, or may have been.
    Done,
    /// It was not done.
    Refused,
}

/// In what two states differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What was held and is not any more.
    pub missing: Vec<String>,
    /// What is held and was not before.
    pub added: Vec<String>,
    /// Drives whose tray or medium is another.
    pub changed: Vec<String>,
}

impl Difference {
    /// Whether the two are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl LivePlan {
    /// What QEMU holds once it has executed a plan.
    #[must_use]
    pub fn of(plan: &LaunchPlan) -> Self {
        let drive = |tray: Tray, medium: &Option<String>| Drive { is_open: tray == Tray::Open, medium: medium.clone() };
        let drives =
            plan.disks.iter().filter_map(|disk| Some((disk.device.clone(), drive(disk.tray?, &disk.nodes.image))));
        let held = HeldByQemu { drives: drives.collect(), ..argv::held_by(&plan.argv) };
        Self { version: LIVE_VERSION, held, pending: Vec::new() }
    }

    /// A change is about to be sent to QEMU.
    pub fn intend(&mut self, change: Change) {
        self.pending.push(change);
    }

    /// What became of a change is known. What can be asked of QEMU is observed afterwards.
    pub fn settle(&mut self, change: &Change, outcome: Outcome) {
        let Some(place) = self.pending.iter().position(|pending| pending == change) else { return };
        self.pending.remove(place);
        let Some(subject) = change.subject.clone().filter(|_| outcome == Outcome::Done) else { return };
        match change.command.as_str() {
            "netdev_add" => drop(self.held.netdevs.insert(subject)),
            "netdev_del" => drop(self.held.netdevs.remove(&subject)),
            _ => {}
        }
    }

    /// Takes over what QEMU reports, and returns what is new in it. Network backends stay.
    pub fn observe(&mut self, observed: HeldByQemu) -> Difference {
        let held = HeldByQemu { netdevs: self.held.netdevs.clone(), ..observed };
        let difference = self.held.until(&held);
        self.held = held;
        difference
    }
}

impl HeldByQemu {
    /// What has to be done to this to get that.
    fn until(&self, later: &Self) -> Difference {
        let sets: [(&str, &BTreeSet<String>, &BTreeSet<String>); 4] = [
            ("block node", &self.block_nodes, &later.block_nodes),
            ("device", &self.devices, &later.devices),
            ("character device", &self.chardevs, &later.chardevs),
            ("network backend", &self.netdevs, &later.netdevs),
        ];
        let mut difference = Difference::default();
        for (what, before, after) in sets {
            difference.missing.extend(before.difference(after).map(|name| format!("{what} {name}")));
            difference.added.extend(after.difference(before).map(|name| format!("{what} {name}")));
        }
        let drives = later.drives.iter().filter(|(id, drive)| self.drives.get(*id).is_some_and(|old| old != *drive));
        difference.changed = drives.map(|(id, drive)| format!("drive {id}: {drive}")).collect();
        difference
    }
}

impl Change {
    /// A command with its arguments: of those only the name of what it is about is kept.
    #[must_use]
    pub fn of(command: &str, arguments: &serde_json::Value) -> Self {
        let subjects = ["id", "node-name", "job-id", "device", "name"];
        let subject = subjects.iter().find_map(|key| arguments.get(key)?.as_str()).map(bounded);
        Self { command: bounded(command), subject }
    }
}

/// Names from a client: QEMU's names are much shorter.
fn bounded(name: &str) -> String {
    name.chars().take(128).collect()
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(formatter, "{} {}", self.command, subject),
            None => formatter.write_str(&self.command),
        }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tray = if self.is_open { "open" } else { "closed" };
        write!(formatter, "{tray}, medium {}", self.medium.as_deref().unwrap_or("none"))
    }
}
