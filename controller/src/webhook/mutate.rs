//! Filling in what an object leaves out. Pure.

use garboard_api::metadata::finalizer;
use garboard_api::v1::{Firmware, non_empty};
use garboard_api::validate::{Object, review_sized};
use garboard_api::{Fault, Identity, VirtualMachine, default_vm, default_vmi, instancetype, merge};
use garboard_plan::FirmwareIdentity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::admission::{AdmissionResponse, Operation};
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{refuse, warn};
use super::given::{Given, with_presets};
use super::{AdmissionContext, Request, kept, sizes, trace};

/// Answers a request of `/mutate`; `now` is when.
#[must_use]
pub fn mutate(request: &Request, context: &AdmissionContext<'_>, now: jiff::Timestamp) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    let Some(object) = &request.object else { return response };
    if object.metadata.deletion_timestamp.is_some() || is_untouched(request) {
        return response;
    }
    let original = serde_json::to_value(object).unwrap_or_default();
    if let Some(fault) = &context.sizes.fault {
        return refuse(response, std::slice::from_ref(fault));
    }
    let Given { manifest, warnings } = match with_presets(&original, request, context) {
        Ok(given) => given,
        Err(conflict) => return refuse(response, &[*conflict]),
    };
    let written = match &context.sizes.inferred {
        Some(names) => changed(&manifest, names),
        None => manifest,
    };
    let admission = review_sized(&written, context.config, &context.sizes.sizing);
    let mut faults = admission.faults;
    faults.extend(sizes::renamed(request));
    if !faults.is_empty() {
        let is_left = is_left_to_validation(request, &faults);
        return if is_left { response } else { warn(refuse(response, &faults), &admission.warnings) };
    }
    let written = spelled(written);
    let mut response = warn(response, &warnings);
    if matches!(admission.object, Some(Object::VirtualMachine(_))) {
        // The annotation is not in what is judged afterwards.
        response = warn(response, kept::warning(object).as_slice());
    }
    let changes = match admission.object {
        Some(Object::VirtualMachine(_)) => machine(&written, context, request),
        Some(Object::VirtualMachineInstance(_)) if request.operation == Operation::Create => {
            instance(&written, context, request, now)
        }
        Some(Object::ReplicaSet(set)) => Ok(replicas(&written, set.spec.replicas)),
        Some(Object::Pool(pool)) => Ok(replicas(&written, pool.spec.replicas)),
        Some(
            Object::VirtualMachineInstance(_)
            | Object::Preset(_)
            | Object::KubeVirt(_)
            | Object::Instancetype(_)
            | Object::Preference(_),
        )
        | None => Ok(None),
    };
    let filled = changes.map(|changes| changes.map_or_else(|| written.clone(), |changes| changed(&written, &changes)));
    match filled.map(|filled| trace::marked(filled, request, context)) {
        Ok(filled) if filled == original => response,
        Ok(filled) => {
            let patch = json_patch::diff(&original, &filled);
            response.with_patch(patch).unwrap_or_else(|error| AdmissionResponse::invalid(error.to_string()))
        }
        Err(error) => AdmissionResponse::invalid(format!("the object cannot be filled in: {error}")),
    }
}

/// KubeVirt's clients compare which webhook refuses a pool, too: `/validate`, which has the name of KubeVirt's, finds the same. The schema
/// between the two has nothing against what has such a text.
fn is_left_to_validation(request: &Request, faults: &[Fault]) -> bool {
    request.kind.kind == "VirtualMachinePool" && faults.iter().all(|fault| fault.sent.is_some())
}

/// An update that leaves the specification alone needs nothing: neither does one of the garbage collector's.
fn is_untouched(request: &Request) -> bool {
    let spec = |object: &kube::core::DynamicObject| object.data.get("spec").cloned();
    match (&request.object, &request.old_object) {
        (Some(new), Some(old)) => spec(new) == spec(old),
        _ => false,
    }
}

