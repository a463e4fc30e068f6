//! `<cpu>`: model, features, topology, and the one cell of memory that a guest has to which some can be added.

use std::collections::BTreeSet;

use garboard_machine::cpu::{Cpu, canonical_feature, is_feature};

use crate::Input;
use crate::element::Element;

/// Properties that are switches of KVM and no features: they are in `<features>` and `<clock>`.
const ELSEWHERE: [&str; 3] = ["kvmclock", "kvm-pv-eoi", "kvm-pv-unhalt"];

pub(crate) fn element(input: Input<'_>) -> Element {
    let element = Element::new("cpu");
    let Some(cpu) = input.arguments.cpu() else {
        return element.children(topology(input));
    };
    let migratable = cpu.get("migratable").map(str::to_owned);
    let element = match cpu.model.as_str() {
        "host" => element.with("mode", "host-passthrough").with("check", "none").with_some("migratable", migratable),
        "max" => element.with("mode", "maximum").with("check", "none").with_some("migratable", migratable),
        model => {
            let check = if cpu.get("enforce") == Some("on") { "full" } else { "none" };
            let model = Element::text("model", model).with("fallback", "forbid");
            element.with("mode", "custom").with("match", "exact").with("check", check).child(model)
        }
    };
    element.children(topology(input)).children(features(&cpu)).children(numa(input))
}

fn topology(input: Input<'_>) -> Option<Element> {
    let of = |name| input.arguments.member("-smp", name);
    let topology = Element::new("topology").with("sockets", of("sockets")?).with("dies", 1);
    Some(topology.with("cores", of("cores")?).with("threads", of("threads")?))
}

/// Features by QEMU's names, each once.
fn features(cpu: &Cpu) -> Vec<Element> {
    let mut seen = BTreeSet::new();
    let mut features = Vec::new();
    for (name, _) in &cpu.properties {
        let name = name.as_str();
        let is_switch = matches!(cpu.get(name), Some("on" | "off"));
        let is_elsewhere = name.starts_with("hv-") || ELSEWHERE.contains(&name);
        if is_switch && !is_elsewhere && is_feature(name) && seen.insert(canonical_feature(name)) {
            let policy = if cpu.get(name) == Some("on") { "require" } else { "disable" };
            features.push(Element::new("feature").with("policy", policy).with("name", name));
        }
    }
    features
}

fn numa(input: Input<'_>) -> Option<Element> {
    let text = input.arguments.text("-numa")?;
    // `node,nodeid=0,cpus=0-3,memdev=ram0`
    let cpus = text.split(',').find_map(|part| part.strip_prefix("cpus="))?;
    let cell = Element::new("cell")
        .with("id", 0)
        .with("cpus", cpus)
        .with("memory", input.plan.resources.guest_memory_bytes)
        .with("unit", "b")
        .with("memAccess", "shared");
    Some(Element::new("numa").child(cell))
}
