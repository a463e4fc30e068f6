//! Doing what was decided about supervisors of running pods. Every step may be repeated, and any may be the last.

use garboard_api::conditions::{self, ConditionStatus, NewCondition, Reason};
use garboard_api::metadata::label;
use garboard_api::v1::{KubeVirtCondition, VirtualMachineInstanceCondition};
use garboard_cluster::names::UPGRADE_MANAGER;
use garboard_protocol::causes::ErrorChain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::decide::{Decision, stop};
use super::names::{LAUNCHERS_UPDATED, OUTDATED_LAUNCHER, STOPPED, UPDATED};
use super::world::{Launcher, Reported, RoundMemory, Step, World};
use crate::context::{Context, FIELD_MANAGER};
use crate::events::NewEvent;
use crate::stores::{Installations, Instances};
use crate::unread::{self, NamespacedName};

/// Takes the steps, and answers with what is to be remembered.
pub(super) async fn apply(context: &Context, world: &World, decision: Decision) -> RoundMemory {
    let mut memory = decision.memory;
    for step in &decision.steps {
        match take(context, world, step).await {
            Ok(None) => {}
            Ok(Some(stored)) => drop(memory.stored_as.insert(stored)),
            Err(error) => refused(world, step, &error, &mut memory),
        }
    }
    memory
}

/// What could not be done is tried again in the next round; a pod that cannot be changed stops the roll-out, for the next one
/// could not be changed either.
fn refused(world: &World, step: &Step, error: &kube::Error, memory: &mut RoundMemory) {
    let launcher = step.pod_uid().and_then(|uid| world.launchers.get(uid));
    tracing::warn!(
        step = step.name(),
        namespace = launcher.map(|each| each.namespace.as_str()),
        instance = launcher.map(|each| each.instance.as_str()),
        image = step.image(),
        error = %ErrorChain(error),
        "a step of the launchers' update failed; tried again"
    );
    match step {
        Step::Mark { pod_uid, .. } => drop(memory.marked.remove(pod_uid)),
        Step::SetImage { pod_uid, image } if *image == world.wanted => {
            memory.underway.remove(pod_uid);
            let is_gone = matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict());
            if let Some(launcher) = launcher.filter(|_| !is_gone) {
                let why = format!("the image of the sidecar could not be set: {}", ErrorChain(error));
                memory.stop = Some(stop(launcher, why, memory.stop.as_ref(), world.now));
            }
        }
        Step::Unmark { pod_uid } => drop(memory.done.remove(pod_uid)),
        Step::Report { .. } => memory.reported_at = None,
        // An image that is put back is remembered for as long as the pod does not show it, and written again now and then.
        Step::SetImage { .. } | Step::Event { .. } => {}
    }
}

/// Does it. What is stored where the wanted image was written is returned, if that is something else.
async fn take(context: &Context, world: &World, step: &Step) -> kube::Result<Option<String>> {
    let launcher = step.pod_uid().and_then(|uid| world.launchers.get(uid));
    match (step, launcher) {
        (Step::Mark { reason, message, .. }, Some(launcher)) => {
            mark(context, launcher, Some(outdated(world, launcher, *reason, message))).await?;
        }
        (Step::Unmark { .. }, Some(launcher)) => mark(context, launcher, None).await?,
        (Step::SetImage { image, .. }, Some(launcher)) => {
            let stored = set_image(context, launcher, image).await?;
            return taken(world, launcher, image, stored).map_err(|error| kube::Error::Service(Box::new(error)));
        }
        (Step::Event { reason, note, .. }, Some(launcher)) => {
            let (reason, note) = (*reason, note.as_str());
            let is_good = reason == UPDATED;
            let event = if is_good { NewEvent::normal(reason, note) } else { NewEvent::warning(reason, note) };
            context.record(&instance(launcher), event);
        }
        (Step::Report { reported, is_alarm }, _) => report(context, world, reported.as_ref(), *is_alarm).await?,
        (Step::Mark { .. } | Step::Unmark { .. } | Step::SetImage { .. } | Step::Event { .. }, None) => {}
    }
    Ok(None)
}

/// Why the image of a pod is not what was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stored {
    /// Something keeps the pod as it was.
    #[error("something changes images of pods: {written} was written, and {stored} is stored, as before")]
    AsBefore {
        /// What was written.
        written: String,
        /// What the pod has.
        stored: String,
    },
    /// The image before was to be had again.
    #[error("something changes images of pods: {written} was put back, and {stored} is stored")]
    NotPutBack {
        /// What was written.
        written: String,
        /// What the pod has.
        stored: String,
    },
}

