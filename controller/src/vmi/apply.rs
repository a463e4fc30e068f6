//! Doing what was decided about a VirtualMachineInstance. Every step may be repeated, and any may be the last.

use garboard_api::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, Resource};
use serde_json::json;

use super::decide::{Decision, Step};
use super::{fields, status};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::vm::status::FAILED_CREATE;

pub(super) async fn apply(
    context: &Context,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
) -> Result<(), ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vmi.metadata.name.as_deref().ok_or(missing("a name"))?;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
    for step in &decision.steps {
        if let Err(error) = take(context, vmi, step, (namespace, name)).await {
            // What the API server refused is told in the status, for an event is soon forgotten; and once as an event.
            if let (Step::CreatePod(_), Some(sentence)) = (step, error.refusal()) {
                if !status::is_known(vmi, FAILED_CREATE, sentence) {
                    let note = format!("could not make the pod: {sentence}");
                    context.tell(&vmi.object_ref(&()), EventType::Warning, (FAILED_CREATE, note)).await;
                }
                let told = status::without_pod_because(vmi, sentence, jiff::Timestamp::now());
                write(&instances, vmi, &told, name).await?;
            }
            return Err(error);
        }
    }
    write(&instances, vmi, decision, name).await
}

async fn take(
    context: &Context,
    vmi: &VirtualMachineInstance,
    step: &Step,
    (namespace, name): (&str, &str),
) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    match step {
        Step::CreatePod(pod) => match pods.create(&made_by_us(), pod).await {
            Ok(_) => {
                let made = format!("made the pod {}", pod.metadata.name.as_deref().unwrap_or_default());
                context.tell(&vmi.object_ref(&()), EventType::Normal, ("SuccessfulCreate", made)).await;
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(while_trying("create the launcher pod")(error)),
        },
        Step::DeletePod { name, uid } => {
            let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
            match pods.delete(name, &params).await {
                Ok(_) => {
                    context
                        .tell(
                            &vmi.object_ref(&()),
                            EventType::Normal,
                            ("SuccessfulDelete", format!("removes the pod {name}")),
                        )
                        .await
                }
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("delete the launcher pod")(error)),
            }
        }
        Step::RemoveFinalizer { rest } => {
            let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
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
    match instances.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(applied)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachineInstance")(error)),
    }
}
