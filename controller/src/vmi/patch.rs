//! The JSON merge patch (RFC 7386) that makes one value of another: only what differs is written.

use serde_json::{Map, Value};

/// The patch; an empty object if the two are equal.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Value {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => Value::Object(of_objects(before, after)),
        _ => after.clone(),
    }
}

fn of_objects(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(old) if old == value => {}
            Some(old) => {
                patch.insert(key.clone(), difference(old, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let before = json!({"a": 1, "b": {"c": 1, "d": [1]}, "gone": true});
        let after = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "new": null});
        assert_eq!(difference(&before, &after), json!({"b": {"c": 2, "d": [1, 2]}, "new": null, "gone": null}));
        assert_eq!(difference(&before, &before), json!({}));
        assert_eq!(difference(&Value::Null, &after), after);
    }
}
