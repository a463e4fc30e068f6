//! What can be read of an instance that cannot be read as a whole.

use serde_json::{Map, Value, json};

/// Of an instance as it is stored, its metadata and those fields of its status that have its phase and its pods. With
/// that it can be ended and removed, and the node of its pods can be asked. The specification is one that asks for nothing.
#[must_use]
pub fn remnant_of_instance(written: &Value) -> Value {
    let is_kept = |key: &str, value: &Value| match key {
        "phase" | "nodeName" => value.is_string(),
        "activePods" => value.as_object().is_some_and(|pods| pods.values().all(Value::is_string)),
        _ => false,
    };
    let status = written["status"].as_object().into_iter().flatten().filter(|(key, value)| is_kept(key, value));
    let status: Map<String, Value> = status.map(|(key, value)| (key.clone(), value.clone())).collect();
    json!({"metadata": written["metadata"], "spec": {"domain": {"devices": {}}}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let metadata = json!({"name": "vm", "uid": "u"});
        let written = json!({
            "metadata": metadata,
            "spec": {"domain": {"memory": {"guest": "1e1.5"}}},
            "status": {"phase": "Running", "nodeName": 5, "activePods": {"pod": "node"}, "memory": {"guestCurrent": "1e1.5"}},
        });
        let remnant = remnant_of_instance(&written);
        assert_eq!(remnant["status"], json!({"phase": "Running", "activePods": {"pod": "node"}}));
        let vmi: crate::VirtualMachineInstance = serde_json::from_value(remnant).unwrap();
        assert_eq!(vmi.metadata.uid.as_deref(), Some("u"));
        assert_eq!(remnant_of_instance(&json!({"status": {"activePods": {"pod": 1}}}))["status"], json!({}));
    }
}
