//! Where and when a guest runs: eviction, start, nodes, tolerations, spreading, service account.
//!
//! Affinities have a file of their own, `affinity`. On a bare host these fields mean nothing, which the table of fields
//! (`crate::fields`) warns of.

use super::names::{label_key_problem, label_value_problem, subdomain_problem};
use super::report::{Report, duplicate, invalid, required, unsupported};
use super::selectors::{Place, label_selector};
use super::subject::{Subject, text};
use crate::suggest::one_of;

const EVICTION_STRATEGIES: &[&str] = &["None", "LiveMigrate", "LiveMigrateIfPossible", "External"];
const START_STRATEGIES: &[&str] = &["Paused"];
const TOLERATION_OPERATORS: &[&str] = &["Exists", "Equal"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const UNSATISFIABLE: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];

/// Judges everything about scheduling except affinities.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    strategies(subject, report);
    nodes(subject, report);
    tolerations(subject, report);
    spreading(subject, report);
    accounts(subject, report);
}

fn strategies(subject: &Subject<'_>, report: &mut Report) {
    if let Some(strategy) = &subject.spec.eviction_strategy
        && !EVICTION_STRATEGIES.contains(&strategy.as_str())
    {
        report.push(
            unsupported(subject.path("evictionStrategy"), format!("there is no strategy `{strategy}`"))
                .instead(one_of(strategy, EVICTION_STRATEGIES)),
        );
    }
    if let Some(strategy) = &subject.spec.start_strategy {
        let at = subject.path("startStrategy");
        if !START_STRATEGIES.contains(&strategy.as_str()) {
            report.push(
                unsupported(at, format!("there is no strategy `{strategy}`"))
                    .instead("write `Paused`, or leave it out for a guest that runs at once"),
            );
        } else if subject.spec.liveness_probe.is_some() {
            report.push(
                invalid(at, "a paused guest does not answer a liveness probe, and would be killed")
                    .instead("keep one of `startStrategy` and `livenessProbe`"),
            );
        }
    }
    if let Some(grace) = subject.spec.termination_grace_period_seconds
        && grace < 0
    {
        report.push(
            invalid(subject.path("terminationGracePeriodSeconds"), format!("{grace} seconds are less than none"))
                .instead("write 0 or more"),
        );
    }
}

fn nodes(subject: &Subject<'_>, report: &mut Report) {
    let at = subject.path("nodeSelector");
    for (key, value) in &subject.spec.node_selector {
        let problem = label_key_problem(key).map(|problem| format!("the key {problem}"));
        if let Some(problem) =
            problem.or_else(|| label_value_problem(value).map(|problem| format!("the value {problem}")))
        {
            report.push(
                invalid(at.key(key), problem)
                    .instead("write a label as nodes have it, such as `kubernetes.io/hostname: node-1`")
                    .field(at.to_string()),
            );
        }
    }
}

fn tolerations(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("tolerations");
    for (index, toleration) in subject.spec.tolerations.iter().enumerate() {
        let at = list.index(index);
        let (key, operator, value) = (text(&toleration.key), text(&toleration.operator), text(&toleration.value));
        if !key.is_empty()
            && let Some(problem) = label_key_problem(key)
        {
            report.push(invalid(at.child("key"), format!("the key {problem}")).instead("write the key of a taint"));
        }
        if !operator.is_empty() && !TOLERATION_OPERATORS.contains(&operator) {
            report.push(
                unsupported(at.child("operator"), format!("there is no operator `{operator}`"))
                    .instead(one_of(operator, TOLERATION_OPERATORS)),
            );
        }
        if key.is_empty() && operator != "Exists" {
            report.push(
                invalid(at.child("operator"), "without a key every taint is tolerated")
                    .instead("write `operator: Exists`, or a key"),
            );
        }
        if operator == "Exists" && !value.is_empty() {
            report.push(
                invalid(at.child("value"), "`Exists` compares no value")
                    .instead("remove it, or write `operator: Equal`"),
            );
        }
        let effect = text(&toleration.effect);
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            report.push(
                unsupported(at.child("effect"), format!("there is no effect `{effect}`"))
                    .instead(one_of(effect, EFFECTS)),
            );
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            report.push(
                invalid(at.child("effect"), "only a guest that is being driven away stays for a time")
                    .instead("write `effect: NoExecute`, or remove `tolerationSeconds`"),
            );
        }
    }
}

fn spreading(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("topologySpreadConstraints");
    let constraints = &subject.spec.topology_spread_constraints;
    for (index, constraint) in constraints.iter().enumerate() {
        let at = list.index(index);
        if constraint.max_skew <= 0 {
            report.push(
                invalid(at.child("maxSkew"), format!("{} is no difference", constraint.max_skew))
                    .instead("write 1 or more"),
            );
        }
        if constraint.topology_key.is_empty() {
            report.push(
                required(at.child("topologyKey"), "no label of nodes is named")
                    .instead("write one, such as `topology.kubernetes.io/zone`"),
            );
        } else if let Some(problem) = label_key_problem(&constraint.topology_key) {
            report.push(
                invalid(at.child("topologyKey"), format!("the key {problem}"))
                    .instead("write the key of a node's label"),
            );
        }
        let action = constraint.when_unsatisfiable.as_str();
        if !UNSATISFIABLE.contains(&action) {
            report.push(
                unsupported(at.child("whenUnsatisfiable"), format!("there is no action `{action}`"))
                    .instead(one_of(action, UNSATISFIABLE)),
            );
        }
        if constraint.min_domains.is_some_and(|least| least <= 0) {
            report.push(invalid(at.child("minDomains"), "there is always one domain").instead("write 1 or more"));
        }
        let pair = (&constraint.topology_key, action);
        if constraints.iter().take(index).any(|other| (&other.topology_key, other.when_unsatisfiable.as_str()) == pair)
        {
            report.push(
                duplicate(at.clone(), "another constraint has the same key and action").instead("keep one of them"),
            );
        }
        if let Some(selector) = &constraint.label_selector {
            label_selector(selector, &Place::same(at.child("labelSelector")), report);
        }
    }
}

