//! Writing copies of instancetypes and preferences, and the specification that they stand for.

use garboard_api::VirtualMachine;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::{Context, ReconcileError, made_by_us, observed_versions, while_trying};
use crate::stores::Machines;
use crate::unread::{self, NamespacedName};

/// For messages: what is attempted here.
pub(in crate::vm) const ACTION: &str = "keep a copy of the instancetype or preference";

/// Makes a copy. One of the name that has another content is not of this object.
///
/// # Errors
/// The API server refused, or could not be reached; the name is taken.
pub(in crate::vm) async fn keep(context: &Context, copy: &ControllerRevision) -> Result<(), ReconcileError> {
    let NamespacedName { namespace, name } = NamespacedName::of(&copy.metadata)?;
    match unread::create(&context.client, namespace, &made_by_us(), copy).await {
        Ok(()) => return Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(while_trying(ACTION)(error)),
    }
    let copies: Api<ControllerRevision> = Api::namespaced(context.client.clone(), namespace);
    let found = copies.get_opt(name).await.map_err(while_trying("read a copy of the instancetype or preference"))?;
    let spec = |copy: &ControllerRevision| copy.data.as_ref().map(|data| data.0["spec"].clone());
    match found {
        Some(found) if spec(&found) == spec(copy) => Ok(()),
        Some(_) => {
            // KubeVirt's text, by which its clients recognise the failure.
            let message = format!("found existing ControllerRevision with unexpected data: {name}; delete it");
            Err(ReconcileError::Refused { message })
        }
        // It has been deleted since.
        None => Err(ReconcileError::Overtaken),
    }
}

/// Writes the specification that the names stand for into the machine.
///
/// # Errors
/// The API server refused, or could not be reached; the machine was changed meanwhile.
pub(in crate::vm) async fn expand(context: &Context, vm: &VirtualMachine, spec: &Value) -> Result<(), ReconcileError> {
    let object = NamespacedName::of(&vm.metadata)?;
    let metadata = json!({ "resourceVersion": vm.metadata.resource_version, "annotations": observed_versions() });
    let patch = json!({ "metadata": metadata, "spec": spec });
    match unread::patch::<Machines>(&context.client, object, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the instancetype into the machine")(error)),
    }
}

/// Deletes a copy that nothing names any more. One that stays goes with its machine.
pub(in crate::vm) async fn drop_copy(context: &Context, vm: &VirtualMachine, name: &str) {
    let Some(namespace) = vm.metadata.namespace.as_deref() else { return };
    let copies: Api<ControllerRevision> = Api::namespaced(context.client.clone(), namespace);
    // The right to delete many is the only one that there is.
    let this = ListParams::default().fields(&format!("metadata.name={name}"));
    if let Err(error) = copies.delete_collection(&DeleteParams::default(), &this).await {
        tracing::warn!(%error, copy = name, "a copy of an instancetype or preference could not be deleted");
    }
}
