//! What a guest would see change from one plan of its machine to another: a device that moved, a flag of its CPU that is lost, another
//! machine type. What only QEMU or the host see (descriptors, files, sockets, limits) is left out. Pure.
//!
//! ```text
//!  plan ─► arguments ─► what the guest sees: name ─► value ─┐
//!                                                          ├─► what differs
//!  plan ─► arguments ─► what the guest sees: name ─► value ─┘
//! ```
//!
//! An argument that is not known here counts as seen: rather a difference too many than a guest that does not boot.

mod arguments;

use std::collections::BTreeMap;
use std::fmt;

use garboard_machine::features::Accelerator;
use serde::Serialize;

use self::arguments::{Argument, properties};
use super::launch::LaunchPlan;
use super::stored::StoredFirmware;

/// One thing that the guest would see otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What: `machine type`, `device nic-default`, `place of device disk-0`.
    pub what: String,
    /// What it was; nothing if it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it would be; nothing if it would not be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, before, after } = self;
        match (before, after) {
            (Some(before), Some(after)) => write!(formatter, "{what}: {before} -> {after}"),
            (Some(before), None) => write!(formatter, "{what}: lost (was {before})"),
            (None, Some(after)) => write!(formatter, "{what}: new ({after})"),
            (None, None) => write!(formatter, "{what}: as before"),
        }
    }
}

/// Arguments that no guest sees.
const UNSEEN: [&str; 17] = [
    "-S",
    "-action",
    "-add-fd",
    "-audiodev",
    "-blockdev",
    "-chardev",
    "-display",
    "-mon",
    "-msg",
    "-name",
    "-netdev",
    "-no-user-config",
    "-nodefaults",
    "-object",
    "-sandbox",
    "-vnc",
    "-accel",
];
/// Properties of devices that name a thing of the host, or say what QEMU does.
const UNSEEN_OF_DEVICE: [&str; 10] = [
    "audiodev",
    "chardev",
    "drive",
    "iothread",
    "iothread-vq-mapping",
    "netdev",
    "rerror",
    "rng",
    "share-rw",
    "werror",
];
/// Properties of devices that say where one is.
const PLACE: [&str; 9] = ["bus", "addr", "port", "chassis", "nr", "channel", "scsi-id", "lun", "unit"];
/// Properties of the machine of the same kind as those of devices.
const UNSEEN_OF_MACHINE: [&str; 3] = ["dump-guest-core", "mem-merge", "memory-backend"];

/// What the guest sees, by its name.
type Seen = BTreeMap<String, String>;

/// What the guest would see change. Empty: it finds the machine that it had.
#[must_use]
pub fn differences(before: &LaunchPlan, after: &LaunchPlan) -> Vec<Difference> {
    let (old, new) = (seen(before), seen(after));
    let is_there = |of: &Seen, device: &str| of.contains_key(&format!("device {device}"));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    // Of a device that comes or goes one line is enough.
    let is_part = |name: &str| {
        let device =
            name.strip_prefix("place of device ").or_else(|| Some(name.strip_prefix("device ")?.split_once(": ")?.0));
        device.is_some_and(|device| is_there(&old, device) != is_there(&new, device))
    };
    let difference = |name: &String| Difference {
        what: name.clone(),
        before: old.get(name).cloned(),
        after: new.get(name).cloned(),
    };
    differing.filter(|name| !is_part(name)).map(difference).collect()
}

fn seen(plan: &LaunchPlan) -> Seen {
    let mut seen = Seen::new();
    let all = arguments::of(&plan.argv);
    let read_only = read_only(&all);
    seen.insert("accelerator".to_owned(), accelerator(plan.accelerator).to_owned());
    for argument in &all {
        match argument.option {
            "-machine" => machine(argument, &mut seen),
            "-cpu" => cpu(argument, &mut seen),
            "-device" => device(argument, &read_only, &mut seen),
            "-smp" => drop(seen.insert("vCPUs".to_owned(), argument.value.clone())),
            "-m" => drop(seen.insert("memory".to_owned(), argument.value.clone())),
            "-uuid" => drop(seen.insert("UUID".to_owned(), argument.value.clone())),
            option if UNSEEN.contains(&option) => {}
            option => other(option, &argument.value, &mut seen),
        }
    }
    if let Some(StoredFirmware { kind, code: _, code_bytes, vars_bytes, persistent: _ }) = &plan.stored.firmware {
        let kind = serde_json::to_string(kind).unwrap_or_default();
        seen.insert("UEFI".to_owned(), format!("{kind}, {code_bytes} bytes of code, {vars_bytes} of variables"));
    }
    // By a CPU that is the host's, what the guest has is decided here and not on the command line.
    for feature in plan.stored.cpu_features.iter().flat_map(|features| features.split_whitespace()) {
        seen.insert(format!("CPU feature {feature}"), "on".to_owned());
    }
    seen
}

