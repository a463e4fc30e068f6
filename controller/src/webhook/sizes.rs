//! Instancetypes and preferences in admission: what is asked of the API server before a machine is judged, and what of their names may
//! change. A machine that names neither costs no request.

use std::time::Duration;

use garboard_api::instancetype::{Matcher, Role, Sizing, infer as inference};
use garboard_api::{Fault, FaultCode, FieldPath, VirtualMachine, merge};
use garboard_protocol::causes::ErrorChain;
use kube::Client;
use kube::core::DynamicObject;
use serde_json::Value;

use super::Request;
use super::change::is_of_metadata_only;
use crate::sizes;

/// How long the API server may take for all of it: its own request waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the instancetype and the preference of the machine that is judged.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Both, as far as they were found.
    pub sizing: Sizing,
    /// What labels of volumes write into the machine, as a merge patch.
    pub inferred: Option<Value>,
    /// Why a name cannot be inferred.
    pub fault: Option<Fault>,
}

/// Looks for what a machine names.
pub(super) async fn prepare(client: &Client, request: &Request) -> Sizes {
    let Some(vm) = named(request) else { return Sizes::default() };
    match tokio::time::timeout(PATIENCE, asked(client, vm.clone())).await {
        Ok(Ok(sizes)) => sizes,
        Ok(Err(error)) => unknown(&vm, &ErrorChain(&error).to_string()),
        Err(_) => unknown(&vm, "the API server did not answer in time"),
    }
}

async fn asked(client: &Client, mut vm: VirtualMachine) -> kube::Result<Sizes> {
    let before = serde_json::to_value(&vm).unwrap_or_default();
    if let Err(fault) = sizes::infer(client, &mut vm).await? {
        return Ok(Sizes { fault: Some(fault), ..Sizes::default() });
    }
    let inferred = merge::patch(&before, &serde_json::to_value(&vm).unwrap_or_default());
    let (sizing, _) = sizes::find(client, &vm).await?;
    Ok(Sizes { sizing, inferred, fault: None })
}

/// An object that cannot be looked for now is as one that does not exist: the machine is taken, and sized when it starts. A name that
/// cannot be inferred now cannot be later.
fn unknown(vm: &VirtualMachine, why: &str) -> Sizes {
    let due = Role::BOTH.into_iter().find_map(|role| inference::is_due(vm, role));
    if let Some(matcher) = due {
        let message = format!("the {} cannot be inferred: {why}", matcher.role.field());
        let fault = Fault::new(matcher.path().child("inferFromVolume"), FaultCode::NotFound, message);
        return Sizes { fault: Some(fault.instead("try it again, or write `name`")), ..Sizes::default() };
    }
    let missing = Role::BOTH.into_iter().filter_map(|role| Matcher::of(vm, role)).map(|matcher| {
        let message = format!("{} could not be looked for: {why}", matcher.shown());
        Fault::new(matcher.path(), FaultCode::NotFound, message)
    });
    Sizes { sizing: Sizing { missing: missing.collect(), ..Sizing::default() }, ..Sizes::default() }
}

/// The machine of a request, if it names one of the two and is judged at all.
fn named(request: &Request) -> Option<VirtualMachine> {
    let object = request.object.as_ref().filter(|_| request.kind.kind == "VirtualMachine")?;
    let names = Role::BOTH.iter().any(|role| !object.data["spec"][role.field()].is_null());
    if !names || object.metadata.deletion_timestamp.is_some() || is_of_metadata_only(request) {
        return None;
    }
    let mut vm: VirtualMachine = serde_json::from_value(serde_json::to_value(object).ok()?).ok()?;
    // Of a new object the API server may fill it in later.
    vm.metadata.namespace = vm.metadata.namespace.or_else(|| request.namespace.clone());
    Some(vm)
}

/// A revision is of the object that is named: another name needs another one, or none. Machines of a pool would be refused it, so that
/// the pool is.
pub(super) fn renamed(request: &Request) -> Vec<Fault> {
    let (Some(new), Some(old)) = (&request.object, &request.old_object) else { return Vec::new() };
    let place = if request.kind.kind == "VirtualMachinePool" { "spec.virtualMachineTemplate.spec" } else { "spec" };
    let named = |object: &DynamicObject, role: Role| -> Value {
        let spec = object.data.pointer(&format!("/{}", place.replace('.', "/")));
        spec.map(|spec| spec[role.field()].clone()).unwrap_or_default()
    };
    let keeps = |role: &Role| {
        let (new, old) = (named(new, *role), named(old, *role));
        let text = |matcher: &Value, field: &str| matcher[field].as_str().unwrap_or_default().to_owned();
        let revision = text(&new, "revisionName");
        !revision.is_empty()
            && !old.is_null()
            && revision == text(&old, "revisionName")
            && text(&new, "name") != text(&old, "name")
    };
    let fault = |role: Role| {
        let path = FieldPath::from(place).child(role.field()).child("revisionName");
        Fault::new(path, FaultCode::Invalid, "this is a revision of the object that was named before")
            .instead("remove it, or write a revision of the one that is named now")
    };
    Role::BOTH.into_iter().filter(keeps).map(fault).collect()
}
