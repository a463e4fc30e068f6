//! Selectors of labels and nodes, as affinities and spreading use them.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::names::{label_key_problem, label_value_problem, subdomain_problem};
use super::report::{Report, invalid, required, unsupported};
use crate::fault::{Fault, FieldPath};
use crate::suggest::one_of;

const LABEL_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist"];
const NODE_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const NODE_FIELD_OPERATORS: &[&str] = &["In", "NotIn"];
/// The one field of nodes that can be selected by.
const NODE_NAME: &str = "metadata.name";

/// A place with two spellings: where it is, and as KubeVirt reports it.
#[derive(Clone)]
pub(crate) struct Place {
    path: FieldPath,
    sent: FieldPath,
}

impl Place {
    /// A place that KubeVirt spells as it is.
    pub(crate) fn same(path: FieldPath) -> Self {
        Self { sent: path.clone(), path }
    }

    /// A place that KubeVirt spells otherwise.
    pub(crate) fn spelt(path: FieldPath, sent: FieldPath) -> Self {
        Self { path, sent }
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self { path: self.path.child(name), sent: self.sent.child(name) }
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        Self { path: self.path.index(index), sent: self.sent.index(index) }
    }

    /// A fault here.
    pub(crate) fn fault(self, make: impl FnOnce(FieldPath) -> Fault) -> Fault {
        make(self.path).field(self.sent.to_string())
    }
}

/// Judges a selector of labels.
pub(crate) fn label_selector(selector: &LabelSelector, at: &Place, report: &mut Report) {
    for (key, value) in selector.match_labels.iter().flatten() {
        let problem = label_key_problem(key).map(|problem| format!("the key `{key}` {problem}"));
        if let Some(problem) =
            problem.or_else(|| label_value_problem(value).map(|problem| format!("the value `{value}` {problem}")))
        {
            report.push(
                at.child("matchLabels").fault(|at| invalid(at, problem).instead("write labels as objects have them")),
            );
        }
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let at = at.child("matchExpressions").index(index);
        let values = expression.values.as_deref().unwrap_or_default();
        operator(&expression.operator, values.len(), LABEL_OPERATORS, &at, report);
        key(&expression.key, &at, report);
    }
}

/// Judges the values of a selector's expressions: a selector is handed on as text, where others would be read as something else.
pub(crate) fn label_values(selector: &LabelSelector, at: &Place, report: &mut Report) {
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let wrong = |value: &String| label_value_problem(value).map(|problem| format!("the value `{value}` {problem}"));
        if let Some(problem) = expression.values.iter().flatten().find_map(wrong) {
            let at = at.child("matchExpressions").index(index).child("values");
            report.push(at.fault(|at| invalid(at, problem).instead("write values as labels have them")));
        }
    }
}

/// Judges one term of a selector of nodes.
pub(crate) fn node_term(term: &NodeSelectorTerm, at: &Place, report: &mut Report) {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    node_requirements(expressions, &at.child("matchExpressions"), report);
    for (index, requirement) in term.match_fields.iter().flatten().enumerate() {
        node_field(requirement, &at.child("matchFields").index(index), report);
    }
}

/// Judges conditions of a node's labels.
pub(crate) fn node_requirements(requirements: &[NodeSelectorRequirement], at: &Place, report: &mut Report) {
    for (index, requirement) in requirements.iter().enumerate() {
        let at = at.index(index);
        let values = requirement.values.as_deref().unwrap_or_default();
        operator(&requirement.operator, values.len(), NODE_OPERATORS, &at, report);
        key(&requirement.key, &at, report);
    }
}

fn key(key: &str, at: &Place, report: &mut Report) {
    if let Some(problem) = label_key_problem(key) {
        report.push(
            at.child("key").fault(|at| invalid(at, format!("the key {problem}")).instead("write the key of a label")),
        );
    }
}

fn operator(operator: &str, values: usize, known: &[&str], at: &Place, report: &mut Report) {
    let wrong = match operator {
        _ if !known.contains(&operator) => {
            report.push(at.child("operator").fault(|at| {
                unsupported(at, format!("there is no operator `{operator}`")).instead(one_of(operator, known))
            }));
            return;
        }
        "In" | "NotIn" => (values == 0).then_some("write one value or more"),
        "Gt" | "Lt" => (values != 1).then_some("write exactly one value"),
        _ => (values > 0).then_some("remove the values"),
    };
    if let Some(instead) = wrong {
        report.push(at.child("values").fault(|at| {
            required(at, format!("{values} values do not go with the operator `{operator}`")).instead(instead)
        }));
    }
}

fn node_field(requirement: &NodeSelectorRequirement, at: &Place, report: &mut Report) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let operator = requirement.operator.as_str();
    if !NODE_FIELD_OPERATORS.contains(&operator) {
        report.push(at.child("operator").fault(|at| {
            unsupported(at, format!("there is no operator `{operator}` for fields"))
                .instead(one_of(operator, NODE_FIELD_OPERATORS))
        }));
    } else if values.len() != 1 {
        report.push(at.child("values").fault(|at| {
            required(at, format!("a field is compared with one value, not {}", values.len()))
                .instead("write exactly one")
        }));
    }
    if requirement.key != NODE_NAME {
        report.push(at.child("key").fault(|at| {
            unsupported(at, format!("nodes cannot be selected by the field `{}`", requirement.key))
                .instead(format!("write `{NODE_NAME}`, or use `matchExpressions`"))
        }));
        return;
    }
    for (index, name) in values.iter().enumerate() {
        if let Some(problem) = subdomain_problem(name) {
            report.push(at.child("values").index(index).fault(|at| {
                invalid(at, format!("the name `{}` {problem}", name.escape_debug())).instead("write the name of a node")
            }));
        }
    }
}
