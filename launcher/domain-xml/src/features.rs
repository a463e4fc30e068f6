//! `<features>`: ACPI, the interrupt controller, Hyper-V's enlightenments, what KVM shows.

use garboard_machine::cpu::Cpu;

use crate::Input;
use crate::element::Element;

/// Enlightenments that are on or off: QEMU's property, libvirt's element.
const SWITCHES: [(&str, &str); 11] = [
    ("hv-relaxed", "relaxed"),
    ("hv-vapic", "vapic"),
    ("hv-vpindex", "vpindex"),
    ("hv-runtime", "runtime"),
    ("hv-synic", "synic"),
    ("hv-reset", "reset"),
    ("hv-frequencies", "frequencies"),
    ("hv-reenlightenment", "reenlightenment"),
    ("hv-ipi", "ipi"),
    ("hv-evmcs", "evmcs"),
    ("hv-avic", "avic"),
];

/// QEMU's property, and libvirt's element.
type Pair = (&'static str, &'static str);

/// Those with parts: QEMU's property, libvirt's element, and the same of each part.
const WITH_PARTS: [(&str, &str, &[Pair]); 2] = [
    ("hv-stimer", "stimer", &[("hv-stimer-direct", "direct")]),
    ("hv-tlbflush", "tlbflush", &[("hv-tlbflush-direct", "direct"), ("hv-tlbflush-ext", "extended")]),
];

pub(crate) fn elements(input: Input<'_>) -> Vec<Element> {
    let arguments = input.arguments;
    let mut features = Element::new("features");
    if arguments.member("-machine", "acpi").as_deref() != Some("off") {
        features = features.child(Element::new("acpi"));
    }
    let property = |name: &str| arguments.cpu_property(name);
    features = features.child(Element::new("apic").with_some("eoi", property("kvm-pv-eoi")));
    features = features.children(arguments.cpu().and_then(|cpu| hyperv(&cpu)));
    if property("kvm").as_deref() == Some("off") {
        features = features.child(Element::new("kvm").child(state("hidden", "on")));
    }
    features = features.children(property("kvm-pv-unhalt").map(|on| state("pvspinlock", &on)));
    features = features.children(arguments.member("-machine", "vmport").map(|on| state("vmport", &on)));
    features = features.children(arguments.member("-machine", "smm").map(|on| state("smm", &on)));
    vec![features]
}

fn state(name: &'static str, state: &str) -> Element {
    Element::new(name).with("state", state)
}

fn hyperv(cpu: &Cpu) -> Option<Element> {
    if cpu.get("hv-passthrough") == Some("on") {
        return Some(Element::new("hyperv").with("mode", "passthrough"));
    }
    let of = |(property, name): &(&str, &'static str)| cpu.get(property).map(|on| state(name, on));
    let mut parts: Vec<Element> = SWITCHES.iter().filter_map(of).collect();
    for (property, name, inner) in WITH_PARTS {
        let part = cpu.get(property).map(|on| state(name, on));
        parts.extend(part.map(|part| part.children(inner.iter().filter_map(of))));
    }
    let retries = cpu.get("hv-spinlocks").and_then(|retries| retries.strip_prefix("0x"));
    let retries = retries.and_then(|retries| u32::from_str_radix(retries, 16).ok());
    parts.extend(retries.map(|retries| state("spinlocks", "on").with("retries", retries)));
    parts.extend(cpu.get("hv-vendor-id").map(|vendor| state("vendor_id", "on").with("value", vendor)));
    let hyperv = Element::new("hyperv").with("mode", "custom").children(parts.clone());
    (!parts.is_empty()).then_some(hyperv)
}
