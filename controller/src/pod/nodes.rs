//! Which nodes a machine can run on, beside the rules of its manifest: those that offer what it asks for. Pure.
//!
//! The node agent labels its node with what the launcher's QEMU can give a guest there
//! ([`garboard_api::metadata::node_label`]). A machine whose node could not be found waits as `Unschedulable`, and the
//! scheduler's message has the reason; without these selectors it would fail on any node that it came to.

use std::collections::BTreeMap;

use garboard_api::metadata::node_label::{CPU_FEATURE, CPU_MODEL, MACHINE_TYPE, SCHEDULABLE, is_name};
use garboard_api::v1::{CPU, VirtualMachineInstanceSpec, non_empty};
use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm};

use super::PodInput;

/// Names of the host's own CPU, which every node has.
const HOSTS_OWN: [&str; 2] = ["host-model", "host-passthrough"];
/// The policy of a feature without one.
const REQUIRE: &str = "require";

/// The policy of a feature that the guest's node must not have.
const FORBID: &str = "forbid";

/// The affinity of the pod: the manifest's, and in each of its terms no node that has a forbidden feature.
pub(super) fn affinity(spec: &VirtualMachineInstanceSpec) -> Option<Affinity> {
    let features = spec.domain.cpu.iter().flat_map(|cpu| &cpu.features);
    let forbidden = features.filter(|feature| non_empty(&feature.policy) == Some(FORBID) && is_name(&feature.name));
    let absent: Vec<NodeSelectorRequirement> = forbidden
        .map(|feature| NodeSelectorRequirement {
            key: format!("{CPU_FEATURE}{}", feature.name),
            operator: "DoesNotExist".to_owned(),
            values: None,
        })
        .collect();
    if absent.is_empty() {
        return spec.affinity.clone();
    }
    let mut affinity = spec.affinity.clone().unwrap_or_default();
    let nodes = affinity.node_affinity.get_or_insert_default();
    let terms =
        &mut nodes.required_during_scheduling_ignored_during_execution.get_or_insert_default().node_selector_terms;
    // One of the terms has to hold, so each of them has it.
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.get_or_insert_default().extend(absent.clone());
    }
    Some(affinity)
}

/// The node selector of the pod.
pub(super) fn selector(input: &PodInput<'_>) -> BTreeMap<String, String> {
    let spec = &input.vmi.spec;
    let architecture = spec.architecture.clone().unwrap_or_else(|| input.config.default_architecture.clone());
    let domain = &spec.domain;
    let machine = domain.machine.as_ref().and_then(|machine| non_empty(&machine.r#type));
    // Labels of CPUs are what KVM of a node gives; QEMU's translator gives the same on every node.
    let of_kvm = domain.cpu.iter().filter(|_| !input.is_emulated()).flat_map(of_cpu);
    let offered = machine.map(|name| (MACHINE_TYPE, name)).into_iter().chain(of_kvm);
    // No node can have a label that is none, so that asking for it would be a riddle instead of an answer.
    let offered = offered.filter(|(_, name)| is_name(name)).map(|(family, name)| format!("{family}{name}"));
    let mut selector = spec.node_selector.clone();
    selector.insert("kubernetes.io/arch".to_owned(), architecture);
    selector.extend(offered.chain([SCHEDULABLE.to_owned()]).map(|label| (label, "true".to_owned())));
    selector
}

fn of_cpu(cpu: &CPU) -> impl Iterator<Item = (&'static str, &str)> {
    let model = non_empty(&cpu.model).filter(|model| !HOSTS_OWN.contains(model));
    let required = cpu.features.iter().filter(|feature| non_empty(&feature.policy).unwrap_or(REQUIRE) == REQUIRE);
    let features = required.map(|feature| (CPU_FEATURE, feature.name.as_str()));
    model.map(|model| (CPU_MODEL, model)).into_iter().chain(features)
}
