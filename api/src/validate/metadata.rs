//! Names, labels and annotations of the object itself.

use std::collections::BTreeMap;

use crate::accelerator;
use crate::cluster::{ClusterConfig, Gate, verbosity_of_instance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names::{label_key_problem, label_value_problem, subdomain_problem};
use super::report::{Report, invalid, required, unsupported};
use super::subject::text;
use crate::fault::{Fault, FieldPath};
use crate::metadata::{annotation, label, node_label};

/// Labels that only the controllers may write: KubeVirt's list, and those that others may write but only its controllers do.
pub const RESERVED: &[&str] = &[
    label::CREATED_BY,
    "kubevirt.io/install-strategy",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/migrationTargetNodeName",
    label::NODE_NAME,
    node_label::SCHEDULABLE,
    label::OUTDATED_LAUNCHER_IMAGE,
];
/// Those of them that a template may have, as it may in KubeVirt and could in earlier versions: an instance is made without them
/// ([`crate::vmi_of`]).
const LEFT_OUT: &[&str] = &[label::OUTDATED_LAUNCHER_IMAGE];

/// The metadata of an object or of a template, as far as rules look at it.
pub(crate) struct Metadata<'a> {
    /// Where it stands.
    pub(crate) at: FieldPath,
    /// Whether it is of a template.
    pub(crate) is_template: bool,
    /// The labels.
    pub(crate) labels: Option<&'a BTreeMap<String, String>>,
    /// The annotations.
    pub(crate) annotations: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Metadata<'a> {
    /// What stands at `at`, which may be nothing.
    pub(crate) fn of(metadata: Option<&'a ObjectMeta>, at: FieldPath) -> Self {
        let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        Self { at, is_template: false, labels, annotations }
    }

    /// The metadata of a template.
    pub(crate) fn of_template(metadata: Option<&'a ObjectMeta>, at: FieldPath) -> Self {
        Self { is_template: true, ..Self::of(metadata, at) }
    }
}

/// Judges labels and annotations.
pub(crate) fn check(metadata: &Metadata<'_>, config: &ClusterConfig, report: &mut Report) {
    let at = metadata.at.child("labels");
    for (key, value) in metadata.labels.into_iter().flatten() {
        let is_left_out = metadata.is_template && LEFT_OUT.contains(&key.as_str());
        if RESERVED.contains(&key.as_str()) && !is_left_out {
            report.push(
                unsupported(at.key(key), "this label is for Garboard's own use")
                    .instead("remove it")
                    .field(at.to_string()),
            );
        }
        let problem = label_key_problem(key).map(|problem| format!("the key {problem}"));
        let problem = problem.or_else(|| label_value_problem(value).map(|problem| format!("the value {problem}")));
        if let Some(problem) = problem {
            report.push(
                invalid(at.key(key), problem)
                    .instead("write letters, digits, `-`, `_` and `.`, and at most 63 of them")
                    .field(at.to_string()),
            );
        }
    }
    if let Some(fault) = verbosity_fault(metadata.labels, &at) {
        report.push(fault);
    }
    let at = metadata.at.child("annotations");
    let accelerator = metadata.annotations.and_then(|annotations| annotations.get(annotation::ACCELERATOR));
    if let Some(name) = accelerator.filter(|name| accelerator::RequestedAccelerator::from_name(name).is_none()) {
        report.push(
            unsupported(at.key(annotation::ACCELERATOR), format!("there is no accelerator `{}`", name.escape_debug()))
                .instead(format!("write {}", accelerator::NAMES.join(" or ")))
                .field(at.to_string()),
        );
    }
    for (key, gate) in [(annotation::IGNITION, Gate::Ignition), (annotation::HOOK_SIDECARS, Gate::Sidecar)] {
        let written = metadata.annotations.and_then(|annotations| annotations.get(key));
        if written.is_some_and(|value| !value.is_empty()) && !config.has(gate) {
            report.push(
                unsupported(at.key(key), format!("this annotation needs the feature gate {gate}"))
                    .instead("switch the gate on, or remove it")
                    .field(at.to_string()),
            );
        }
    }
}

/// Labels of a template that its instances are made without.
pub(crate) fn warnings(template: &Metadata<'_>) -> Vec<Fault> {
    let at = template.at.child("labels");
    let left_out = template.labels.into_iter().flat_map(BTreeMap::keys).filter(|key| LEFT_OUT.contains(&key.as_str()));
    let warning = |key: &String| {
        unsupported(at.key(key), "this label is for Garboard's own use, and instances are made without it")
            .instead("remove it")
            .field(at.to_string())
    };
    left_out.map(warning).collect()
}

