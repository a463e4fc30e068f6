//! v1alpha1: a machine's `domain` has libvirt's form, and the object means that it runs now. Its machine is a VirtualMachine of v1 with the
//! run strategy `Once`.
//!
//! What was written is kept whole, and read back as long as the stored machine still has all that follows from it. Of every other machine
//! v1alpha1 shows a little, with the rest beside it, so that an old client that writes it back unchanged loses nothing.

mod disk;
mod domain;

use serde_json::{Map, Value, json};

use super::ConversionError;
use crate::quantity::Quantity;

/// On a stored object that was written in v1alpha1: its specification as it was written.
pub const WRITTEN_AS_V1ALPHA1: &str = "garboard.dev/written-as-v1alpha1";
/// On an object of v1alpha1 that was not written in it: the stored specification.
pub const STORED_SPEC: &str = "garboard.dev/stored-spec";

/// Makes an object of v1alpha1 one of v1.
pub(super) fn to_stored(object: &mut Value) -> Result<(), ConversionError> {
    let _ = take(object, WRITTEN_AS_V1ALPHA1);
    let written = object.get("spec").cloned().unwrap_or_default();
    if let Some(stored) = take(object, STORED_SPEC) {
        if written != shown(&stored) {
            let message = "this machine was not written in v1alpha1, which has no place for all of it";
            return Err(field("spec", message, "change it in `kubevirt.io/v1`"));
        }
        object["spec"] = stored;
        return Ok(());
    }
    let stored = domain::stored_spec(&written)?;
    note(object, WRITTEN_AS_V1ALPHA1, &written);
    object["spec"] = stored;
    Ok(())
}

/// Makes an object of v1 one of v1alpha1.
pub(super) fn from_stored(object: &mut Value) {
    let stored = object.get("spec").cloned().unwrap_or_default();
    let written = take(object, WRITTEN_AS_V1ALPHA1);
    let is_whole = |written: &Value| domain::stored_spec(written).is_ok_and(|spec| is_within(&spec, &stored));
    if let Some(written) = written.filter(is_whole) {
        object["spec"] = written;
        return;
    }
    object["spec"] = shown(&stored);
    note(object, STORED_SPEC, &stored);
}

/// What v1alpha1 shows of a machine that was not written in it.
fn shown(stored: &Value) -> Value {
    let memory = stored.pointer("/template/spec/domain/memory/guest").and_then(Value::as_str);
    let bytes = memory.and_then(|text| text.parse::<Quantity>().ok()).and_then(|quantity| quantity.to_bytes());
    let mut domain = json!({ "os": { "type": { "os": "hvm" } } });
    if let Some(bytes) = bytes {
        domain["memory"] = json!({ "unit": "b", "value": bytes });
    }
    json!({ "domain": domain })
}

/// Whether everything of one value is in the other, where defaults may have been added.
fn is_within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|other| is_within(value, other)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(one, other)| is_within(one, other))
        }
        (part, whole) => part == whole,
    }
}

fn field(path: impl Into<String>, message: impl Into<String>, instead: impl Into<String>) -> ConversionError {
    ConversionError::Field { path: path.into(), message: message.into(), instead: instead.into() }
}

/// Puts a value into an annotation.
fn note(object: &mut Value, key: &str, value: &Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(key.to_owned(), value.to_string().into());
    }
}

/// Takes it out again.
fn take(object: &mut Value, key: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text?.as_str()?).ok()
}
