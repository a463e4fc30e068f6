//! The dashboards that KubeVirt publishes: each metric that their queries name is served, or made by a rule, with the labels that they use;
//! or it has a reason. `tests/e2e/cluster/kubernetes/test_prometheus.py` asks a cluster for the same.

#![allow(clippy::unwrap_used, reason = "a test; clippy's exception does not reach helpers of integration tests")]

use std::collections::{BTreeMap, BTreeSet};

use garboard_metrics::catalogue::all;
use garboard_metrics::{Kind, Metric};

const DASHBOARDS: &str = include_str!("kubevirt-dashboards.txt");
const RULES: &str = include_str!("../../deploy/base/monitoring.yaml");

struct Asked {
    name: &'static str,
    labels: Vec<&'static str>,
    reason: Option<&'static str>,
}

fn asked() -> Vec<Asked> {
    let lines = DASHBOARDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let asked = lines.map(|line| {
        let (metric, reason) = line.split_once(" # ").map_or((line, None), |(metric, reason)| (metric, Some(reason)));
        let mut parts = metric.split_whitespace();
        Asked { name: parts.next().unwrap(), labels: parts.collect(), reason }
    });
    asked.collect()
}

/// The series that there are, with their labels.
fn known() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut known = BTreeMap::new();
    for (_, Metric { name, kind, labels, .. }) in all() {
        let labels: BTreeSet<&'static str> = labels.iter().copied().collect();
        let parts: &[&str] = match kind {
            Kind::Counter | Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
        };
        known.extend(parts.iter().map(|part| (format!("{name}{part}"), labels.clone())));
    }
    for rule in RULES.split("- record: ").skip(1) {
        let (name, rest) = rule.split_once('\n').unwrap();
        let expression = rest.split_once("- alert: ").map_or(rest, |(expression, _)| expression);
        let labels = match expression.split_once("by (") {
            Some((_, by)) => {
                let by = by.split_once(')').unwrap().0;
                by.split([',', ' ', '\n']).filter(|label| !label.is_empty()).collect()
            }
            // Those of what it computes with; of `up` there are none of ours.
            None => {
                let of = known.iter().find(|(metric, _)| expression.contains(metric.as_str()));
                of.map(|(_, labels)| labels.clone()).unwrap_or_default()
            }
        };
        known.insert(name.to_owned(), labels);
    }
    known
}

#[test]
fn what_a_dashboard_of_kubevirt_asks_for_is_there_with_its_labels_or_has_a_reason() {
    let known = known();
    for Asked { name, labels, reason } in asked() {
        let found = match name.strip_suffix('*') {
            Some(start) => known.iter().find(|(metric, _)| metric.starts_with(start)),
            None => known.get_key_value(name),
        };
        match (found, reason) {
            (Some((metric, has)), None) => {
                let lacks: Vec<_> = labels.iter().filter(|label| !has.contains(**label)).collect();
                assert!(lacks.is_empty(), "{metric} has no labels {lacks:?}");
            }
            (None, Some(_)) => {}
            (Some((metric, _)), Some(reason)) => {
                panic!("{metric} is there, and the list has a reason why not: {reason}")
            }
            (None, None) => panic!("{name} is in a dashboard of KubeVirt's, is not there, and has no reason"),
        }
    }
}

#[test]
fn the_list_has_what_the_dashboards_are_about() {
    let there: Vec<_> = asked().into_iter().filter(|each| each.reason.is_none()).map(|each| each.name).collect();
    for subject in ["_storage_", "_network_", "_memory_", "_vcpu_", "_phase_", "kubevirt_vm_info", "_workqueue_"] {
        assert!(there.iter().any(|name| name.contains(subject)), "{subject}");
    }
    let names: BTreeSet<_> = asked().iter().map(|each| each.name).collect();
    assert_eq!(names.len(), asked().len(), "each metric has one line");
}
