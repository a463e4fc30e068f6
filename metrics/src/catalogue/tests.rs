use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// KubeVirt's, from its sources (v1.7.0, `pkg/monitoring/metrics`): name, type, labels.
const OF_KUBEVIRT: &str = include_str!("../../tests/kubevirt-v1.7.0.txt");

fn kubevirts() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let lines = OF_KUBEVIRT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.split_whitespace();
            let (name, kind) = (parts.next().unwrap(), parts.next().unwrap());
            (name, (kind, parts.collect()))
        })
        .collect()
}

#[test]
fn every_metric_of_kubevirts_name_has_its_type_and_labels() {
    let known = kubevirts();
    for (_, metric) in all().filter(|(_, metric)| metric.name.starts_with("kubevirt_")) {
        let (kind, labels) = known.get(metric.name).unwrap_or_else(|| panic!("KubeVirt has no {}", metric.name));
        assert_eq!(*kind, type_of(metric), "{}", metric.name);
        assert_eq!(*labels, metric.labels.iter().copied().collect::<BTreeSet<_>>(), "{}", metric.name);
    }
}

fn type_of(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

/// What is not served, and why: what the machine behind it does not exist for yet, or who would have to say it is not there.
const NOT_SERVED: &[(&str, &str)] = &[
    ("kubevirt_vmi_migration_", "live migration is not supported"),
    ("kubevirt_vmi_migrations_", "live migration is not supported"),
    ("kubevirt_vmi_dirty_rate_", "calc-dirty-rate makes the guest slower; it is for migration"),
    ("kubevirt_vmi_guest_load_", "guest-get-load is of guest agents of version 10, which no supported guest has"),
    ("kubevirt_virt_operator_", "there is no operator"),
    ("kubevirt_vmsnapshot_", "snapshots are not supported"),
    ("kubevirt_rest_client_request_latency_seconds", "the API server has how long its requests take"),
    ("kubevirt_rest_client_rate_limiter_duration_seconds", "clients here have no limit of their own"),
    (
        "kubevirt_vm_resource_",
        "kube-state-metrics has it of the launcher pod; the configuration there has it of machines",
    ),
    ("kubevirt_vm_disk_allocated_size_bytes", "kube-state-metrics has it of the claim"),
    ("kubevirt_vm_vnic_info", "kube-state-metrics' configuration has it"),
    ("kubevirt_vmi_vnic_info", "kube-state-metrics' configuration has it"),
    ("kubevirt_vm_labels", "kube-state-metrics has labels"),
    ("kubevirt_vm_created_by_pod_total", "the API server counts writes"),
    ("kubevirt_node_deprecated_machine_types", "nodes have labels of their machine types"),
];

#[test]
fn what_kubevirt_has_is_served_or_has_a_reason() {
    let ours: BTreeSet<_> = all().map(|(_, metric)| metric.name).collect();
    for name in kubevirts().into_keys() {
        let reason = NOT_SERVED.iter().find(|(start, _)| name.starts_with(start));
        assert!(ours.contains(name) || reason.is_some(), "{name} is not served, and no reason is given");
    }
}

#[test]
fn names_are_unique_and_have_their_unit_and_a_help() {
    let mut names = BTreeSet::new();
    for (_, Metric { name, kind, labels, help }) in all() {
        assert!(names.insert(name), "{name} twice");
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(labels.iter().chain([name]).all(|each| each.bytes().all(is_letter)), "{name}");
        assert!(help.ends_with('.') && !help.contains('\n') && !help.contains('\\'), "{name}: {help}");
        assert_eq!(labels.len(), labels.iter().collect::<BTreeSet<_>>().len(), "{name}");
        let is_ours = name.starts_with("garboard_");
        assert!(!is_ours || (*kind == Kind::Counter) == name.ends_with("_total"), "{name}");
    }
}

#[test]
fn every_metric_is_in_the_page_about_metrics_with_its_type_and_labels() {
    // Each of a machine has some of these, and what the heading of its table says.
    const OF_MACHINES: [&str; 3] = ["node", "namespace", "name"];
    let page = include_str!("../../../docs/metrics.md");
    for (_, metric) in all() {
        let start = format!("| `{}` | {} | ", metric.name, type_of(metric));
        let row = page.lines().find_map(|line| line.strip_prefix(&start));
        let labels = row.unwrap_or_else(|| panic!("docs/metrics.md lacks {start}")).split(" | ").next().unwrap();
        let written: BTreeSet<&str> = match labels {
            // The text beside the table has them.
            "below" => continue,
            "–" => BTreeSet::new(),
            labels => labels.split(", ").collect(),
        };
        let ours: BTreeSet<&str> = metric.labels.iter().copied().collect();
        let surplus: Vec<_> = written.difference(&ours).collect();
        let missing: Vec<_> = ours.difference(&written).filter(|label| !OF_MACHINES.contains(label)).collect();
        assert!(surplus.is_empty() && missing.is_empty(), "{}: {surplus:?} {missing:?}", metric.name);
    }
}