const fn accelerator(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "tcg",
    }
}

fn machine(argument: &Argument<'_>, seen: &mut Seen) {
    for (key, value) in properties(&argument.value, "type") {
        match key.as_str() {
            "type" => drop(seen.insert("machine type".to_owned(), value)),
            key if UNSEEN_OF_MACHINE.contains(&key) => {}
            // The name of a block node.
            key if key.starts_with("pflash") => drop(seen.insert(format!("machine: {key}"), "firmware".to_owned())),
            key => drop(seen.insert(format!("machine: {key}"), value)),
        }
    }
}

fn cpu(argument: &Argument<'_>, seen: &mut Seen) {
    for (key, value) in properties(&argument.value, "model") {
        let what = if key == "model" { "CPU model".to_owned() } else { format!("CPU flag {key}") };
        seen.insert(what, value);
    }
}

/// Which block nodes cannot be written.
fn read_only(all: &[Argument<'_>]) -> BTreeMap<String, String> {
    let nodes = all.iter().filter(|argument| argument.option == "-blockdev");
    nodes
        .filter_map(|argument| {
            let properties: BTreeMap<String, String> = properties(&argument.value, "driver").into_iter().collect();
            Some((properties.get("node-name")?.clone(), properties.get("read-only")?.clone()))
        })
        .collect()
}

fn device(argument: &Argument<'_>, read_only: &BTreeMap<String, String>, seen: &mut Seen) {
    let properties = properties(&argument.value, "driver");
    let get = |wanted: &str| properties.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    let driver = get("driver").unwrap_or_default();
    let name = get("id").unwrap_or(driver);
    seen.insert(format!("device {name}"), driver.to_owned());
    let place: Vec<String> = PLACE.iter().filter_map(|key| Some(format!("{key}={}", get(key)?))).collect();
    if !place.is_empty() {
        seen.insert(format!("place of device {name}"), place.join(" "));
    }
    if let Some(read_only) = get("drive").and_then(|drive| read_only.get(drive)) {
        seen.insert(format!("device {name}: read-only"), read_only.clone());
    }
    let known = |key: &str| PLACE.contains(&key) || UNSEEN_OF_DEVICE.contains(&key) || ["id", "driver"].contains(&key);
    for (key, value) in properties.iter().filter(|(key, _)| !known(key)) {
        seen.insert(format!("device {name}: {key}"), value.clone());
    }
}

/// Any other argument, whole. What may be there more than once is named by its first property.
fn other(option: &str, value: &str, seen: &mut Seen) {
    let value = without_names(value);
    let mut what = option.trim_start_matches('-').to_owned();
    if matches!(option, "-smbios" | "-global" | "-numa") {
        let parts = properties(&value, "type");
        let first: Vec<&str> = parts.iter().take(2).map(|(_, value)| value.as_str()).collect();
        what = match option {
            "-global" => format!("{what} {}", first.join(".")),
            _ => format!("{what} {}", first.first().copied().unwrap_or_default()),
        };
    }
    // A second one of a name stays apart from the first.
    let mut name = what.clone();
    let mut number = 1;
    while seen.contains_key(&name) {
        number += 1;
        name = format!("{what} ({number})");
    }
    seen.insert(name, value);
}

/// Without numbers of descriptors and names of memory, which are QEMU's own.
fn without_names(value: &str) -> String {
    let parts = value.split(',').filter(|part| !part.starts_with("memdev="));
    let value = parts.collect::<Vec<_>>().join(",");
    match value.split_once("/proc/self/fd/") {
        Some((before, after)) => {
            format!("{before}/proc/self/fd/N{}", after.trim_start_matches(|one: char| one.is_ascii_digit()))
        }
        None => value,
    }
}

#[cfg(test)]
mod tests;
