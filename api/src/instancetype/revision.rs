//! The copy that is kept of an object while a machine uses it: a ControllerRevision of KubeVirt's name, labels and content. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{GROUP, Role, STORED_VERSION};
use crate::kind::Kind;
use crate::metadata::label;

/// Metadata that a copy does without.
const LEFT_OUT: [&str; 5] = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];

/// What of a ControllerRevision depends on the object.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The object, as `data`.
    pub data: Value,
}

/// The copy of an object for a machine; nothing for an object that no cluster has stored.
#[must_use]
pub fn of(machine: &str, kind: Kind, object: &Value) -> Option<Revision> {
    let mut metadata: Map<String, Value> = object.get("metadata")?.as_object()?.clone();
    metadata.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
    let text = |key: &str| metadata.get(key).and_then(Value::as_str);
    let (name, uid) = (text("name")?.to_owned(), text("uid")?.to_owned());
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    let labels = [
        (label::OBJECT_GENERATION, generation.to_string()),
        (label::OBJECT_KIND, kind.name().to_owned()),
        (label::OBJECT_NAME, name.clone()),
        (label::OBJECT_UID, uid.clone()),
        (label::OBJECT_VERSION, STORED_VERSION.to_owned()),
    ];
    Some(Revision {
        name: format!("{machine}-{name}-{STORED_VERSION}-{uid}-{generation}"),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        data: json!({
            "apiVersion": format!("{GROUP}/{STORED_VERSION}"),
            "kind": kind.name(),
            "metadata": metadata,
            "spec": object.get("spec"),
        }),
    })
}

/// The kind of the object in a copy, if it is of the role that is looked for.
#[must_use]
pub fn kind(role: Role, data: &Value) -> Option<Kind> {
    let kind = crate::kind::kind_of(data);
    (Role::of_kind(kind) == Some(role)).then_some(kind)
}

/// Whether a name is one that a new copy could have. Earlier releases of KubeVirt left the version out of it, and the labels out of the
/// copy: that is noticed without reading it.
#[must_use]
pub fn is_named_as_now(name: &str) -> bool {
    name.contains(&format!("-{STORED_VERSION}-"))
}

/// Whether a copy is written as a new one would be. Earlier releases of KubeVirt left the labels out; such a copy is made again.
#[must_use]
pub fn is_current(labels: Option<&BTreeMap<String, String>>) -> bool {
    let version = labels.and_then(|labels| labels.get(label::OBJECT_VERSION));
    version.is_some_and(|version| version == STORED_VERSION)
}
