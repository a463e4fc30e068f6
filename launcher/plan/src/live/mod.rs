//! What QEMU holds now. Pure.
//!
//! A [`LaunchPlan`] is what was executed first, and stays as it is. A [`LivePlan`] begins as what that plan made QEMU hold
//! ([`LivePlan::of`]) and follows every change: a change by command is noted before it is sent ([`LivePlan::intend`]) and
//! when its outcome is known ([`LivePlan::settle`]), and what QEMU itself reports is taken over
//! ([`LivePlan::observe`]).
//!
//! QEMU is not asked for network backends and links of cards, which no query and no event reports (`query-rx-filter` has filters, and no
//! link): those follow from commands alone. No guest can change a link.

mod argv;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use garboard_machine::tolerant;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Tray;
use super::interface::{InterfacePlan, LinkState};
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
    /// Network cards of the plan, by ID of the device; also those that were taken away since.
    #[serde(deserialize_with = "tolerant::entries")]
    pub cards: BTreeMap<String, Card>,
}

/// A network card of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// ID of its backend.
    pub netdev: String,
    /// What its guest sees of the cable: out, too, where the card or its backend was taken away.
    pub link: LinkState,
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
    /// What becomes of the link of the card or backend that it names, if it is about that.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "tolerant::or_default")]
    pub link: Option<LinkState>,
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
    /// Drives whose tray or medium is another, and cards whose link is.
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
        let card = |plan: &InterfacePlan| (plan.device.clone(), Card { netdev: plan.netdev.clone(), link: plan.link });
        let cards = plan.interfaces.iter().map(card).collect();
        let held = HeldByQemu { drives: drives.collect(), cards, ..argv::held_by(&plan.argv) };
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
        match (change.command.as_str(), change.link) {
            ("netdev_add", _) => drop(self.held.netdevs.insert(subject)),
            ("netdev_del", _) => {
                self.held.netdevs.remove(&subject);
                // QEMU pulls the cable of a card whose backend goes.
                self.held.set_link(&subject, LinkState::Down);
            }
            (_, Some(link)) => self.held.set_link(&subject, link),
            (_, None) => {}
        }
    }

    /// Takes over what QEMU reports, and returns what is new in it. Network backends stay, and so do the links of cards that are there.
    pub fn observe(&mut self, observed: HeldByQemu) -> Difference {
        let cards = self.held.cards_among(&observed.devices);
        let held = HeldByQemu { netdevs: self.held.netdevs.clone(), cards, ..observed };
        let difference = self.held.until(&held);
        self.held = held;
        difference
    }
}

impl HeldByQemu {
    /// The links of the plan's cards, by ID of the device.
    #[must_use]
    pub fn links(&self) -> BTreeMap<String, LinkState> {
        self.cards.iter().map(|(device, card)| (device.clone(), card.link)).collect()
    }

    /// Those cards of the plan that are there and whose cable is out, by ID of the device.
    #[must_use]
    pub fn pulled(&self) -> Vec<String> {
        let cards =
            self.cards.iter().filter(|(device, card)| card.link == LinkState::Down && self.devices.contains(*device));
        cards.map(|(device, _)| device.clone()).collect()
    }

    /// The cable of the card that has this ID, or whose backend has, as in QEMU's `set_link`; there is none where the card was taken away.
    fn set_link(&mut self, id: &str, link: LinkState) {
        for (device, card) in &mut self.cards {
            if (device == id || card.netdev == id) && self.devices.contains(device) {
                card.link = link;
            }
        }
    }

    /// The cards where these devices are there: one that was taken away has no link, and one that came back begins with one.
    fn cards_among(&self, devices: &BTreeSet<String>) -> BTreeMap<String, Card> {
        let link = |id: &String, card: &Card| match (self.devices.contains(id), devices.contains(id)) {
            (_, false) => LinkState::Down,
            (false, true) => LinkState::Up,
            (true, true) => card.link,
        };
        self.cards.iter().map(|(id, card)| (id.clone(), Card { link: link(id, card), ..card.clone() })).collect()
    }

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
        let cards = later.cards.iter().filter(|(id, card)| self.cards.get(*id).is_some_and(|old| old != *card));
        let drives = drives.map(|(id, drive)| format!("drive {id}: {drive}"));
        difference.changed = drives.chain(cards.map(|(id, card)| format!("card {id}: {card}"))).collect();
        difference
    }
}

impl Change {
    /// A command with its arguments: of those only the name of what it is about is kept, and what it makes of a link. A line for the human
    /// monitor counts if it is `set_link NAME on|off`.
    #[must_use]
    pub fn of(command: &str, arguments: &Value) -> Self {
        let subjects = ["id", "node-name", "job-id", "device", "name"];
        let named = || subjects.iter().find_map(|key| arguments.get(key)?.as_str());
        let (subject, link) = match command {
            "human-monitor-command" => {
                arguments.get("command-line").and_then(Value::as_str).and_then(link_of_line).unzip()
            }
            "set_link" => (named(), arguments.get("up").and_then(Value::as_bool).map(link)),
            _ => (named(), None),
        };
        Self { command: bounded(command), subject: subject.map(bounded), link }
    }
}

fn link(is_up: bool) -> LinkState {
    if is_up { LinkState::Up } else { LinkState::Down }
}

/// The name and the link in a line for QEMU's human monitor: `set_link NAME on|off`.
fn link_of_line(line: &str) -> Option<(&str, LinkState)> {
    let mut parts = line.split_whitespace();
    let (Some("set_link"), Some(name), Some(state), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    match state {
        "on" => Some((name, LinkState::Up)),
        "off" => Some((name, LinkState::Down)),
        _ => None,
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

impl fmt::Display for Card {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.link {
            LinkState::Up => "link up",
            LinkState::Down => "link down",
        })
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tray = if self.is_open { "open" } else { "closed" };
        write!(formatter, "{tray}, medium {}", self.medium.as_deref().unwrap_or("none"))
    }
}
