//! What only a VirtualMachineInstanceReplicaSet has: how many, which, and how they are called.

use super::metadata::Metadata;
use super::names::subdomain_problem;
use super::report::{Report, invalid, required};
use super::selectors::{Place, label_selector, label_values};
use crate::fault::{Fault, FieldPath};
use crate::selector::{self, Labels};
use crate::set;
use crate::v1::{VirtualMachineInstanceReplicaSet, non_empty};

/// Judges the fields of a set beside the template of its instances.
pub(crate) fn check(set: &VirtualMachineInstanceReplicaSet, labelled: &Metadata<'_>, report: &mut Report) {
    let at = FieldPath::from("spec");
    if set.spec.replicas.is_some_and(|replicas| replicas < 0) {
        report.push(invalid(at.child("replicas"), "there are no fewer than 0 instances").instead("write 0 or more"));
    }
    let mut wrong = Report::default();
    let place = at.child("selector");
    label_selector(&set.spec.selector, &Place::same(place.clone()), &mut wrong);
    label_values(&set.spec.selector, &Place::same(place.clone()), &mut wrong);
    let wrong = wrong.into_faults();
    let nothing = Labels::new();
    let labels = labelled.labels.unwrap_or(&nothing);
    if labels.is_empty() {
        report.push(
            required(labelled.at.child("labels"), "the instances of a set have labels, by which it recognises them")
                .instead("write those that the selector asks for"),
        );
    } else if wrong.is_empty() && !selector::matches(&set.spec.selector, labels) {
        report.push(
            invalid(place, "the selector does not match the labels of the template")
                .instead("give `template.metadata.labels` what the selector asks for"),
        );
    }
    wrong.into_iter().for_each(|fault| report.push(fault));
    names(set, &labelled.at, report);
}

/// What names begin with has to begin a name.
fn names(set: &VirtualMachineInstanceReplicaSet, template: &FieldPath, report: &mut Report) {
    let metadata = set.spec.template.metadata.as_ref();
    let field = match metadata {
        Some(metadata) if non_empty(&metadata.name).is_some() => "name",
        Some(metadata) if non_empty(&metadata.generate_name).is_some() => "generateName",
        // That of the set, which is judged as one.
        Some(_) | None => return,
    };
    if let Some(problem) = subdomain_problem(&format!("{}x", set::beginning(set))) {
        report.push(
            invalid(template.child(field), format!("a name that begins so {problem}"))
                .instead("write lower-case letters, digits and dashes"),
        );
    }
}

/// What its user should know of a set that is accepted.
pub(crate) fn warnings(set: &VirtualMachineInstanceReplicaSet) -> Vec<Fault> {
    let mut warnings = Report::default();
    if selector::is_empty(&set.spec.selector) {
        warnings.push(
            invalid(
                FieldPath::from("spec.selector"),
                "an empty selector makes every instance of the namespace that has no controller one of this set",
            )
            .instead("write `matchLabels`"),
        );
    }
    warnings.into_faults()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cluster::ClusterConfig;
    use crate::validate::testing::{instance, set};
    use crate::validate::{Admission, Object, admit};

    fn verdict(changes: &[(&str, Value)]) -> Admission {
        let mut object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}, "spec": instance()["spec"]},
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

    #[test]
    fn a_set_that_is_right_comes_back() {
        let admission = verdict(&[]);
        assert_eq!((admission.faults.as_slice(), admission.warnings.as_slice()), ([].as_slice(), [].as_slice()));
        assert!(matches!(admission.object, Some(Object::ReplicaSet(_))));
    }

    #[test]
    fn the_selector_has_to_match_the_labels_of_the_template() {
        refused(&[("spec.selector.matchLabels", json!({"app": "db"}))], "spec.selector", "does not match");
        let expressions =
            |operator: &str| ("spec.selector.matchExpressions", json!([{"key": "tier", "operator": operator}]));
        refused(&[expressions("DoesNotExist")], "spec.selector", "does not match");
        assert_eq!(verdict(&[expressions("Exists")]).faults, []);
        refused(&[expressions("Exist")], "spec.selector.matchExpressions[0].operator", "`Exists`");
        refused(&[("spec.template.metadata", json!({}))], "spec.template.metadata.labels", "labels");
        let odd = json!([{"key": "tier", "operator": "In", "values": ["front", "x),y"]}]);
        refused(&[("spec.selector.matchExpressions", odd)], "spec.selector.matchExpressions[0].values", "`x),y`");
    }

    #[test]
    fn an_empty_selector_is_a_warning() {
        let admission = verdict(&[("spec.selector", json!({}))]);
        assert_eq!(admission.faults, []);
        assert_eq!(admission.warnings[0].path.as_str(), "spec.selector");
    }

    #[test]
    fn numbers_and_names() {
        refused(&[("spec.replicas", json!(-1))], "spec.replicas", "0 or more");
        assert_eq!(
            verdict(&[("spec.replicas", json!(0)), ("spec.template.metadata.generateName", json!("w-"))]).faults,
            []
        );
        refused(&[("spec.template.metadata.name", json!("Web"))], "spec.template.metadata.name", "begins so");
        refused(
            &[("spec.template.metadata.generateName", json!("-"))],
            "spec.template.metadata.generateName",
            "begins so",
        );
    }

    #[test]
    fn mistakes_of_the_template_stand_in_the_template() {
        let disk = json!({"name": "testdisk"});
        let at = "spec.template.spec.domain.devices.disks[2]";
        let faults = verdict(&[(at, disk)]).faults;
        assert_eq!(faults.len(), 1, "{faults:#?}");
        assert_eq!(faults[0].field, format!("{at}.name"));
        refused(&[("spec.template.spec.not-a-domain", json!({}))], "spec.template.spec.not-a-domain", "not-a-domain");
        refused(
            &[("spec.template.spec.evictionStrategy", json!("x"))],
            "spec.template.spec.evictionStrategy",
            "evictionStrategy",
        );
    }

    #[test]
    fn what_only_the_instances_need_is_a_warning() {
        let admission = verdict(&[("spec.template.spec.domain.memory", json!({}))]);
        assert_eq!(admission.faults, []);
        assert_eq!(admission.warnings[0].path.as_str(), "spec.template.spec.domain.memory.guest");
    }
}
