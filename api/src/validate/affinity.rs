//! Affinities to nodes and to other pods, by the rules Kubernetes has for pods.

use k8s_openapi::api::core::v1::{NodeAffinity, PodAffinityTerm, WeightedPodAffinityTerm};

use super::names::{label_key_problem, label_problem};
use super::report::{Report, invalid, required};
use super::selectors::{Place, label_selector, node_term};
use super::subject::Subject;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Judges the affinities of a guest. KubeVirt leaves the step `affinity` out of the paths it reports.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(affinity) = &subject.spec.affinity else { return };
    let at = Place::spelt(subject.path("affinity"), subject.at.clone());
    if let Some(nodes) = &affinity.node_affinity {
        to_nodes(nodes, &at.child("nodeAffinity"), report);
    }
    if let Some(pods) = &affinity.pod_affinity {
        let at = at.child("podAffinity");
        must(pods.required_during_scheduling_ignored_during_execution.as_deref(), &at, report);
        should(pods.preferred_during_scheduling_ignored_during_execution.as_deref(), &at, report);
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        let at = at.child("podAntiAffinity");
        must(pods.required_during_scheduling_ignored_during_execution.as_deref(), &at, report);
        should(pods.preferred_during_scheduling_ignored_during_execution.as_deref(), &at, report);
    }
}

fn to_nodes(affinity: &NodeAffinity, at: &Place, report: &mut Report) {
    if let Some(needed) = &affinity.required_during_scheduling_ignored_during_execution {
        let list = at.child(REQUIRED).child("nodeSelectorTerms");
        if needed.node_selector_terms.is_empty() {
            report.push(
                list.clone().fault(|at| required(at, "no term selects any node").instead("write one term or more")),
            );
        }
        for (index, term) in needed.node_selector_terms.iter().enumerate() {
            node_term(term, &list.index(index), report);
        }
    }
    let list = at.child(PREFERRED);
    for (index, term) in affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate() {
        let at = list.index(index);
        weight(term.weight, &at, report);
        node_term(&term.preference, &at.child("preference"), report);
    }
}

fn weight(weight: i32, at: &Place, report: &mut Report) {
    if !(1..=100).contains(&weight) {
        report.push(
            at.child("weight").fault(|at| invalid(at, format!("{weight} is no weight")).instead("write 1 to 100")),
        );
    }
}

fn must(terms: Option<&[PodAffinityTerm]>, at: &Place, report: &mut Report) {
    for (index, term) in terms.unwrap_or_default().iter().enumerate() {
        to_pods(term, &at.child(REQUIRED).index(index), report);
    }
}

fn should(terms: Option<&[WeightedPodAffinityTerm]>, at: &Place, report: &mut Report) {
    for (index, term) in terms.unwrap_or_default().iter().enumerate() {
        let at = at.child(PREFERRED).index(index);
        weight(term.weight, &at, report);
        to_pods(&term.pod_affinity_term, &at.child("podAffinityTerm"), report);
    }
}

fn to_pods(term: &PodAffinityTerm, at: &Place, report: &mut Report) {
    if let Some(selector) = &term.label_selector {
        label_selector(selector, &at.child("labelSelector"), report);
    }
    if let Some(selector) = &term.namespace_selector {
        label_selector(selector, &at.child("namespaceSelector"), report);
    }
    for namespace in term.namespaces.iter().flatten() {
        if let Some(problem) = label_problem(namespace) {
            report.push(at.child("namespace").fault(|at| {
                invalid(at, format!("the name `{}` {problem}", namespace.escape_debug()))
                    .instead("write the name of a namespace")
            }));
        }
    }
    let at = at.child("topologyKey");
    if term.topology_key.is_empty() {
        report.push(at.fault(|at| {
            required(at, "no label of nodes is named").instead("write one, such as `kubernetes.io/hostname`")
        }));
    } else if let Some(problem) = label_key_problem(&term.topology_key) {
        report
            .push(at.fault(|at| invalid(at, format!("the key {problem}")).instead("write the key of a node's label")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::testing::{accepted, faults, refused};

    const AFFINITY: &str = "spec.affinity";
    const NODES: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";

    fn needs(expression: Value) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]
        }}})
    }

    #[test]
    fn operators_go_with_their_values() {
        accepted(&[
            &[(AFFINITY, needs(json!({"key": "k", "operator": "In", "values": ["v"]})))],
            &[(AFFINITY, needs(json!({"key": "k", "operator": "Exists"})))],
        ]);
        let values = format!("{NODES}.matchExpressions[0].values");
        let operator = format!("{NODES}.matchExpressions[0].operator");
        let key = format!("{NODES}.matchExpressions[0].key");
        refused(&[
            (&[(AFFINITY, needs(json!({"key": "k", "operator": "In"})))], &values, "one value or more"),
            (&[(AFFINITY, needs(json!({"key": "k", "operator": "Gt", "values": ["1", "2"]})))], &values, "exactly one"),
            (&[(AFFINITY, needs(json!({"key": "k", "operator": "Exists", "values": ["v"]})))], &values, "remove"),
            (&[(AFFINITY, needs(json!({"key": "k", "operator": "Near"})))], &operator, "`In`"),
            (&[(AFFINITY, needs(json!({"key": "", "operator": "Exists"})))], &key, "no name"),
        ]);
    }

    #[test]
    fn pods_are_found_by_a_label_of_nodes() {
        let pods = |term: Value| json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let path = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey";
        refused(&[(&[(AFFINITY, pods(json!({"topologyKey": ""})))], path, "no label")]);
        let weighted = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}}]}});
        refused(&[(
            &[(AFFINITY, weighted)],
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            "1 to 100",
        )]);
    }

    #[test]
    fn kubevirt_leaves_a_step_out() {
        let fault = &faults(&[(AFFINITY, needs(json!({"key": "k", "operator": "In"})))])[0];
        assert_eq!(
            fault.field,
            "spec.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values"
        );
    }
}
