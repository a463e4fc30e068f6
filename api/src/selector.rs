//! Selectors of labels: what they match, and how they are written as text. Pure.
//!
//! The rules are Kubernetes' (`LabelSelectorAsSelector`). An operator that does not exist matches nothing; admission refuses it
//! (`crate::validate`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether a selector has no condition, and so matches every object.
#[must_use]
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether an object with these labels is selected.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|each| is_met(each, labels))
}

fn is_met(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        // Also met by an object that has no such label.
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// A selector as `kubectl -l` and the API server take it: its conditions by their keys. Empty for one without a condition, which
/// selects everything.
#[must_use]
pub fn text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| (key, format!("{key}={value}")));
    let others = selector.match_expressions.iter().flatten().map(|each| (&each.key, requirement(each)));
    let mut conditions: Vec<(&String, String)> = equal.chain(others).collect();
    conditions.sort();
    conditions.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

fn requirement(requirement: &LabelSelectorRequirement) -> String {
    let key = &requirement.key;
    let mut values = requirement.values.clone().unwrap_or_default();
    values.sort();
    let values = values.join(",");
    match requirement.operator.as_str() {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.clone(),
        // Of an operator that does not exist, too: what matches nothing must not select everything.
        _ => format!("!{key}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(written: serde_json::Value) -> LabelSelector {
        serde_json::from_value(written).unwrap()
    }

    fn labels(written: &[(&str, &str)]) -> Labels {
        written.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_operator_matches_as_in_kubernetes() {
        let one = |operator: &str, values: &[&str]| {
            selector(json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]}))
        };
        let (web, db, none) = (labels(&[("tier", "web")]), labels(&[("tier", "db")]), labels(&[("app", "x")]));
        let table = [
            (selector(json!({})), [true, true, true]),
            (selector(json!({"matchLabels": {"tier": "web"}})), [true, false, false]),
            (one("In", &["web", "api"]), [true, false, false]),
            (one("NotIn", &["web"]), [false, true, true]),
            (one("Exists", &[]), [true, true, false]),
            (one("DoesNotExist", &[]), [false, false, true]),
            (one("Like", &["web"]), [false, false, false]),
        ];
        for (selector, expected) in table {
            assert_eq!([&web, &db, &none].map(|labels| matches(&selector, labels)), expected, "{selector:?}");
        }
    }

    #[test]
    fn every_condition_has_to_be_met() {
        let both =
            selector(json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}));
        assert!(matches(&both, &labels(&[("app", "x"), ("tier", "web")])));
        assert!(!matches(&both, &labels(&[("app", "x")])) && !matches(&both, &labels(&[("tier", "web")])));
    }

    #[test]
    fn the_text_has_the_conditions_in_the_order_of_their_keys() {
        let written = selector(json!({"matchLabels": {"b": "1", "a": ""}, "matchExpressions": [
            {"key": "d", "operator": "DoesNotExist"}, {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "aa", "operator": "NotIn", "values": ["z"]}, {"key": "e", "operator": "Exists"},
        ]}));
        assert_eq!(text(&written), "a=,aa notin (z),b=1,c in (x,y),!d,e");
        assert_eq!(text(&LabelSelector::default()), "");
        assert!(is_empty(&LabelSelector::default()) && !is_empty(&written));
    }
}
