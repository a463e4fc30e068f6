//! What only a VirtualMachinePool has: how many machines, which, how they follow its template, which go, and when one is made again.
//! Its template is judged as the machine that it makes (`super::admit`).

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::kubevirt::duration;
use super::metadata;
use super::names::{label_key_problem, label_value_problem};
use super::report::{Report, invalid, required, unsupported};
use super::selectors::{Place, label_selector, label_values, node_requirements};
use super::subject::text;
use crate::fault::{Fault, FieldPath};
use crate::pool::{self, LONGEST_NAME, OWN_ANNOTATIONS};
use crate::selector::{self, Labels};
use crate::suggest::one_of;
use crate::v1::{
    VirtualMachinePool, VirtualMachinePoolAutohealingStrategy, VirtualMachinePoolScaleInStrategy,
    VirtualMachinePoolSelectionPolicy, VirtualMachinePoolUpdateStrategy,
};

const SORT_POLICIES: &[&str] = &["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"];
const PRESERVATIONS: &[&str] = &["Disabled", "Offline", "Online"];

/// Judges the fields of a pool beside the template of its machines.
pub(super) fn check(pool: &VirtualMachinePool) -> Vec<Fault> {
    let mut report = Report::default();
    name(pool, &mut report);
    let at = FieldPath::from("spec");
    if pool.spec.replicas.is_some_and(|replicas| replicas < 0) {
        report.push(invalid(at.child("replicas"), "there are no fewer than 0 machines").instead("write 0 or more"));
    }
    selector(pool, &at, &mut report);
    template(pool, &at.child("virtualMachineTemplate.metadata"), &mut report);
    if let Some(number) = &pool.spec.max_unavailable {
        max_unavailable(number, &at.child("maxUnavailable"), &mut report);
    }
    if let Some(strategy) = &pool.spec.update_strategy {
        updates(strategy, &at.child("updateStrategy"), &mut report);
    }
    if let Some(strategy) = &pool.spec.scale_in_strategy {
        scale_in(strategy, &at.child("scaleInStrategy"), &mut report);
    }
    if let Some(healing) = &pool.spec.autohealing {
        autohealing(healing, &at.child("autohealing"), &mut report);
    }
    report.into_faults()
}

/// Its machines have its name in theirs, and a label.
fn name(pool: &VirtualMachinePool, report: &mut Report) {
    metadata::name(&pool.metadata, report);
    let length = text(&pool.metadata.name).len();
    if length > LONGEST_NAME {
        let message = format!("the name has {length} characters, and with what is appended to it it has to be a label");
        report.push(
            invalid(FieldPath::from("metadata.name"), message)
                .instead(format!("write {LONGEST_NAME} characters or fewer")),
        );
    }
}

fn selector(pool: &VirtualMachinePool, at: &FieldPath, report: &mut Report) {
    let mut wrong = Report::default();
    let place = at.child("selector");
    label_selector(&pool.spec.selector, &Place::same(place.clone()), &mut wrong);
    label_values(&pool.spec.selector, &Place::same(place.clone()), &mut wrong);
    let wrong = wrong.into_faults();
    let labels: Labels = pool::labels(&pool.spec.virtual_machine_template);
    if wrong.is_empty() && !selector::matches(&pool.spec.selector, &labels) {
        report.push(
            invalid(place, "the selector does not match labels of the template")
                .instead("give `virtualMachineTemplate.metadata.labels` what the selector asks for"),
        );
    }
    wrong.into_iter().for_each(|fault| report.push(fault));
}

/// Labels and annotations of the machines: the API server would refuse each machine for the former.
fn template(pool: &VirtualMachinePool, at: &FieldPath, report: &mut Report) {
    let template = &pool.spec.virtual_machine_template;
    for (key, value) in pool::labels(template) {
        let problem = label_key_problem(&key).map(|problem| format!("the key {problem}"));
        let problem = problem.or_else(|| label_value_problem(&value).map(|problem| format!("the value {problem}")));
        if let Some(problem) = problem {
            report.push(
                invalid(at.child("labels").key(&key), problem)
                    .instead("write letters, digits, `-`, `_` and `.`, and at most 63 of them"),
            );
        }
    }
    let written = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let own = OWN_ANNOTATIONS.iter().filter(|key| written.is_some_and(|all| all.contains_key(**key)));
    for key in own {
        report.push(
            unsupported(at.child("annotations").key(key), "this annotation is for Garboard's own use")
                .instead("remove it"),
        );
    }
}

