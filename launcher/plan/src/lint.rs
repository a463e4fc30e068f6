//! Checks every plan before it leaves the planner. What it finds is a defect of ours, so it is reported in full.

use std::collections::BTreeSet;
use std::fmt;

use garboard_machine::argv::{Properties, Property};
use garboard_machine::device::Device;
use garboard_machine::machine::Machine;
use garboard_machine::object::Object;
use garboard_machine::pci::{PciMap, PciPlace};

use super::launch::{Descriptor, DescriptorPurpose, FIRST_DESCRIPTOR};

/// One contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Two things have one name.
    Twice {
        /// What they are.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Something names what is not there.
    Missing {
        /// What is missing.
        what: &'static str,
        /// Its name.
        name: String,
        /// What names it.
        by: String,
    },
    /// A descriptor is opened and never used, or used and never opened.
    Descriptor {
        /// Its number.
        number: i32,
        /// What is wrong.
        why: &'static str,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { what, name } => write!(f, "{what} `{name}` exists twice"),
            Self::Missing { what, name, by } => write!(f, "`{by}` names {what} `{name}`, which does not exist"),
            Self::Descriptor { number, why } => write!(f, "descriptor {number} {why}"),
        }
    }
}

/// Everything that is wrong with a machine, its PCI map and its descriptors.
#[must_use]
pub fn lint(machine: &Machine, pci: &PciMap, descriptors: &[Descriptor]) -> Vec<Finding> {
    let mut findings = Vec::new();
    unique(&mut findings, "device", machine.devices.iter().map(|device| device.id().to_string()));
    unique(&mut findings, "node", machine.blockdevs.iter().map(|node| node.node_name().to_string()));
    unique(&mut findings, "chardev", machine.chardevs.iter().map(|chardev| chardev.id.to_string()));
    unique(&mut findings, "netdev", machine.netdevs.iter().map(|netdev| netdev.id().to_string()));
    unique(&mut findings, "object", machine.objects.iter().map(|object| object.id().to_string()));
    unique(&mut findings, "PCI place", pci.devices.values().map(ToString::to_string));
    unique(&mut findings, "descriptor set", machine.add_fds.iter().map(|set| set.set.to_string()));
    unique(&mut findings, "boot index", machine.devices.iter().filter_map(boot_index));
    references(&mut findings, machine);
    places(&mut findings, machine, pci);
    numbers(&mut findings, machine, descriptors);
    findings
}

fn unique(findings: &mut Vec<Finding>, what: &'static str, names: impl Iterator<Item = String>) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            findings.push(Finding::Twice { what, name });
        }
    }
}

fn boot_index(device: &Device) -> Option<String> {
    match device.properties().get("bootindex") {
        Some(Property::Number(index)) => Some(index.to_string()),
        Some(_) | None => None,
    }
}

/// Every backend a device names exists, and comes with the bus it hangs on before it.
fn references(findings: &mut Vec<Finding>, machine: &Machine) {
    let nodes: BTreeSet<_> = machine.blockdevs.iter().map(|node| node.node_name().to_string()).collect();
    let chardevs: BTreeSet<_> = machine.chardevs.iter().map(|chardev| chardev.id.to_string()).collect();
    let netdevs: BTreeSet<_> = machine.netdevs.iter().map(|netdev| netdev.id().to_string()).collect();
    let objects: BTreeSet<_> = machine.objects.iter().map(|object| object.id().to_string()).collect();
    let audiodevs: BTreeSet<_> = machine.audiodev.iter().map(ToString::to_string).collect();
    let tables = [
        ("drive", &nodes),
        ("chardev", &chardevs),
        ("netdev", &netdevs),
        ("iothread", &objects),
        ("rng", &objects),
        ("audiodev", &audiodevs),
    ];
    let mut earlier = BTreeSet::new();
    for device in &machine.devices {
        let properties = device.properties();
        for (what, known) in tables {
            check(findings, device, what, properties.text(what), known);
        }
        let parent = properties.text("bus").and_then(|bus| bus.split('.').next());
        let is_ours = parent.filter(|bus| !matches!(*bus, "pcie" | "ide"));
        check(findings, device, "bus", is_ours, &earlier);
        earlier.insert(device.id().to_string());
    }
    let mut below = BTreeSet::new();
    for node in &machine.blockdevs {
        let properties = node.properties();
        for what in ["file", "backing"] {
            if let Some(name) = properties.text(what).filter(|&name| !below.contains(name)) {
                let by = node.node_name().to_string();
                findings.push(Finding::Missing { what, name: name.to_owned(), by });
            }
        }
        below.insert(node.node_name().to_string());
    }
}

fn check(
    findings: &mut Vec<Finding>,
    device: &Device,
    what: &'static str,
    name: Option<&str>,
    known: &BTreeSet<String>,
) {
    if let Some(name) = name.filter(|&name| !known.contains(name)) {
        findings.push(Finding::Missing { what, name: name.to_owned(), by: device.id().to_string() });
    }
}