/// What defaults change, as a merge patch: what is compared is the typed object before and after, so that nothing the
/// types write otherwise counts as a change.
fn machine(written: &Value, context: &AdmissionContext<'_>, request: &Request) -> serde_json::Result<Option<Value>> {
    let mut vm: VirtualMachine = serde_json::from_value(written.clone())?;
    let before = serde_json::to_value(&vm)?;
    // Before the defaults of the cluster: what the preference prefers.
    if let Some(preference) = &context.sizes.sizing.preference {
        instancetype::settle(&mut vm, preference);
    }
    default_vm(&mut vm, context.config);
    // What was stored while no webhook judged may be unreadable; it may still be corrected.
    let old = request.old_object.as_ref().and_then(|old| serde_json::to_value(old).ok());
    let old: Option<VirtualMachine> = old.and_then(|old| serde_json::from_value(old).ok());
    let fresh = (request.operation == Operation::Create).then_some(context.fresh);
    let annotated = kept::settle(&mut vm);
    let known = match &old {
        Some(old) => known_of(old),
        None if fresh.is_some() => annotated,
        None => FirmwareIdentity::default(),
    };
    identify(&mut vm, known, fresh);
    let finalizers = vm.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|name| name == finalizer::CONTROLLER) {
        finalizers.push(finalizer::CONTROLLER.to_owned());
    }
    Ok(merge::patch(&before, &serde_json::to_value(&vm)?))
}

/// How a guest identifies its machine, as in KubeVirt: made up once for a new machine, and kept when a manifest without
/// it takes the place of the one before. A machine stored without gets what follows from its name ([`vmi_of`]).
///
/// [`vmi_of`]: garboard_api::vmi_of
fn identify(vm: &mut VirtualMachine, known: FirmwareIdentity, fresh: Option<Uuid>) {
    let (uuid, serial) = (fresh.map(|id| id.to_string()), fresh.map(|id| Uuid::new_v5(&id, b"serial").to_string()));
    let domain = &mut vm.spec.template.spec.get_or_insert_default().domain;
    let written = domain.firmware.clone().unwrap_or_default();
    let uuid = non_empty(&written.uuid).map(str::to_owned).or(known.uuid).or(uuid);
    let serial = non_empty(&written.serial).map(str::to_owned).or(known.serial).or(serial);
    if uuid.is_some() || serial.is_some() {
        domain.firmware = Some(Firmware { uuid, serial, ..written });
    }
}

/// What the firmware of a stored machine is named by.
fn known_of(old: &VirtualMachine) -> FirmwareIdentity {
    let firmware = old.spec.template.spec.as_ref().and_then(|spec| spec.domain.firmware.clone()).unwrap_or_default();
    FirmwareIdentity { uuid: firmware.uuid, serial: firmware.serial }
}

fn instance(
    written: &Value,
    context: &AdmissionContext<'_>,
    request: &Request,
    now: jiff::Timestamp,
) -> serde_json::Result<Option<Value>> {
    let mut vmi: garboard_api::VirtualMachineInstance = serde_json::from_value(written.clone())?;
    let before = serde_json::to_value(&vmi)?;
    // The client that makes an instance has no state of it; the controller has that of an earlier one, and what it starts.
    let known = vmi.status.take().filter(|_| context.is_ours(request)).unwrap_or_default();
    default_vmi(&mut vmi, context.config, &Identity { firmware_uuid: context.fresh });
    let status = vmi.status.get_or_insert_default();
    status.stored_machine = known.stored_machine;
    status.virtual_machine_revision_name = known.virtual_machine_revision_name;
    let transitions = vmi.status.iter_mut().flat_map(|status| &mut status.phase_transition_timestamps);
    for transition in transitions {
        transition.phase_transition_timestamp.get_or_insert(Time(now));
    }
    Ok(merge::patch(&before, &serde_json::to_value(&vmi)?))
}

/// How many instances a set has, or machines a pool, that does not say it: `kubectl scale` and autoscalers need a number to begin with.
fn replicas(written: &Value, number: Option<i32>) -> Option<Value> {
    let is_written = written.pointer("/spec/replicas").is_some_and(|replicas| !replicas.is_null());
    (!is_written).then(|| json!({ "spec": { "replicas": number } }))
}

/// The specification with its fractions as texts, as KubeVirt writes them: all are quantities, and the schema, which judges afterwards what is
/// filled in here, takes a quantity that is a text or a whole number, and not `cpu: 1.5`. The settings of a cluster have other fractions.
fn spelled(mut written: Value) -> Value {
    let is_settings = written["kind"] == "KubeVirt";
    if let Some(spec) = written.get_mut("spec").filter(|_| !is_settings) {
        spell(spec);
    }
    written
}

fn spell(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() != 0.0) => {
            *value = Value::String(number.to_string());
        }
        Value::Array(items) => items.iter_mut().for_each(spell),
        Value::Object(fields) => fields.values_mut().for_each(spell),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// RFC 7396.
fn changed(written: &Value, changes: &Value) -> Value {
    let mut after = written.clone();
    json_patch::merge(&mut after, changes);
    after
}
