//! v1alpha1: a machine's `domain` has libvirt's form, and the object means that it runs now. Its machine is a VirtualMachine of v1 with the
//! run strategy `Once`.
//!
//! What was written is kept whole, and read back as long as the stored machine still has all that follows from it. Of every other machine
//! v1alpha1 shows a little. Where the stored machine has more, it is beside that, so that an old client that writes the object back, or
//! changes what it has written, loses nothing of the rest.

mod disk;
mod domain;

use serde_json::{Map, Value, json};

use super::ConversionError;
use crate::quantity::Quantity;

/// On a stored object that was written in v1alpha1: its specification as it was written.
pub const WRITTEN_AS_V1ALPHA1: &str = "garboard.dev/written-as-v1alpha1";
/// On an object of v1alpha1 whose specification does not say all: the stored one. That of a machine that was written in v1alpha1 has
/// [`WRITTEN_AS_V1ALPHA1`] beside it.
pub const STORED_SPEC: &str = "garboard.dev/stored-spec";

/// The most bytes that all annotations of an object may have, as API servers count them (`TotalAnnotationSizeLimitB`); a conversion that
/// exceeds them fails, and with it the list that it is for.
const MOST_BYTES: usize = 256 << 10;

/// Makes an object of v1alpha1 one of v1.
pub(super) fn to_stored(object: &mut Value) -> Result<(), ConversionError> {
    let before = take(object, WRITTEN_AS_V1ALPHA1);
    let beside = take(object, STORED_SPEC);
    let written = object.get("spec").cloned().unwrap_or_default();
    let stored = match (before, beside) {
        (Some(before), Some(stored)) if follows(&before, &stored) => {
            with_changes(&stored, &domain::stored_spec(&before)?, &domain::stored_spec(&written)?)
        }
        // It is written anew.
        (Some(_), _) | (None, None) => domain::stored_spec(&written)?,
        (None, Some(stored)) => {
            // One that had no room is no object.
            if !stored.is_object() || written != shown(&stored) {
                let message = "this machine was not written in v1alpha1, which has no place for all of it";
                return Err(field("spec", message, "change it in `kubevirt.io/v1`"));
            }
            object["spec"] = stored;
            return Ok(());
        }
    };
    note(object, WRITTEN_AS_V1ALPHA1, &written);
    object["spec"] = stored;
    Ok(())
}

/// Makes an object of v1 one of v1alpha1.
pub(super) fn from_stored(object: &mut Value) {
    let stored = object.get("spec").cloned().unwrap_or_default();
    let _ = take(object, STORED_SPEC);
    let written = take(object, WRITTEN_AS_V1ALPHA1).filter(|written| follows(written, &stored));
    let Some(written) = written else {
        object["spec"] = shown(&stored);
        note_bounded(object, &stored);
        return;
    };
    if domain::stored_spec(&written).as_ref() != Ok(&stored) {
        note(object, WRITTEN_AS_V1ALPHA1, &written);
        note_bounded(object, &stored);
    }
    object["spec"] = written;
}

/// Whether the stored machine has all that follows from what was written.
fn follows(written: &Value, stored: &Value) -> bool {
    domain::stored_spec(written).is_ok_and(|spec| is_within(&spec, stored))
}

/// A value that has all of `before`, with what is another in `after`. Lists are replaced as a whole.
fn with_changes(stored: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return stored.clone();
    }
    let (Value::Object(stored), Value::Object(before), Value::Object(after)) = (stored, before, after) else {
        return after.clone();
    };
    let mut changed = stored.clone();
    changed.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
    for (key, value) in after {
        let value = match (stored.get(key), before.get(key)) {
            (Some(stored), Some(before)) => with_changes(stored, before, value),
            (Some(_) | None, _) => value.clone(),
        };
        changed.insert(key.clone(), value);
    }
    Value::Object(changed)
}

/// The stored specification, as an annotation. Where there is no room for it, the note says so, and what is written back is refused, or
/// written anew if it was written in v1alpha1.
fn note_bounded(object: &mut Value, stored: &Value) {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let sizes = annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    let room = MOST_BYTES.saturating_sub(sizes.sum::<usize>() + STORED_SPEC.len());
    let too_large = Value::from("too large");
    if let Some(noted) = [stored, &too_large].into_iter().find(|value| value.to_string().len() <= room) {
        note(object, STORED_SPEC, noted);
    }
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

/// Takes it out again; null is one that cannot be read.
fn take(object: &mut Value, key: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    let text = text?;
    Some(text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
}