fn accounts(subject: &Subject<'_>, report: &mut Report) {
    let name = text(&subject.spec.service_account_name);
    if name.is_empty() {
        return;
    }
    let at = subject.path("serviceAccountName");
    if let Some(problem) = subdomain_problem(name) {
        report.push(
            invalid(at.clone(), format!("the name `{}` {problem}", name.escape_debug()))
                .instead("write the name of a service account"),
        );
    }
    let of_volumes = subject.spec.volumes.iter().filter_map(|volume| volume.service_account.as_ref());
    for other in of_volumes.map(|source| text(&source.service_account_name)) {
        if !other.is_empty() && other != name {
            report.push(
                invalid(at.clone(), format!("a volume shows the guest another service account, `{other}`"))
                    .instead("name the same one in both places"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ClusterConfig;
    use crate::validate::admit;
    use crate::validate::testing::{accepted, changed, refused};

    #[test]
    fn strategies_and_grace() {
        accepted(&[
            &[
                ("spec.evictionStrategy", json!("LiveMigrateIfPossible")),
                ("spec.terminationGracePeriodSeconds", json!(0)),
            ],
            &[("spec.startStrategy", json!("Paused"))],
        ]);
        refused(&[
            (&[("spec.evictionStrategy", json!("LiveMigrat"))], "spec.evictionStrategy", "did you mean `LiveMigrate`?"),
            (&[("spec.evictionStrategy", json!(""))], "spec.evictionStrategy", "`External`"),
            (&[("spec.startStrategy", json!("Running"))], "spec.startStrategy", "write `Paused`"),
            (
                &[
                    ("spec.startStrategy", json!("Paused")),
                    ("spec.livenessProbe", json!({"exec": {"command": ["true"]}})),
                ],
                "spec.startStrategy",
                "liveness probe",
            ),
            (
                &[("spec.terminationGracePeriodSeconds", json!(-1))],
                "spec.terminationGracePeriodSeconds",
                "less than none",
            ),
        ]);
    }

    #[test]
    fn an_eviction_strategy_moves_nothing_and_a_bare_host_schedules_nothing() {
        let vmi = changed(&[
            ("spec.evictionStrategy", json!("LiveMigrate")),
            ("spec.nodeSelector", json!({"kubernetes.io/hostname": "node-1"})),
        ]);
        let paths = |config: &ClusterConfig| -> Vec<String> {
            admit(&vmi, config).warnings.iter().map(|fault| fault.path.to_string()).collect()
        };
        assert_eq!(paths(&ClusterConfig::from_kubevirt(&json!({}))), ["spec.evictionStrategy"]);
        assert_eq!(paths(&ClusterConfig::offline()), ["spec.nodeSelector", "spec.evictionStrategy"]);
    }

    #[test]
    fn nodes_tolerations_and_spreading() {
        let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        accepted(&[
            &[("spec.tolerations", json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]))],
            &[("spec.topologySpreadConstraints", json!([constraint.clone()]))],
            &[("spec.nodeSelector", json!({"kubernetes.io/hostname": "node-1"}))],
        ]);
        refused(&[
            (&[("spec.nodeSelector", json!({"bad key!": "x"}))], "spec.nodeSelector[bad key!]", "the key"),
            (
                &[("spec.tolerations", json!([{"key": "k", "operator": "Exist"}]))],
                "spec.tolerations[0].operator",
                "`Exists`?",
            ),
            (&[("spec.tolerations", json!([{"operator": "Equal"}]))], "spec.tolerations[0].operator", "without a key"),
            (
                &[("spec.tolerations", json!([{"key": "k", "operator": "Exists", "value": "v"}]))],
                "spec.tolerations[0].value",
                "no value",
            ),
            (
                &[("spec.tolerations", json!([{"key": "k", "effect": "Never"}]))],
                "spec.tolerations[0].effect",
                "`NoSchedule`",
            ),
            (
                &[("spec.tolerations", json!([{"key": "k", "tolerationSeconds": 5}]))],
                "spec.tolerations[0].effect",
                "NoExecute",
            ),
            (
                &[("spec.topologySpreadConstraints", json!([constraint.clone(), constraint]))],
                "spec.topologySpreadConstraints[1]",
                "another constraint",
            ),
            (
                &[(
                    "spec.topologySpreadConstraints",
                    json!([{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never"}]),
                )],
                "spec.topologySpreadConstraints[0].maxSkew",
                "1 or more",
            ),
        ]);
    }

    #[test]
    fn one_service_account_for_the_guest() {
        refused(&[
            (&[("spec.serviceAccountName", json!("Bad"))], "spec.serviceAccountName", "`B`"),
            (
                &[
                    ("spec.serviceAccountName", json!("a")),
                    ("spec.volumes[0]", json!({"name": "root", "serviceAccount": {"serviceAccountName": "b"}})),
                ],
                "spec.serviceAccountName",
                "another service account",
            ),
        ]);
    }
}