fn max_unavailable(number: &IntOrString, at: &FieldPath, report: &mut Report) {
    let wrong = match number {
        IntOrString::Int(number) => (*number < 1).then(|| format!("{number} machines may not be unavailable")),
        IntOrString::String(text) => {
            let is_right = pool::percent(text).is_some_and(|percent| (1..=100).contains(&percent));
            (!is_right).then(|| format!("`{text}` is no part of the machines"))
        }
    };
    if let Some(wrong) = wrong {
        report.push(invalid(at.clone(), wrong).instead("write 1 or more, or `1%` to `100%`"));
    }
}

fn updates(strategy: &VirtualMachinePoolUpdateStrategy, at: &FieldPath, report: &mut Report) {
    let written = [strategy.unmanaged.is_some(), strategy.opportunistic.is_some(), strategy.proactive.is_some()];
    one_alone(written, at, report);
    if let Some(policy) = strategy.proactive.as_ref().and_then(|proactive| proactive.selection_policy.as_ref()) {
        selection(policy, &at.child("proactive.selectionPolicy"), report);
    }
}

fn scale_in(strategy: &VirtualMachinePoolScaleInStrategy, at: &FieldPath, report: &mut Report) {
    let VirtualMachinePoolScaleInStrategy { opportunistic, proactive, unmanaged } = strategy;
    one_alone([unmanaged.is_some(), opportunistic.is_some(), proactive.is_some()], at, report);
    if let Some(opportunistic) = opportunistic {
        preservation(text(&opportunistic.state_preservation), &at.child("opportunistic.statePreservation"), report);
    }
    if let Some(proactive) = proactive {
        preservation(text(&proactive.state_preservation), &at.child("proactive.statePreservation"), report);
        if let Some(policy) = &proactive.selection_policy {
            selection(policy, &at.child("proactive.selectionPolicy"), report);
        }
    }
}

/// Which of the three ways are written, in the order of their text.
fn one_alone(written: [bool; 3], at: &FieldPath, report: &mut Report) {
    let names = ["unmanaged", "opportunistic", "proactive"];
    let found: Vec<&str> =
        names.into_iter().zip(written).filter_map(|(name, is_written)| is_written.then_some(name)).collect();
    if found.len() > 1 {
        let message = format!("a pool has one strategy, and {} are written", found.join(" and "));
        report.push(invalid(at.clone(), message).instead("keep one of them"));
    }
}

fn preservation(value: &str, at: &FieldPath, report: &mut Report) {
    known(value, PRESERVATIONS, "there is no preservation of a state", at, report);
}

fn selection(policy: &VirtualMachinePoolSelectionPolicy, at: &FieldPath, report: &mut Report) {
    known(text(&policy.sort_policy), SORT_POLICIES, "there is no order", &at.child("sortPolicy"), report);
    let Some(selectors) = &policy.selectors else { return };
    let at = at.child("selectors");
    if let Some(labels) = &selectors.label_selector {
        label_selector(labels, &Place::same(at.child("labelSelector")), report);
    }
    let place = Place::same(at.child("nodeSelectorRequirementMatcher"));
    node_requirements(&selectors.node_selector_requirement_matcher, &place, report);
    for (index, requirement) in selectors.node_selector_requirement_matcher.iter().enumerate() {
        let at = at.child("nodeSelectorRequirementMatcher").index(index).child("values");
        if let Some(value) = no_number(requirement) {
            let message = format!("`{value}` is no number to compare with");
            report.push(invalid(at, message).instead("write an integer"));
        }
    }
}

