//! Doing what was decided about a VirtualMachineInstanceReplicaSet. Every step may be repeated, and any may be the last.

use futures::future::join_all;
use garboard_api::conditions::Reason;
use garboard_api::v1::VirtualMachineInstanceReplicaSetStatus;
use garboard_api::{VirtualMachineInstanceReplicaSet, set};
use kube::Api;
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::decide::{Claim, Decision, Victim, World};
use super::status;
use crate::context::{Context, FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::events::NewEvent;
use crate::requests::{batches, change_owners, first_failure};
use crate::stores::{Cached, Instances, ReplicaSets};
use crate::unread::{self, NamespacedName};

/// Of the event about an instance that is replaced.
const OVER: &str = "its run is over, or its phase is Unknown";

pub(super) async fn apply(context: &Context, world: &World, decision: &Decision) -> Result<(), ReconcileError> {
    let before = world.set.status.clone().unwrap_or_default();
    match take(context, &world.set, decision).await {
        Ok(()) => {
            write_status(context, &world.set, &before, &decision.status).await?;
            let event = status::pause_changed(&before, &decision.status);
            event.into_iter().for_each(|event| context.record(&world.set.object_ref(&()), event));
            Ok(())
        }
        Err(Failure { reason, action, error }) => {
            if let Some(message) = error.message() {
                let note = format!("could not {action}: {message}");
                if !status::is_known(&before, &note) {
                    context.record(&world.set.object_ref(&()), NewEvent::warning(reason, note.as_str()));
                }
                let failed = status::because(&decision.status, &before, reason, &note, world.now);
                write_status(context, &world.set, &before, &failed).await?;
            }
            Err(error)
        }
    }
}

/// What could not be done.
struct Failure {
    reason: Reason,
    action: &'static str,
    error: ReconcileError,
}

/// Takes the steps in their order. The first request of a kind goes alone, then two, and so on.
async fn take(context: &Context, set: &VirtualMachineInstanceReplicaSet, decision: &Decision) -> Result<(), Failure> {
    for batch in batches(&decision.claims) {
        let outcomes = join_all(batch.iter().map(|each| claim(context, set, each))).await;
        all(outcomes, Reason::FailedAdopt, "adopt or release a VirtualMachineInstance")?;
    }
    let created = create_all(context, set, &decision.create).await;
    for batch in batches(&decision.excess) {
        let outcomes = join_all(batch.iter().map(|each| delete(context, set, each, "too many"))).await;
        all(outcomes, Reason::FailedDelete, "delete a VirtualMachineInstance")?;
    }
    for batch in batches(&decision.finished) {
        let outcomes = join_all(batch.iter().map(|each| delete(context, set, each, OVER))).await;
        all(outcomes, Reason::FailedDelete, "delete a VirtualMachineInstance")?;
    }
    // Only now: where a quota has no room for a new one, what is over has to go first.
    created
}

async fn create_all(
    context: &Context,
    set: &VirtualMachineInstanceReplicaSet,
    names: &[String],
) -> Result<(), Failure> {
    for batch in batches(names) {
        let outcomes = join_all(batch.iter().map(|name| create(context, set, name))).await;
        all(outcomes, Reason::FailedCreate, "create a VirtualMachineInstance")?;
    }
    Ok(())
}

fn all(outcomes: Vec<Result<(), ReconcileError>>, reason: Reason, action: &'static str) -> Result<(), Failure> {
    match first_failure(outcomes) {
        None => Ok(()),
        Some(error) => Err(Failure { reason, action, error }),
    }
}

async fn claim(context: &Context, set: &VirtualMachineInstanceReplicaSet, claim: &Claim) -> Result<(), ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    change_owners::<Instances>(&context.client, namespace, claim).await
}

async fn create(context: &Context, set: &VirtualMachineInstanceReplicaSet, name: &str) -> Result<(), ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    let vmi = set::instance(set, name);
    match unread::create(&context.client, namespace, &made_by_us(), &vmi).await {
        Ok(()) => {
            let note = format!("created the VirtualMachineInstance {name}");
            context.record(&set.object_ref(&()), NewEvent::normal(Reason::SuccessfulCreate, note));
            Ok(())
        }
        // Whose it is the watch shows soon.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("create the VirtualMachineInstance")(error)),
    }
}

async fn delete(
    context: &Context,
    set: &VirtualMachineInstanceReplicaSet,
    victim: &Victim,
    why: &str,
) -> Result<(), ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    let Victim { name, uid } = victim;
    let instances: Api<Cached<Instances>> = Api::namespaced(context.client.clone(), namespace);
    let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    match instances.delete(name, &params).await {
        Ok(_) => {
            let note = format!("deleted the VirtualMachineInstance {name}: {why}");
            context.record(&set.object_ref(&()), NewEvent::normal(Reason::SuccessfulDelete, note));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(while_trying("delete the VirtualMachineInstance")(error)),
    }
}

/// Written if it is another one: not for each instance that changes, but for each that counts or is ready.
async fn write_status(
    context: &Context,
    set: &VirtualMachineInstanceReplicaSet,
    before: &VirtualMachineInstanceReplicaSetStatus,
    status: &VirtualMachineInstanceReplicaSetStatus,
) -> Result<(), ReconcileError> {
    if before == status {
        return Ok(());
    }
    let applied = json!({
        "apiVersion": garboard_api::v1::API_VERSION,
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": { "uid": set.metadata.uid },
        "status": status,
    });
    let (object, params) = (NamespacedName::of(&set.metadata)?, PatchParams::apply(FIELD_MANAGER).force());
    match unread::patch_status::<ReplicaSets>(&context.client, object, &params, &Patch::Apply(applied)).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachineInstanceReplicaSet")(error)),
    }
}
