//! v1alpha2: a disk names its volume by `volumeName`, and has a name of its own; a container disk may be called `registryDisk`; the status
//! of a machine names its instance.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::WRITTEN_AS_V1ALPHA2;

const DISKS: &str = "/domain/devices/disks";
const VOLUME_NAME: &str = "volumeName";
const REGISTRY_DISK: &str = "registryDisk";
const CONTAINER_DISK: &str = "containerDisk";

/// What v1 has no place for.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    /// By volume: the name of its disk, where it is another one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    disks: BTreeMap<String, String>,
    /// Volumes that were called `registryDisk`. Who writes v1 may write thousands into the annotation: each volume is looked up here.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    registry_disks: BTreeSet<String>,
}

/// Makes an object of v1alpha2 one of v1.
pub(super) fn to_stored(object: &mut Value) {
    let mut written = Written::default();
    if let Some(spec) = instance_spec(object) {
        for disk in items(spec, DISKS) {
            take_volume_name(disk, &mut written);
        }
        for volume in items(spec, "/volumes") {
            if rename(volume, REGISTRY_DISK, CONTAINER_DISK) {
                written.registry_disks.extend(name(volume));
            }
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("virtualMachine");
    }
    keep(object, &written);
}

/// Makes an object of v1 one of v1alpha2.
pub(super) fn from_stored(object: &mut Value) {
    let written = taken(object);
    if let Some(spec) = instance_spec(object) {
        for disk in items(spec, DISKS) {
            give_volume_name(disk, &written);
        }
        for volume in items(spec, "/volumes") {
            if name(volume).is_some_and(|name| written.registry_disks.contains(&name)) {
                rename(volume, CONTAINER_DISK, REGISTRY_DISK);
            }
        }
    }
    let is_machine = object["kind"] == "VirtualMachine";
    let name = object["metadata"]["name"].clone();
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        && is_machine
        && status.get("created") == Some(&Value::Bool(true))
    {
        status.insert("virtualMachine".to_owned(), name);
    }
}

/// The specification of an instance: of one, or of a machine's template.
fn instance_spec(object: &mut Value) -> Option<&mut Value> {
    let path = if object["kind"] == "VirtualMachine" { "/spec/template/spec" } else { "/spec" };
    object.pointer_mut(path)
}

/// The objects of a list.
fn items<'a>(spec: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = spec.pointer_mut(path).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn name(item: &Map<String, Value>) -> Option<String> {
    item.get("name").and_then(Value::as_str).map(str::to_owned)
}

/// Renames a field that is there, at its place; not over one that is there too, which admission then names.
fn rename(item: &mut Map<String, Value>, from: &str, to: &str) -> bool {
    if !item.contains_key(from) || item.contains_key(to) {
        return false;
    }
    let fields = std::mem::take(item).into_iter();
    *item = fields.map(|(key, value)| (if key == from { to.to_owned() } else { key }, value)).collect();
    true
}

/// In v1 a disk has the name of its volume.
fn take_volume_name(disk: &mut Map<String, Value>, written: &mut Written) {
    let Some(volume) = disk.get(VOLUME_NAME).and_then(Value::as_str).map(str::to_owned) else { return };
    disk.remove(VOLUME_NAME);
    if let Some(own) = name(disk).filter(|own| *own != volume) {
        written.disks.insert(volume.clone(), own);
    }
    disk.insert("name".to_owned(), volume.into());
}

fn give_volume_name(disk: &mut Map<String, Value>, written: &Written) {
    let Some(volume) = name(disk) else { return };
    let own = written.disks.get(&volume).unwrap_or(&volume).clone();
    disk.insert("name".to_owned(), own.into());
    disk.insert(VOLUME_NAME.to_owned(), volume.into());
}

/// Notes what v1 has no place for; what a client sends under the annotation's name is not kept.
fn keep(object: &mut Value, written: &Written) {
    let _ = taken(object);
    if *written == Written::default() {
        return;
    }
    let Ok(text) = serde_json::to_string(written) else { return };
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(WRITTEN_AS_V1ALPHA2.to_owned(), text.into());
    }
}

/// Takes the note away; nothing of one that cannot be read.
fn taken(object: &mut Value) -> Written {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return Written::default() };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return Written::default();
    };
    let text = annotations.remove(WRITTEN_AS_V1ALPHA2);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    text.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