/// The value of a comparison that is not one of numbers.
fn no_number(requirement: &NodeSelectorRequirement) -> Option<&str> {
    let compares = ["Gt", "Lt"].contains(&requirement.operator.as_str());
    let value = requirement.values.iter().flatten().next().filter(|_| compares)?;
    value.parse::<i64>().is_err().then_some(value.as_str())
}

fn known(value: &str, values: &[&str], problem: &str, at: &FieldPath, report: &mut Report) {
    if !value.is_empty() && !values.contains(&value) {
        report.push(unsupported(at.clone(), format!("{problem} `{value}`")).instead(one_of(value, values)));
    }
}

fn autohealing(healing: &VirtualMachinePoolAutohealingStrategy, at: &FieldPath, report: &mut Report) {
    if healing.start_up_failure_threshold == Some(0) {
        let message = "a machine that never failed to start would be deleted";
        report.push(invalid(at.child("startUpFailureThreshold"), message).instead("write 1 or more"));
    }
    let written = text(&healing.min_failing_to_start_duration);
    if !written.is_empty() && duration(written).is_none() {
        let message = format!("`{written}` is no duration");
        report.push(invalid(at.child("minFailingToStartDuration"), message).instead("write one such as `90s` or `5m`"));
    }
}

/// What the user should know of a pool that is accepted.
pub(super) fn warnings(pool: &VirtualMachinePool) -> Vec<Fault> {
    let mut warnings = Report::default();
    if selector::is_empty(&pool.spec.selector) {
        let message = "an autoscaler finds no machines by an empty selector";
        warnings.push(required(FieldPath::from("spec.selector"), message).instead("write `matchLabels`"));
    }
    let at = FieldPath::from("spec.virtualMachineTemplate.metadata");
    let unused = pool.spec.virtual_machine_template.metadata.as_ref().map(unused).unwrap_or_default();
    for field in unused {
        let message = "machines get labels and annotations of this metadata, and their names by the pool";
        warnings.push(unsupported(at.child(field), message).instead("remove it"));
    }
    warnings.into_faults()
}