/// What the API server made of an image. Where it stores another name for the wanted one, as with a webhook that names a mirror
/// of the registry, that name counts as the same.
pub(super) fn taken(
    world: &World,
    launcher: &Launcher,
    written: &str,
    stored: Option<String>,
) -> Result<Option<String>, Stored> {
    let Some(stored) = stored.filter(|stored| stored != written) else { return Ok(None) };
    let written = written.to_owned();
    if written != world.wanted {
        return Err(Stored::NotPutBack { written, stored });
    }
    // It would be outdated for ever.
    if stored == launcher.image { Err(Stored::AsBefore { written, stored }) } else { Ok(Some(stored)) }
}

fn instance(launcher: &Launcher) -> ObjectReference {
    ObjectReference {
        api_version: Some(garboard_api::v1::API_VERSION.to_owned()),
        kind: Some("VirtualMachineInstance".to_owned()),
        namespace: Some(launcher.namespace.clone()),
        name: Some(launcher.instance.clone()),
        uid: Some(launcher.instance_uid.clone()),
        ..ObjectReference::default()
    }
}

/// Only this container of this very pod: `compute` and the other containers are not in the patch. What is stored is returned.
async fn set_image(context: &Context, launcher: &Launcher, image: &str) -> kube::Result<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &launcher.namespace);
    let patch = json!({
        "metadata": {"uid": launcher.pod_uid},
        "spec": {"initContainers": [{"name": "launcher", "image": image}]},
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let pod = pods.patch(&launcher.pod, &params, &Patch::Strategic(patch)).await?;
    tracing::info!(
        namespace = launcher.namespace,
        instance = launcher.instance,
        node = launcher.node,
        before = launcher.image,
        image,
        "the supervisor's image is set"
    );
    let containers = pod.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
    Ok(containers.into_iter().find(|each| each.name == "launcher").and_then(|each| each.image))
}

/// The condition of an instance whose supervisor is outdated.
pub(super) fn outdated(
    world: &World,
    launcher: &Launcher,
    reason: Reason,
    message: &str,
) -> VirtualMachineInstanceCondition {
    let before = world.instances.get(&launcher.pod_uid).and_then(|view| view.condition.clone());
    conditions::made(&NewCondition::new(OUTDATED_LAUNCHER, true, reason, message), before.as_slice(), world.now)
}

/// Label and condition of an instance, or neither.
async fn mark(
    context: &Context,
    launcher: &Launcher,
    condition: Option<VirtualMachineInstanceCondition>,
) -> kube::Result<()> {
    let mut applied = json!({
        "apiVersion": garboard_api::v1::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": {"uid": launcher.instance_uid},
    });
    if let Some(condition) = condition {
        applied["metadata"]["labels"] = json!({label::OUTDATED_LAUNCHER_IMAGE: ""});
        applied["status"] = json!({"conditions": [condition]});
    }
    let place = NamespacedName { namespace: &launcher.namespace, name: &launcher.instance };
    let params = PatchParams::apply(UPGRADE_MANAGER).force();
    unless_gone(unread::patch::<Instances>(&context.client, place, &params, &Patch::Apply(applied)).await)
}

/// The condition of the KubeVirt object, after those that it has.
pub(super) fn updated(reported: &Reported, known: &[KubeVirtCondition], now: Timestamp) -> KubeVirtCondition {
    let new = NewCondition {
        kind: LAUNCHERS_UPDATED,
        status: ConditionStatus::False,
        reason: reported.reason.map_or("", Reason::name).into(),
        message: reported.message.as_str().into(),
    };
    conditions::made(&new, known, now)
}

/// Condition and number of the KubeVirt object that counts, or neither.
async fn report(context: &Context, world: &World, reported: Option<&Reported>, is_alarm: bool) -> kube::Result<()> {
    let Some(object) = context.settings.borrow().object.clone() else { return Ok(()) };
    let (Some(namespace), Some(name)) = (&object.metadata.namespace, &object.metadata.name) else { return Ok(()) };
    let mut applied: Value = json!({"apiVersion": garboard_api::v1::API_VERSION, "kind": "KubeVirt",
        "metadata": {"uid": object.metadata.uid}});
    if let Some(reported) = reported {
        let known = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        applied["status"] = json!({
            "outdatedVirtualMachineInstanceWorkloads": reported.outdated,
            "conditions": [updated(reported, known, world.now)],
        });
        if is_alarm {
            context.record(&object.object_ref(&()), NewEvent::warning(STOPPED, reported.message.as_str()));
        }
    }
    let params = PatchParams::apply(UPGRADE_MANAGER).force();
    let place = NamespacedName { namespace, name };
    unless_gone(unread::patch_status::<Installations>(&context.client, place, &params, &Patch::Apply(applied)).await)
}

fn unless_gone(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other,
    }
}
