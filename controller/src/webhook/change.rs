//! What of an object may change, and by whom. Pure.

use std::collections::BTreeMap;

use garboard_api::metadata::label;
use garboard_api::validate::{RESERVED_LABELS, verbosity_fault};
use garboard_api::{Fault, FaultCode, FieldPath, selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::DynamicObject;
use serde_json::Value;

use super::{Request, Writer};

/// Why a change is refused.
pub(super) enum Denial {
    /// What is asked is wrong.
    Fault(Box<Fault>),
    /// Who asks may not.
    Forbidden(&'static str),
}

/// An update that leaves specification and labels alone.
pub(super) fn is_of_metadata_only(request: &Request) -> bool {
    let part = |object: &DynamicObject| (object.data.get("spec").cloned(), object.metadata.labels.clone());
    match (&request.object, &request.old_object) {
        (Some(new), Some(old)) => part(new) == part(old),
        _ => false,
    }
}

/// The time that a guest has to shut down.
const GRACE: &str = "terminationGracePeriodSeconds";

/// An instance is what its guest was started with: its specification does not change, except that the controller may give it
/// another time to shut down, as a stop asks for. Its status is Garboard's.
pub(super) fn of_instance(old: &DynamicObject, new: &DynamicObject, writer: Writer) -> Result<(), Denial> {
    let (before, after) = (old.data.get("spec"), new.data.get("spec"));
    let judged = if writer == Writer::Controller { with_time_of(before, after) } else { after.cloned() };
    if let Some(path) = difference(before, judged.as_ref(), FieldPath::from("spec")) {
        let fault = Fault::new(path, FaultCode::Invalid, "a machine that runs keeps what it was started with");
        let advice = "change the VirtualMachine it was made from, and restart that";
        return Err(Denial::Fault(Box::new(fault.instead(advice))));
    }
    if writer != Writer::Other {
        return Ok(());
    }
    if old.data.get("status") != new.data.get("status") {
        return Err(Denial::Forbidden("the status of a VirtualMachineInstance is written by Garboard alone"));
    }
    let (before, after) = (old.metadata.labels.as_ref(), new.metadata.labels.as_ref());
    let value =
        |labels: Option<&BTreeMap<String, String>>, key: &str| labels.and_then(|labels| labels.get(key).cloned());
    let taken = RESERVED_LABELS.iter().find(|key| value(before, key) != value(after, key)).map(|key| reserved(key));
    let is_new = value(before, label::LOG_VERBOSITY) != value(after, label::LOG_VERBOSITY);
    let wrong = verbosity_fault(after, &FieldPath::from("metadata.labels")).filter(|_| is_new);
    let fault = taken.or(wrong);
    fault.map_or(Ok(()), |fault| Err(Denial::Fault(Box::new(fault))))
}

/// A pool recognises its machines by its selector, which therefore never changes.
pub(super) fn of_selector(request: &Request) -> Option<Fault> {
    let (new, old) = (request.object.as_ref()?, request.old_object.as_ref()?);
    if request.kind.kind != "VirtualMachinePool" {
        return None;
    }
    let of = |pool: &DynamicObject| {
        let written = pool.data.get("spec").and_then(|spec| spec.get("selector")).cloned().unwrap_or_default();
        serde_json::from_value::<LabelSelector>(written).ok().map(|selector| selector::text(&selector))
    };
    // What was stored while no webhook judged may be unreadable; it may still be corrected.
    let before = of(old)?;
    if of(new).is_some_and(|now| now == before) {
        return None;
    }
    let fault =
        Fault::new(FieldPath::from("spec.selector"), FaultCode::Invalid, "the selector of a pool never changes");
    Some(fault.instead("make another pool"))
}

/// The specification after a change, with the time of before if it has one.
fn with_time_of(before: Option<&Value>, after: Option<&Value>) -> Option<Value> {
    let written = |spec: Option<&Value>| spec.and_then(|spec| spec.get(GRACE)).cloned();
    let is_a_time = written(after).and_then(|seconds| seconds.as_i64()).is_some_and(|seconds| seconds >= 0);
    let mut judged = after.cloned()?;
    if let Some(fields) = judged.as_object_mut().filter(|_| is_a_time) {
        match written(before) {
            Some(own) => drop(fields.insert(GRACE.to_owned(), own)),
            None => drop(fields.remove(GRACE)),
        }
    }
    Some(judged)
}

fn reserved(key: &str) -> Fault {
    let path = FieldPath::from("metadata.labels").key(key);
    Fault::new(path, FaultCode::NotSupported, "this label is written by Garboard alone").instead("leave it as it is")
}

/// The place of the first difference.
fn difference(old: Option<&Value>, new: Option<&Value>, at: FieldPath) -> Option<FieldPath> {
    match (old, new) {
        (old, new) if old == new => None,
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
            keys.into_iter().find_map(|key| difference(old.get(key), new.get(key), at.child(key)))
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            (0..old.len().max(new.len())).find_map(|index| difference(old.get(index), new.get(index), at.index(index)))
        }
        _ => Some(at),
    }
}