/// What is written in the metadata of the template and given to no machine.
fn unused(metadata: &ObjectMeta) -> Vec<&'static str> {
    let is_empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let written = [
        ("name", !is_empty(&metadata.name)),
        ("generateName", !is_empty(&metadata.generate_name)),
        ("namespace", !is_empty(&metadata.namespace)),
        ("finalizers", metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())),
        ("ownerReferences", metadata.owner_references.as_ref().is_some_and(|all| !all.is_empty())),
    ];
    written.into_iter().filter_map(|(field, is_written)| is_written.then_some(field)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cluster::ClusterConfig;
    use crate::validate::testing::{instance, set};
    use crate::validate::{Admission, Object, admit};

    fn verdict(changes: &[(&str, Value)]) -> Admission {
        let mut object = json!({
            "apiVersion": "pool.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePool",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "virtualMachineTemplate": {
                    "metadata": {"labels": {"app": "web", "tier": "front"}},
                    "spec": {"runStrategy": "Always", "template": {"spec": instance()["spec"]}},
                },
            },
        });
        for (path, value) in changes {
            set(&mut object, path, value.clone());
        }
        admit(&object, &ClusterConfig::offline())
    }

    fn refused(changes: &[(&str, Value)], path: &str, part: &str) {
        let faults = verdict(changes).faults;
        let [fault] = faults.as_slice() else { panic!("{changes:?}: {faults:#?}") };
        assert_eq!(fault.path.as_str(), path, "{changes:?}");
        assert!(fault.to_string().contains(part) && fault.instead.is_some(), "{changes:?}: {fault}");
    }

    fn accepted(changes: &[(&str, Value)]) {
        let admission = verdict(changes);
        assert_eq!((admission.faults, admission.warnings), (Vec::new(), Vec::new()), "{changes:?}");
    }

    #[test]
    fn a_pool_that_is_right_comes_back_with_a_number() {
        let admission = verdict(&[("spec.replicas", Value::Null)]);
        assert_eq!((admission.faults.as_slice(), admission.warnings.as_slice()), ([].as_slice(), [].as_slice()));
        let Some(Object::Pool(pool)) = admission.object else { panic!("no pool") };
        assert_eq!(pool.spec.replicas, Some(1));
    }

    #[test]
    fn the_selector_has_to_match_the_labels_of_the_machines() {
        refused(
            &[("spec.selector.matchLabels", json!({"app": "db"}))],
            "spec.selector",
            "selector does not match labels",
        );
        refused(
            &[("spec.virtualMachineTemplate.metadata", json!({}))],
            "spec.selector",
            "selector does not match labels",
        );
        let odd = json!([{"key": "tier", "operator": "Exist"}]);
        refused(&[("spec.selector.matchExpressions", odd)], "spec.selector.matchExpressions[0].operator", "`Exists`");
        let admission = verdict(&[("spec.selector", json!({}))]);
        assert_eq!((admission.faults.len(), admission.warnings[0].path.as_str()), (0, "spec.selector"));
        refused(
            &[("spec.virtualMachineTemplate.metadata.labels", json!({"app": "web", "tier": "a b"}))],
            "spec.virtualMachineTemplate.metadata.labels[tier]",
            "the value",
        );
    }

    #[test]
    fn mistakes_of_the_template_stand_in_the_template() {
        let at = "spec.virtualMachineTemplate.spec.template.spec.domain.devices.disks[2]";
        let faults = verdict(&[(at, json!({"name": "testdisk"}))]).faults;
        assert_eq!((faults.len(), faults[0].field.as_str()), (1, format!("{at}.name").as_str()), "{faults:#?}");
        assert_eq!(faults[0].sent_text(), Some(format!("{at}.Name 'testdisk' not found.")));
        refused(
            &[("spec.virtualMachineTemplate.spec.runStrategy", json!("always"))],
            "spec.virtualMachineTemplate.spec.runStrategy",
            "did you mean `Always`?",
        );
        refused(
            &[("spec.virtualMachineTemplate.spec.template.spec.domian", json!({}))],
            "spec.virtualMachineTemplate.spec.template.spec.domian",
            "domian",
        );
        let admission = verdict(&[("spec.virtualMachineTemplate.spec.template.spec.domain.memory", json!({}))]);
        let path = "spec.virtualMachineTemplate.spec.template.spec.domain.memory.guest";
        assert_eq!((admission.faults.len(), admission.warnings[0].path.as_str()), (0, path));
    }

    #[test]
    fn what_the_template_names_is_judged_with_the_machines() {
        let at = |field: &str| format!("spec.virtualMachineTemplate.spec.{field}");
        let (size, wishes) = (at("instancetype"), at("preference"));
        accepted(&[(size.as_str(), json!({"name": "small"})), (wishes.as_str(), json!({"inferFromVolume": "root"}))]);
        refused(&[(size.as_str(), json!({}))], &at("instancetype.name"), "nothing is named");
        refused(
            &[(wishes.as_str(), json!({"name": "a", "inferFromVolume": "root"}))],
            &at("preference.name"),
            "keep one of",
        );
        refused(&[(size.as_str(), json!({"name": "a", "kind": "Size"}))], &at("instancetype.kind"), "`Size`");
    }

    #[test]
    fn names_and_metadata() {
        accepted(&[("metadata.name", json!("x".repeat(54)))]);
        refused(&[("metadata.name", json!("x".repeat(55)))], "metadata.name", "54 characters");
        refused(&[("metadata.name", json!("Web"))], "metadata.name", "`Web`");
        refused(&[("spec.replicas", json!(-1))], "spec.replicas", "0 or more");
        let annotations = "spec.virtualMachineTemplate.metadata.annotations";
        refused(
            &[(annotations, json!({"garboard.dev/leaves-pool": ""}))],
            &format!("{annotations}[garboard.dev/leaves-pool]"),
            "own use",
        );
        for field in ["name", "generateName", "namespace"] {
            let path = format!("spec.virtualMachineTemplate.metadata.{field}");
            let admission = verdict(&[(path.as_str(), json!("x"))]);
            let paths: Vec<&str> = admission.warnings.iter().map(|fault| fault.path.as_str()).collect();
            assert_eq!((admission.faults.len(), paths), (0, vec![path.as_str()]));
        }
    }

    #[test]
    fn some_machines_may_be_unavailable() {
        for right in [json!(1), json!("1%"), json!("100%")] {
            accepted(&[("spec.maxUnavailable", right)]);
        }
        for wrong in [json!(0), json!(-1), json!("0%"), json!("101%"), json!("50"), json!("half%")] {
            refused(&[("spec.maxUnavailable", wrong)], "spec.maxUnavailable", "write 1 or more");
        }
    }

    #[test]
    fn a_pool_has_one_strategy_of_each_kind() {
        for strategy in ["spec.updateStrategy", "spec.scaleInStrategy"] {
            for one in ["unmanaged", "opportunistic", "proactive"] {
                accepted(&[(strategy, json!({one: {}}))]);
            }
            accepted(&[(strategy, json!({}))]);
            refused(&[(strategy, json!({"unmanaged": {}, "proactive": {}}))], strategy, "unmanaged and proactive");
        }
        for place in ["spec.updateStrategy.proactive.selectionPolicy", "spec.scaleInStrategy.proactive.selectionPolicy"]
        {
            for order in super::SORT_POLICIES {
                accepted(&[(place, json!({"sortPolicy": order}))]);
            }
            refused(
                &[(place, json!({"sortPolicy": "Newes"}))],
                &format!("{place}.sortPolicy"),
                "did you mean `Newest`?",
            );
            let selectors = format!("{place}.selectors");
            let numbers = json!([{"key": "size", "operator": "Gt", "values": ["many"]}]);
            let matcher = format!("{selectors}.nodeSelectorRequirementMatcher");
            refused(&[(matcher.as_str(), numbers)], &format!("{matcher}[0].values"), "`many`");
            accepted(&[(matcher.as_str(), json!([{"key": "size", "operator": "Gt", "values": ["3"]}]))]);
            let above = json!([{"key": "size", "operator": "Above", "values": ["3"]}]);
            refused(&[(matcher.as_str(), above)], &format!("{matcher}[0].operator"), "Above");
            let labels = json!({"matchExpressions": [{"key": "tier", "operator": "In"}]});
            let at = format!("{selectors}.labelSelector");
            refused(&[(at.as_str(), labels)], &format!("{at}.matchExpressions[0].values"), "one value");
        }
    }

    #[test]
    fn volumes_are_kept_of_machines_that_the_pool_deletes_and_memory_of_none() {
        let of = |way: &str| format!("spec.scaleInStrategy.{way}.statePreservation");
        for (way, right) in [("proactive", "Disabled"), ("proactive", "Offline"), ("opportunistic", "Disabled")] {
            accepted(&[(of(way).as_str(), json!(right))]);
        }
        for (way, wrong) in [("proactive", "Online"), ("opportunistic", "Offline"), ("opportunistic", "Online")] {
            refused(&[(of(way).as_str(), json!(wrong))], &of(way), "does not support it");
        }
        for (way, wrong, meant) in [("proactive", "Offlin", "Offline"), ("opportunistic", "disabled", "Disabled")] {
            refused(&[(of(way).as_str(), json!(wrong))], &of(way), &format!("did you mean `{meant}`?"));
        }
    }

    #[test]
    fn healing_has_a_threshold_and_a_duration() {
        accepted(&[("spec.autohealing", json!({"startUpFailureThreshold": 1, "minFailingToStartDuration": "2m0s"}))]);
        let threshold = "spec.autohealing.startUpFailureThreshold";
        refused(&[(threshold, json!(0))], threshold, "1 or more");
        let duration = "spec.autohealing.minFailingToStartDuration";
        for wrong in ["5 parsecs", "-1m"] {
            refused(&[(duration, json!(wrong))], duration, "no duration");
        }
    }

    #[test]
    fn other_versions_of_the_group_are_named() {
        let object = json!({"apiVersion": "pool.kubevirt.io/v1", "kind": "VirtualMachinePool"});
        let faults = admit(&object, &ClusterConfig::offline()).faults;
        assert!(faults[0].to_string().contains("write `pool.kubevirt.io/v1beta1`"), "{}", faults[0]);
    }
}