/// The map and the devices agree.
fn places(findings: &mut Vec<Finding>, machine: &Machine, pci: &PciMap) {
    for (id, place) in &pci.devices {
        let device = machine.devices.iter().find(|device| device.id() == id);
        let is_there = device.is_some_and(|device| is_at(&device.properties(), *place));
        if !is_there {
            findings.push(Finding::Missing { what: "device", name: id.to_string(), by: place.to_string() });
        }
    }
}

fn is_at(properties: &Properties, place: PciPlace) -> bool {
    properties.text("bus") == Some(place.bus().as_str()) && properties.text("addr") == Some(place.addr().as_str())
}

/// Each descriptor is opened once and used once.
fn numbers(findings: &mut Vec<Finding>, machine: &Machine, descriptors: &[Descriptor]) {
    for (descriptor, expected) in descriptors.iter().zip(FIRST_DESCRIPTOR..) {
        if descriptor.number != expected {
            findings.push(Finding::Descriptor { number: descriptor.number, why: "is out of order" });
        }
    }
    let mut used: Vec<i32> = machine.add_fds.iter().map(|set| set.fd).collect();
    used.extend(machine.chardevs.iter().map(|chardev| chardev.fd));
    used.extend(machine.netdevs.iter().flat_map(|netdev| netdev.fds()));
    let is_kernel =
        |purpose: &DescriptorPurpose| matches!(purpose, DescriptorPurpose::Kernel | DescriptorPurpose::Initrd);
    used.extend(descriptors.iter().filter(|one| is_kernel(&one.purpose)).map(|one| one.number));
    used.extend(machine.objects.iter().filter_map(Object::fd));
    let mut opened: BTreeSet<i32> = descriptors.iter().map(|descriptor| descriptor.number).collect();
    for number in used {
        if !opened.remove(&number) {
            findings.push(Finding::Descriptor { number, why: "is used twice, or never opened" });
        }
    }
    findings.extend(opened.into_iter().map(|number| Finding::Descriptor { number, why: "has no user" }));
    let sets: BTreeSet<String> = machine.add_fds.iter().map(|set| set.path()).collect();
    for node in &machine.blockdevs {
        if let Some(path) = node.properties().text("filename").filter(|&path| !sets.contains(path)) {
            let by = node.node_name().to_string();
            findings.push(Finding::Missing { what: "descriptor set", name: path.to_owned(), by });
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_machine::device::Pvpanic;
    use garboard_machine::facts::HostFacts;
    use garboard_machine::id::DeviceId;
    use serde_json::json;

    use super::*;
    use crate::{LaunchPlan, PlanOptions, plan_machine};

    fn planned() -> (LaunchPlan, Machine) {
        let vmi = json!({
            "metadata": { "name": "quay" },
            "spec": {
                "domain": { "memory": { "guest": "64Mi" }, "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                } },
                "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }],
            },
        });
        let vmi = serde_json::from_value(vmi).unwrap();
        plan_machine(&vmi, &HostFacts::reference(), &PlanOptions::default(), None).unwrap()
    }

    fn findings(break_it: impl FnOnce(&mut LaunchPlan, &mut Machine)) -> String {
        let (mut plan, mut machine) = planned();
        break_it(&mut plan, &mut machine);
        let findings = lint(&machine, &plan.stored.pci, &plan.descriptors);
        findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_sound_plan_has_no_findings() {
        assert_eq!(findings(|_, _| {}), "");
    }

    #[test]
    fn each_contradiction_is_found() {
        let twice = findings(|_, machine| {
            let panic = || Device::from(Pvpanic { id: DeviceId::constant("agent") });
            machine.devices.push(panic());
        });
        assert!(twice.contains("device `agent` exists twice"), "{twice}");
        let no_node = findings(|_, machine| machine.blockdevs.clear());
        assert!(no_node.contains("`disk-root` names drive `image-root`"), "{no_node}");
        let wrong_order = findings(|_, machine| machine.blockdevs.reverse());
        assert!(wrong_order.contains("names file `file-root`"), "{wrong_order}");
        let no_bus = findings(|_, machine| machine.devices.retain(|device| device.id().as_str() != "port1"));
        assert!(no_bus.contains("names bus `port1`"), "{no_bus}");
        let unused = findings(|_, machine| machine.chardevs.retain(|chardev| chardev.id.as_str() != "agent"));
        assert!(unused.contains("has no user"), "{unused}");
        let closed = findings(|plan, _| drop(plan.descriptors.pop()));
        assert!(closed.contains("never opened"), "{closed}");
        let moved = findings(|plan, _| plan.descriptors.reverse());
        assert!(moved.contains("is out of order"), "{moved}");
        let lost = findings(|_, machine| machine.devices.retain(|device| device.id().as_str() != "balloon0"));
        assert!(lost.contains("names device `balloon0`"), "{lost}");
    }
}
