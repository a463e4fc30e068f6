//! Doing what was decided about a VirtualMachineInstance. Every step may be repeated, and any may be the last.

use garboard_api::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, Resource};
use serde_json::json;

use super::decide::{Decision, Step};
use super::{Leader, fields, start, status};
use crate::context::{FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::vm::status::FAILED_CREATE;

pub(super) async fn apply(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
) -> Result<(), ReconcileError> {
    let context = &leader.context;
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vmi.metadata.name.as_deref().ok_or(missing("a name"))?;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
    for step in &decision.steps {
        if let Err(error) = take(leader, vmi, step, (namespace, name)).await {
            // What the API server refused is told in the status, for an event is soon forgotten; and once as an event.
            if let (Some((reason, what)), Some(sentence)) = (made_by(step), error.refusal()) {
                if !status::is_known(vmi, reason, sentence) {
                    let note = format!("could not make the {what}: {sentence}");
                    context.tell(&vmi.object_ref(&()), EventType::Warning, (reason, note)).await;
                }
                let told = status::without_pod_because(vmi, (reason, sentence), jiff::Timestamp::now());
                write(&instances, vmi, &told, name).await?;
            }
            return Err(error);
        }
    }
    write(&instances, vmi, decision, name).await?;
    if let Some((kind, reason, note)) = start::happening(decision) {
        context.tell(&vmi.object_ref(&()), kind, (reason, note)).await;
    }
    Ok(())
}

/// What a step makes, and the reason that is told where the API server refuses it.
fn made_by(step: &Step) -> Option<(&'static str, &'static str)> {
    match step {
        Step::CreatePod(_) => Some((FAILED_CREATE, "pod")),
        Step::CreateClaim(_) => Some(("FailedBackendStorageCreate", "claim")),
        Step::DeletePod { .. } | Step::TakeBackPod { .. } | Step::RemoveFinalizer { .. } | Step::Complain { .. } => {
            None
        }
    }
}

async fn take(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    step: &Step,
    (namespace, name): (&str, &str),
) -> Result<(), ReconcileError> {
    let (context, uid) = (&leader.context, vmi.metadata.uid.as_deref().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    match step {
        Step::CreateClaim(claim) => {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
            match claims.create(&made_by_us(), claim).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(while_trying("create the claim for the firmware's variables")(error)),
            }
        }
        Step::CreatePod(pod) => match pods.create(&made_by_us(), pod).await {
            Ok(_) => {
                leader.memory.made(uid, jiff::Timestamp::now());
                let made = format!("made the pod {}", pod.metadata.name.as_deref().unwrap_or_default());
                context.tell(&vmi.object_ref(&()), EventType::Normal, ("SuccessfulCreate", made)).await;
            }
            // It is this one: an answer was lost on the way, and the question was sent again.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                leader.memory.made(uid, jiff::Timestamp::now());
            }
            Err(error) => return Err(while_trying("create the launcher pod")(error)),
        },
        Step::DeletePod { name, uid } => {
            if delete(&pods, name, uid).await? {
                let note = format!("removes the pod {name}");
                context.tell(&vmi.object_ref(&()), EventType::Normal, ("SuccessfulDelete", note)).await;
            }
        }
        Step::TakeBackPod { name, uid: pod_uid, why } => {
            // First: what is not remembered would be taken for a pod that somebody removed.
            leader.memory.turned_away(uid);
            if delete(&pods, name, pod_uid).await? {
                let note = format!("the kubelet would not have the pod {name}, which is made again: {why}");
                context.tell(&vmi.object_ref(&()), EventType::Warning, (FAILED_CREATE, note)).await;
            }
        }
        Step::RemoveFinalizer { rest } => {
            let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
            leader.memory.forget(uid);
            let patch = json!({ "metadata": { "uid": vmi.metadata.uid, "finalizers": rest } });
            match instances.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("let the VirtualMachineInstance go")(error)),
            }
        }
        Step::Complain { reason, message } => {
            context.tell(&vmi.object_ref(&()), EventType::Warning, (reason, message.clone())).await;
        }
    }
    Ok(())
}

/// Deletes this very pod; tells whether it was there.
async fn delete(pods: &Api<Pod>, name: &str, uid: &str) -> Result<bool, ReconcileError> {
    let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    match pods.delete(name, &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(while_trying("delete the launcher pod")(error)),
    }
}

/// Status and labels in one write, if anything of them differs: applied as this controller's own, so that what the node
/// agent writes stays the agent's. While the controller speaks about the phase, the resource version makes the write fail
/// rather than take back what the agent wrote meanwhile; then the instance is looked at again.
async fn write(
    instances: &Api<VirtualMachineInstance>,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
    name: &str,
) -> Result<(), ReconcileError> {
    let labels = vmi.metadata.labels.clone().unwrap_or_default();
    let is_labelled = decision.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
    let before = vmi.status.clone().unwrap_or_default();
    let gone = decision.steps.iter().any(|step| matches!(step, Step::RemoveFinalizer { .. }));
    if decision.is_reported {
        return write_report(instances, vmi, decision, name).await;
    }
    let voice = fields::voice(&before, &decision.status);
    if gone || (is_labelled && fields::ours(&before, voice) == fields::ours(&decision.status, voice)) {
        return Ok(());
    }
    let mut metadata = json!({ "uid": vmi.metadata.uid, "labels": decision.labels });
    if voice == fields::Voice::Phase {
        metadata["resourceVersion"] = json!(vmi.metadata.resource_version);
    }
    let applied = json!({
        "apiVersion": garboard_api::v1::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "status": fields::ours(&decision.status, voice),
    });
    settled(instances.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(applied)).await)
}

/// What a launcher reported through its pod, and where it runs, in one write. It is merged and not applied: what is applied
/// once is taken away again by the next apply that leaves it out, and from now on this is the node agent's to say.
async fn write_report(
    instances: &Api<VirtualMachineInstance>,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
    name: &str,
) -> Result<(), ReconcileError> {
    let json = |status: &_| serde_json::to_value(status).unwrap_or_default();
    let before = vmi.status.as_ref().map_or_else(|| json!({}), json);
    let Some(changes) = garboard_api::merge::patch(&before, &json(&decision.status)) else { return Ok(()) };
    let metadata = json!({
        "uid": vmi.metadata.uid,
        "resourceVersion": vmi.metadata.resource_version,
        "labels": decision.labels,
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let merged = json!({ "metadata": metadata, "status": changes });
    settled(instances.patch(name, &params, &Patch::Merge(merged)).await)
}

fn settled(written: kube::Result<VirtualMachineInstance>) -> Result<(), ReconcileError> {
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachineInstance")(error)),
    }
}
