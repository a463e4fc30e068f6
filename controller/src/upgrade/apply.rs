//! Doing what was decided about supervisors of running pods. Every step may be repeated, and any may be the last.

use garboard_api::metadata::label;
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::decide::Decision;
use super::names::{FIRST_PAUSE, LAUNCHERS_UPDATED, OUTDATED_LAUNCHER, STOPPED, UPDATED};
use super::world::{Launcher, Memory, Step, Stop, Told, World};
use crate::context::{Context, FIELD_MANAGER};
use crate::events::NewEvent;
use crate::stores::{Installations, Instances};
use crate::time::stamp;
use crate::unread::{self, NamespacedName};

/// Labels and conditions are applied under a name of their own, so that they go again without anything else.
const MANAGER: &str = "garboard-controller-upgrade";

/// Takes the steps, and answers with what is to be remembered.
pub(super) async fn apply(context: &Context, world: &World, decision: Decision) -> Memory {
    let mut memory = decision.memory;
    for step in &decision.steps {
        if let Err(error) = take(context, world, step).await {
            refused(world, step, &error, &mut memory);
        }
    }
    memory
}

/// What could not be done is tried again in the next round; a pod that cannot be changed stops the roll-out, for the next one
/// could not be changed either.
fn refused(world: &World, step: &Step, error: &kube::Error, memory: &mut Memory) {
    tracing::warn!(error = %ErrorChain(error), ?step, "a step of the launchers' update failed; tried again");
    match step {
        Step::Mark { pod_uid, .. } => drop(memory.marked.remove(pod_uid)),
        Step::SetImage { pod_uid, image } if *image == world.wanted => {
            memory.underway.remove(pod_uid);
            let launcher = world.launchers.get(pod_uid);
            let is_gone = matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict());
            let Some(launcher) = launcher.filter(|_| !is_gone) else { return };
            memory.stop = Some(Stop {
                pod_uid: pod_uid.clone(),
                instance: format!("{}/{}", launcher.namespace, launcher.instance),
                why: format!("the image of the sidecar could not be set: {}", ErrorChain(error)),
                again_at: world.now.checked_add(FIRST_PAUSE).unwrap_or(jiff::Timestamp::MAX),
                failures: 1,
            });
        }
        Step::TellAll { .. } => memory.told_at = None,
        // An image that is put back is decided about again for as long as the pod does not show it.
        Step::SetImage { .. } | Step::Unmark { .. } | Step::Tell { .. } => {}
    }
}

async fn take(context: &Context, world: &World, step: &Step) -> kube::Result<()> {
    let launcher = |uid: &str| world.launchers.get(uid);
    match step {
        Step::Mark { pod_uid, reason, message } => match launcher(pod_uid) {
            Some(launcher) => mark(context, world, launcher, Some((reason, message))).await,
            None => Ok(()),
        },
        Step::Unmark { pod_uid } => match launcher(pod_uid) {
            Some(launcher) => mark(context, world, launcher, None).await,
            None => Ok(()),
        },
        Step::SetImage { pod_uid, image } => match launcher(pod_uid) {
            Some(launcher) => set_image(context, launcher, image).await,
            None => Ok(()),
        },
        Step::Tell { pod_uid, reason, note } => {
            let kind = if *reason == UPDATED { EventType::Normal } else { EventType::Warning };
            if let Some(launcher) = launcher(pod_uid) {
                context.tell(&instance(launcher), NewEvent { kind, reason, note: note.clone() });
            }
            Ok(())
        }
        Step::TellAll { told, is_alarm } => tell_all(context, world, told.as_ref(), *is_alarm).await,
    }
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

/// Only this container of this very pod: `compute` and the other containers are not in the patch.
async fn set_image(context: &Context, launcher: &Launcher, image: &str) -> kube::Result<()> {
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
    let stored = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let stored = stored.into_iter().find(|each| each.name == "launcher").and_then(|each| each.image.clone());
    if stored.as_deref() == Some(image) {
        return Ok(());
    }
    // It would be outdated for ever.
    let stored = stored.unwrap_or_default();
    let sentence = format!("something changes images of pods: {image} was written, and {stored} is stored");
    Err(kube::Error::Service(sentence.into()))
}

/// Label and condition of an instance, or neither.
async fn mark(context: &Context, world: &World, launcher: &Launcher, why: Option<(&str, &String)>) -> kube::Result<()> {
    let mut applied = json!({
        "apiVersion": garboard_api::v1::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": {"uid": launcher.instance_uid},
    });
    if let Some((reason, message)) = why {
        applied["metadata"]["labels"] = json!({label::OUTDATED_LAUNCHER_IMAGE: ""});
        let since = stamp(world.now);
        applied["status"] = json!({"conditions": [{"type": OUTDATED_LAUNCHER, "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": since}]});
    }
    let place = NamespacedName { namespace: &launcher.namespace, name: &launcher.instance };
    let params = PatchParams::apply(MANAGER).force();
    unless_gone(unread::patch::<Instances>(&context.client, place, &params, &Patch::Apply(applied)).await)
}

/// Condition and number of the KubeVirt object that counts, or neither.
async fn tell_all(context: &Context, world: &World, told: Option<&Told>, is_alarm: bool) -> kube::Result<()> {
    let Some(object) = context.settings.borrow().object.clone() else { return Ok(()) };
    let (Some(namespace), Some(name)) = (&object.metadata.namespace, &object.metadata.name) else { return Ok(()) };
    let mut applied: Value = json!({"apiVersion": garboard_api::v1::API_VERSION, "kind": "KubeVirt",
        "metadata": {"uid": object.metadata.uid}});
    if let Some(told) = told {
        let known = object.status.iter().flat_map(|status| &status.conditions);
        let since = known.into_iter().find(|each| each.r#type == LAUNCHERS_UPDATED);
        let since = since.and_then(|each| each.last_transition_time.clone()).unwrap_or_else(|| stamp(world.now));
        applied["status"] = json!({
            "outdatedVirtualMachineInstanceWorkloads": told.outdated,
            "conditions": [{"type": LAUNCHERS_UPDATED, "status": "False", "reason": told.reason,
                "message": told.message, "lastTransitionTime": since}],
        });
        if is_alarm {
            let event = NewEvent { kind: EventType::Warning, reason: STOPPED, note: told.message.clone() };
            context.tell(&object.object_ref(&()), event);
        }
    }
    let params = PatchParams::apply(MANAGER).force();
    let place = NamespacedName { namespace, name };
    unless_gone(unread::patch_status::<Installations>(&context.client, place, &params, &Patch::Apply(applied)).await)
}

fn unless_gone(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other,
    }
}