/// Judges the name of an object, which may be left to the API server.
pub(crate) fn name(metadata: &ObjectMeta, report: &mut Report) {
    let at = FieldPath::from("metadata.name");
    let name = text(&metadata.name);
    if name.is_empty() && text(&metadata.generate_name).is_empty() {
        report.push(required(at, "the object has no name").instead("write one, such as `web-1`"));
    } else if !name.is_empty()
        && let Some(problem) = subdomain_problem(name)
    {
        report.push(
            invalid(at, format!("the name `{}` {problem}", name.escape_debug()))
                .instead("write lower-case letters, digits and dashes"),
        );
    }
}

/// What is wrong with the label that says how much the supervisor of an instance logs; `at` are its labels.
#[must_use]
pub fn verbosity_fault(labels: Option<&BTreeMap<String, String>>, at: &FieldPath) -> Option<Fault> {
    let written = labels?.get(label::LOG_VERBOSITY)?;
    if verbosity_of_instance(labels).is_some() {
        return None;
    }
    let fault = invalid(at.key(label::LOG_VERBOSITY), format!("`{}` is no whole number", written.escape_debug()));
    let advice = "write one such as `6`: from 3 on the supervisor logs more, from 6 on everything";
    Some(fault.instead(advice).field(at.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::VirtualMachine;
    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};
    use crate::validate::validate_vm;

    #[test]
    fn names_and_labels() {
        accepted(&[
            &[("metadata.name", json!("a.b")), ("metadata.labels", json!({"app": "x"}))],
            &[("metadata.name", json!(null)), ("metadata.generateName", json!("web-"))],
            &[("metadata.annotations", json!({"any": "thing"}))],
        ]);
        refused(&[
            (&[("metadata.name", json!("Upper"))], "metadata.name", "`U`"),
            (&[("metadata.name", json!(null))], "metadata.name", "no name"),
            (&[("metadata.labels", json!({"bad key!": "x"}))], "metadata.labels[bad key!]", "the key"),
            (&[("metadata.labels", json!({"app": "a b"}))], "metadata.labels[app]", "the value"),
            (
                &[("metadata.labels", json!({"logVerbosity": "high"}))],
                "metadata.labels[logVerbosity]",
                "no whole number",
            ),
            (
                &[("metadata.annotations", json!({"garboard.dev/accelerator": "xen"}))],
                "metadata.annotations[garboard.dev/accelerator]",
                "`xen`",
            ),
        ]);
        accepted(&[
            &[("metadata.annotations", json!({"garboard.dev/accelerator": "tcg"}))],
            &[("metadata.labels", json!({"logVerbosity": "6"}))],
        ]);
    }

    #[test]
    fn reserved_labels_are_reported_at_the_labels() {
        let faults = faults(&[("metadata.labels", json!({"kubevirt.io/created-by": "me"}))]);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].path.as_str(), "metadata.labels[kubevirt.io/created-by]");
        assert_eq!(faults[0].field, "metadata.labels");
    }

    #[test]
    fn the_mark_of_an_outdated_supervisor_is_refused_of_an_instance_and_warned_of_in_a_template() {
        let labels = json!({"kubevirt.io/outdatedLauncherImage": ""});
        let faults = faults(&[("metadata.labels", labels.clone())]);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].path.as_str(), "metadata.labels[kubevirt.io/outdatedLauncherImage]");

        let template = json!({"metadata": {"labels": labels}, "spec": {"domain": {"devices": {}}}});
        let vm: VirtualMachine = serde_json::from_value(json!({
            "metadata": {"name": "vm"}, "spec": {"runStrategy": "Always", "template": template}}))
        .unwrap();
        let verdict = validate_vm(&vm, &ClusterConfig::offline());
        let warned: Vec<_> = verdict.warnings.iter().map(|each| each.path.as_str()).collect();
        let place = "spec.template.metadata.labels[kubevirt.io/outdatedLauncherImage]";
        assert!(verdict.faults.is_empty() && warned.contains(&place), "{verdict:?}");
        assert!(crate::vmi_of(&vm).metadata.labels.is_none_or(|labels| labels.is_empty()));
    }

    #[test]
    fn some_annotations_need_a_gate() {
        let changes = [("metadata.annotations", json!({"hooks.kubevirt.io/hookSidecars": "[]"}))];
        let faults = faults_in(&changes, &ClusterConfig::offline().without(Gate::Sidecar));
        assert_eq!(faults[0].field, "metadata.annotations");
    }
}
