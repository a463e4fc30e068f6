//! Reading an object without what is not kept of it, so that this costs neither memory nor much time: most of a pod's text is
//! the order in its annotation, and `managedFields`.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Kind;

/// How deep there may be something that is left out: `metadata`, `annotations`, and a key of these.
const DEEPEST: usize = 2;

/// Reads a whole object of a kind.
pub(super) fn read<'de, K: Kind, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    match (Sieve { path: &[], is_dropped: K::is_dropped }).deserialize(deserializer)? {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(serde::de::Error::custom("an object was expected"))
        }
    }
}

/// Reads one value at a path, given by its keys.
#[derive(Clone, Copy)]
struct Sieve<'a> {
    path: &'a [&'a str],
    is_dropped: fn(&[&str], &str) -> bool,
}

impl<'de> DeserializeSeed<'de> for Sieve<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sieve<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.path.len() > DEEPEST {
            return Value::deserialize(MapAccessDeserializer::new(entries));
        }
        let mut kept = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if (self.is_dropped)(self.path, &key) {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            let path: Vec<&str> = self.path.iter().copied().chain([key.as_str()]).collect();
            let value = entries.next_value_seed(Sieve { path: &path, ..self })?;
            kept.insert(key, value);
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(entries))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
}

#[cfg(test)]
mod tests {
    use garboard_cluster::report::claims;
    use serde_json::json;

    use super::super::{Machines, Pods};
    use super::*;

    #[test]
    fn what_is_left_out_is_left_out_at_its_place_alone() {
        let pod = json!({
            "metadata": {"name": "p", "managedFields": [{"manager": "kubelet"}],
                "annotations": {"garboard.dev/order": "{}", claims::ANNOTATION: "[]"}},
            "spec": {"nodeName": "n", "volumes": [], "containers": [{"name": "compute", "managedFields": [1, 2.5, null]}]},
            "status": {"phase": "Running", "hostIP": "192.0.2.1"},
        });
        let kept = json!({
            "metadata": {"name": "p", "annotations": {claims::ANNOTATION: "[]"}},
            "spec": {"nodeName": "n", "containers": [{"name": "compute", "managedFields": [1, 2.5, null]}]},
            "status": {"phase": "Running"},
        });
        assert_eq!(Value::Object(read::<Pods, _>(&pod).unwrap()), kept);
        let text = pod.to_string();
        assert_eq!(Value::Object(read::<Pods, _>(&mut serde_json::Deserializer::from_str(&text)).unwrap()), kept);
    }

    #[test]
    fn what_has_another_shape_than_expected_is_kept_as_it_is() {
        for odd in
            [json!({"metadata": null, "spec": "x", "status": [1, -2]}), json!({"metadata": {"annotations": true}})]
        {
            assert_eq!(Value::Object(read::<Pods, _>(&odd).unwrap()), odd);
        }
        assert!(read::<Pods, _>(&json!([])).is_err());
    }

    #[test]
    fn the_manifest_that_kubectl_repeats_is_not_kept() {
        const REPEATED: &str = "kubectl.kubernetes.io/last-applied-configuration";
        let vm = json!({"metadata": {"annotations": {REPEATED: "{}", "vm.kubevirt.io/os": "linux"}}, "spec": {}});
        let kept = json!({"metadata": {"annotations": {"vm.kubevirt.io/os": "linux"}}, "spec": {}});
        assert_eq!(Value::Object(read::<Machines, _>(&vm).unwrap()), kept);
    }
}
