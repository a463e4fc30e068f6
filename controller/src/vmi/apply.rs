//! Doing what was decided about a VirtualMachineInstance. Every step may be repeated, and any may be the last.

use garboard_api::VirtualMachineInstance;
use garboard_api::conditions::Reason;
use garboard_api::metadata::annotation;
use garboard_protocol::text::printable;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::json;

use super::decide::{Decision, Step, World};
use super::{fields, leaving, out_of_memory, start, status};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, is_refusal, made_by_us, observed_versions, while_trying};
use crate::events::{EventReason, NewEvent};
use crate::reconcilers::Leader;
use crate::stores::{Cached, Instances, Pods};
use crate::unread::{self, NamespacedName};

/// The most characters that an event has of a list of presets.
const LONGEST_LIST: usize = 900;
const CREATE_CLAIM: &str = "create the claim for the firmware's variables";

pub(super) async fn apply(leader: &Leader, world: &World, decision: &Decision) -> Result<(), ReconcileError> {
    let (context, vmi) = (&leader.context, &world.vmi);
    let object = NamespacedName::of(&vmi.metadata)?;
    record_end(leader, vmi, leaving::ended(vmi));
    let (of_pod, steps): (Vec<_>, Vec<_>) =
        decision.steps.iter().partition(|step| matches!(step, Step::AnnotatePod { .. }));
    for step in steps {
        if let Err(error) = take(leader, vmi, step, object).await {
            // What could not be done is written in the status, for an event is soon forgotten; and once as an event.
            if let (Some(failure), Some(message)) = (failure_of(step), error.message()) {
                if !status::is_known(vmi, failure.reason.name(), &message) {
                    let note = format!("could not {}: {message}", failure.action);
                    context.record(&vmi.object_ref(&()), NewEvent::warning(failure.reason, note));
                }
                let failed = status::because(world, failure.reason, message);
                write(&context.client, vmi, &failed, object).await?;
            }
            return Err(error);
        }
    }
    write(&context.client, vmi, decision, object).await?;
    let reported = start::events(vmi, decision).into_iter().map(|each| NewEvent {
        kind: each.kind,
        reason: EventReason::Of(each.reason),
        note: each.note,
    });
    for event in reported.chain(out_of_memory::event(vmi, decision)) {
        context.record(&vmi.object_ref(&()), event);
    }
    // Last: no report waits for a pod that cannot be written.
    for step in of_pod {
        take(leader, vmi, step, object).await?;
    }
    Ok(())
}

/// The report where a step fails.
struct Failure {
    /// KubeVirt's reason where it has one.
    reason: Reason,
    /// What could not be done.
    action: &'static str,
}

/// Has the end of an instance that is deleted written as an event, once.
fn record_end(leader: &Leader, vmi: &VirtualMachineInstance, end: Option<NewEvent>) {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    if let Some(event) = end
        && leader.histories.records_end(uid)
    {
        leader.context.record(&vmi.object_ref(&()), event);
    }
}

fn failure_of(step: &Step) -> Option<Failure> {
    let (reason, action) = match step {
        Step::CreatePod(_) => (Reason::FailedCreate, "create the launcher pod"),
        Step::CreateClaim(_) => (Reason::FailedBackendStorageCreate, CREATE_CLAIM),
        Step::DeletePod { .. } | Step::ReplaceRejectedPod { .. } => (Reason::FailedDelete, "remove the pod"),
        Step::RemoveFinalizer { .. } => (Reason::FailedDelete, "remove the finalizers of the instance"),
        // It runs as well without them.
        Step::AnnotatePod { .. } | Step::Warn { .. } => return None,
    };
    Some(Failure { reason, action })
}

/// That presets did not give the instance everything, which the webhook found.
fn overridden(vmi: &VirtualMachineInstance) -> Option<NewEvent> {
    let list = vmi.metadata.annotations.as_ref()?.get(annotation::PRESETS_OVERRIDDEN)?;
    let note =
        format!("the instance has its own parts and not those of its presets: {}", printable(list, LONGEST_LIST));
    Some(NewEvent::normal(Reason::Override, note))
}

