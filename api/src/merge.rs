//! The smallest JSON merge patch (RFC 7396) that makes one object of another. Pure.

use serde_json::{Map, Value};

/// What to send so that `old` becomes `new`; nothing if they are alike. Lists are replaced as a whole. The objects must
/// not contain `null`, which a merge patch cannot set; serialised Kubernetes objects have none.
#[must_use]
pub fn patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut changes = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(before) => patch(before, value),
            None => Some(value.clone()),
        };
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// RFC 7396, section 2.
    fn apply(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = if let Value::Object(target) = target { target } else { Map::new() };
        for (key, value) in patch {
            let before = target.remove(key).unwrap_or_default();
            if !value.is_null() {
                target.insert(key.clone(), apply(before, value));
            }
        }
        Value::Object(target)
    }

    #[test]
    fn a_patch_makes_one_of_the_other_and_no_more() {
        let table = [
            (json!({}), json!({"a": {"b": [1]}})),
            (json!({"a": 1, "b": 2}), json!({"b": 3})),
            (json!({"a": {"b": 1, "c": [1, 2]}}), json!({"a": {"c": [2]}})),
            (json!({"a": {"b": 1}}), json!({"a": {}})),
            (json!({"a": [1]}), json!({"a": "text"})),
        ];
        for (old, new) in table {
            let patch = patch(&old, &new).unwrap();
            assert_eq!(apply(old.clone(), &patch), new, "{old} → {new} by {patch}");
        }
        assert_eq!(patch(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1}})), None);
        assert_eq!(patch(&json!({"a": 1, "b": 2}), &json!({"a": 1, "b": 3})), Some(json!({"b": 3})));
    }
}
