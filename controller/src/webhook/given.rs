//! What presets give an instance that is created, before it is judged. Pure.

use garboard_api::metadata::annotation;
use garboard_api::preset::{self, Overridden, PresetConflict};
use garboard_api::{Fault, FaultCode, FieldPath, VirtualMachineInstance, merge};
use kube::core::admission::Operation;
use serde_json::Value;

use super::{AdmissionContext, Request};

/// The longest list of presets that an annotation gets, in characters.
const LONGEST: usize = 1000;

/// A manifest with what presets give it.
pub(super) struct Given {
    /// The manifest.
    pub(super) manifest: Value,
    /// What they do not give, because the instance has its own.
    pub(super) warnings: Vec<Fault>,
}

/// Gives a new instance its parts of presets; every other manifest is as it was. So is one that cannot be read, which is refused
/// afterwards.
///
/// # Errors
/// Two presets do not agree.
pub(super) fn with_presets(
    manifest: &Value,
    request: &Request,
    context: &AdmissionContext<'_>,
) -> Result<Given, Box<Fault>> {
    let as_it_was = || Given { manifest: manifest.clone(), warnings: Vec::new() };
    let is_new = request.operation == Operation::Create && request.kind.kind == "VirtualMachineInstance";
    if !is_new || (context.presets.is_empty() && written(manifest).is_none()) {
        return Ok(as_it_was());
    }
    let Ok(mut vmi) = serde_json::from_value::<VirtualMachineInstance>(manifest.clone()) else {
        return Ok(as_it_was());
    };
    let before = serde_json::to_value(&vmi).unwrap_or_default();
    // Only what is found here is an event later on.
    vmi.metadata.annotations.iter_mut().for_each(|all| drop(all.remove(annotation::PRESETS_OVERRIDDEN)));
    let overridden = preset::apply(&mut vmi, context.presets).map_err(|conflict| Box::new(disagree(&conflict)))?;
    if !overridden.is_empty() {
        let list = overridden.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let list = list.chars().take(LONGEST).collect();
        vmi.metadata.annotations.get_or_insert_default().insert(annotation::PRESETS_OVERRIDDEN.to_owned(), list);
    }
    let mut after = manifest.clone();
    if let Some(changes) = merge::patch(&before, &serde_json::to_value(&vmi).unwrap_or_default()) {
        json_patch::merge(&mut after, &changes);
    }
    Ok(Given { manifest: after, warnings: overridden.iter().map(warning).collect() })
}

fn written(manifest: &Value) -> Option<&Value> {
    manifest["metadata"]["annotations"].get(annotation::PRESETS_OVERRIDDEN)
}

fn disagree(conflict: &PresetConflict) -> Fault {
    let advice =
        format!("change one of them, or annotate the instance with `{}: \"true\"`", annotation::EXCLUDE_PRESETS);
    Fault::new(FieldPath::from("metadata.labels"), FaultCode::Invalid, conflict.to_string()).instead(advice)
}

fn warning(overridden: &Overridden) -> Fault {
    let Overridden { preset, parts } = overridden;
    let message = format!("the instance has its own {parts} and does not get that of the preset {preset}");
    Fault::new(FieldPath::from("spec.domain"), FaultCode::Invalid, message).instead("remove one of them")
}