async fn take(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    step: &Step,
    NamespacedName { namespace, name }: NamespacedName<'_>,
) -> Result<(), ReconcileError> {
    let (context, uid) = (&leader.context, vmi.metadata.uid.as_deref().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    match step {
        Step::CreateClaim(claim) => {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
            match claims.create(&made_by_us(), claim).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(while_trying(CREATE_CLAIM)(error)),
            }
        }
        Step::CreatePod(pod) => match unread::create(&context.client, namespace, &made_by_us(), pod.as_ref()).await {
            Ok(()) => {
                leader.histories.made(uid, jiff::Timestamp::now());
                let made = format!("created the pod {}", pod.metadata.name.as_deref().unwrap_or_default());
                let events = [Some(NewEvent::normal(Reason::SuccessfulCreate, made)), overridden(vmi)];
                events.into_iter().flatten().for_each(|event| context.record(&vmi.object_ref(&()), event));
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => is_this_one(leader, &pods, pod, uid).await?,
            Err(error) => return Err(while_trying("create the launcher pod")(error)),
        },
        Step::DeletePod { name, uid, grace_seconds } => {
            if delete(&pods, name, uid, *grace_seconds).await? {
                let note = format!("deleted the pod {name}");
                let events = [Some(NewEvent::normal(Reason::SuccessfulDelete, note)), leaving::shutting_down(vmi)];
                events.into_iter().flatten().for_each(|event| context.record(&vmi.object_ref(&()), event));
            }
        }
        Step::ReplaceRejectedPod { name, uid: pod_uid, why } => {
            // First: without it the pod would pass for one that a user removed.
            leader.histories.rejected(uid);
            if delete(&pods, name, pod_uid, None).await? {
                let note = format!("the kubelet rejected the pod {name}, and another one is created: {why}");
                context.record(&vmi.object_ref(&()), NewEvent::warning(Reason::FailedCreate, note));
            }
        }
        Step::AnnotatePod { name, uid, annotations } => {
            let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
            let object = NamespacedName { namespace, name };
            let written = unread::patch::<Pods>(&context.client, object, &ours(), &Patch::Merge(patch)).await;
            annotated(context, vmi, written)?;
        }
        Step::RemoveFinalizer { rest } => {
            let instances: Api<Cached<Instances>> = Api::namespaced(context.client.clone(), namespace);
            leader.histories.forget(uid);
            // The list is of this version: one that another program has removed since may not be added again.
            let version = &vmi.metadata.resource_version;
            let metadata = json!({ "uid": vmi.metadata.uid, "resourceVersion": version, "finalizers": rest });
            let patch = json!({ "metadata": metadata });
            match instances.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    record_end(leader, vmi, leaving::deleted(vmi));
                    leader.histories.forget_end(uid);
                    leader.runs_over.count(namespace, name);
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => leader.histories.forget_end(uid),
                Err(kube::Error::Api(status)) if status.is_conflict() => return Err(ReconcileError::Overtaken),
                Err(error) => return Err(while_trying("remove the finalizers of the VirtualMachineInstance")(error)),
            }
        }
        Step::Warn { reason, message } => {
            context.record(&vmi.object_ref(&()), NewEvent::warning(*reason, message.as_str()));
        }
    }
    Ok(())
}

/// An answer was lost on the way, and the question was sent again: then the pod of this name is this one. It may also belong
/// to another object.
async fn is_this_one(leader: &Leader, pods: &Api<Pod>, wanted: &Pod, uid: &str) -> Result<(), ReconcileError> {
    let name = wanted.metadata.name.as_deref().unwrap_or_default();
    let found = pods.get_opt(name).await.map_err(while_trying("get the launcher pod"))?;
    let Some(found) = found else { return Err(ReconcileError::Overtaken) };
    let mut owners = found.metadata.owner_references.iter().flatten();
    if !owners.any(|owner| owner.controller == Some(true) && owner.uid == uid) {
        let message = format!("there is a pod {name} that does not belong to this machine; delete it");
        return Err(ReconcileError::Refused { message });
    }
    leader.histories.made(uid, jiff::Timestamp::now());
    Ok(())
}

/// Deletes this very pod, with so many seconds or its own; returns whether it was there.
async fn delete(pods: &Api<Pod>, name: &str, uid: &str, grace_seconds: Option<i64>) -> Result<bool, ReconcileError> {
    let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let grace_period_seconds = grace_seconds.and_then(|seconds| u32::try_from(seconds).ok());
    let params = DeleteParams { preconditions: Some(only_this), grace_period_seconds, ..DeleteParams::default() };
    match pods.delete(name, &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(while_trying("delete the launcher pod")(error)),
    }
}

/// Status and labels in one write, if anything of them differs: applied as this controller's own, so that what the node
/// agent writes stays the agent's. While the phase is the controller's to write, the resource version makes the write fail
/// rather than take back what the agent wrote meanwhile; then the instance is looked at again.
async fn write(
    client: &Client,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
    object: NamespacedName<'_>,
) -> Result<(), ReconcileError> {
    let labels = vmi.metadata.labels.clone().unwrap_or_default();
    let is_labelled = decision.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
    let before = vmi.status.clone().unwrap_or_default();
    let gone = decision.steps.iter().any(|step| matches!(step, Step::RemoveFinalizer { .. }));
    if decision.is_reported {
        return write_report(client, vmi, decision, object).await;
    }
    let ownership = fields::ownership(&before, &decision.status);
    if gone || (is_labelled && fields::owned(&before, ownership) == fields::owned(&decision.status, ownership)) {
        return Ok(());
    }
    let mut metadata =
        json!({ "uid": vmi.metadata.uid, "labels": decision.labels, "annotations": observed_versions() });
    if ownership == fields::FieldOwnership::Phase {
        metadata["resourceVersion"] = json!(vmi.metadata.resource_version);
    }
    let applied = json!({
        "apiVersion": garboard_api::v1::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "status": fields::owned(&decision.status, ownership),
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    settled(unread::patch::<Instances>(client, object, &params, &Patch::Apply(applied)).await)
}

/// What a launcher reported through its pod, and where it runs, in one write. It is merged and not applied: what is applied
/// once is taken away again by the next apply that leaves it out, and from now on the node agent writes it.
async fn write_report(
    client: &Client,
    vmi: &VirtualMachineInstance,
    decision: &Decision,
    object: NamespacedName<'_>,
) -> Result<(), ReconcileError> {
    let json = |status: &_| serde_json::to_value(status).unwrap_or_default();
    let before = vmi.status.as_ref().map_or_else(|| json!({}), json);
    let Some(changes) = garboard_api::merge::patch(&before, &json(&decision.status)) else { return Ok(()) };
    let metadata = json!({
        "uid": vmi.metadata.uid,
        "resourceVersion": vmi.metadata.resource_version,
        "labels": decision.labels,
        "annotations": observed_versions(),
    });
    let merged = json!({ "metadata": metadata, "status": changes });
    settled(unread::patch::<Instances>(client, object, &ours(), &Patch::Merge(merged)).await)
}

/// For what is merged.
fn ours() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// A refusal, perhaps of a policy of another release, is no reason to leave an instance alone that runs.
fn annotated(context: &Context, vmi: &VirtualMachineInstance, written: kube::Result<()>) -> Result<(), ReconcileError> {
    match written {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(kube::Error::Api(status)) if is_refusal(status.code) => {
            let note = format!("could not change the annotations of the pod for a descheduler: {}", status.message);
            context.record(&vmi.object_ref(&()), NewEvent::warning(Reason::FailedUpdate, note));
            Ok(())
        }
        Err(error) => Err(while_trying("change annotations of the launcher pod")(error)),
    }
}

fn settled(written: kube::Result<()>) -> Result<(), ReconcileError> {
    match written {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachineInstance")(error)),
    }
}
