//! Doing what was decided about a VirtualMachineInstanceReplicaSet. Every step may be repeated, and any may be the last.

use futures::future::join_all;
use garboard_api::conditions::Reason;
use garboard_api::v1::VirtualMachineInstanceReplicaSetStatus;
use garboard_api::{VirtualMachineInstanceReplicaSet, set};
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::decide::{Claim, Decision, Victim, World};
use super::status;
use crate::context::{Context, FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::events::NewEvent;
use crate::stores::{Cached, Instances, ReplicaSets};
use crate::unread::{self, NamespacedName};

/// How many requests of a set are under way at most.
const AT_ONCE: usize = 16;

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

/// Takes the steps in their order. The first request of a kind goes alone, then two, and so on: where everything is refused, a quota
/// perhaps, few requests are made for nothing.
async fn take(context: &Context, set: &VirtualMachineInstanceReplicaSet, decision: &Decision) -> Result<(), Failure> {
    for batch in batches(&decision.claims) {
        let outcomes = join_all(batch.iter().map(|each| claim(&context.client, set, each))).await;
        all(outcomes, Reason::FailedAdopt, "adopt or release a VirtualMachineInstance")?;
    }
    let created = create_all(context, set, &decision.create).await;
    for batch in batches(&decision.excess) {
        let outcomes = join_all(batch.iter().map(|each| delete(context, set, each, "too many"))).await;
        all(outcomes, Reason::FailedDelete, "delete a VirtualMachineInstance")?;
    }
    for batch in batches(&decision.finished) {
        let outcomes = join_all(batch.iter().map(|each| delete(context, set, each, "its run is over"))).await;
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

/// The first of those that failed; another writer's only if nothing else is wrong.
fn all(outcomes: Vec<Result<(), ReconcileError>>, reason: Reason, action: &'static str) -> Result<(), Failure> {
    let mut failed: Vec<ReconcileError> = outcomes.into_iter().filter_map(Result::err).collect();
    failed.sort_by_key(|error| error.message().is_none());
    match failed.into_iter().next() {
        None => Ok(()),
        Some(error) => Err(Failure { reason, action, error }),
    }
}

/// One, two, four and so on, up to [`AT_ONCE`].
fn batches<T>(items: &[T]) -> Vec<&[T]> {
    let (mut rest, mut size, mut batches) = (items, 1, Vec::new());
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        batches.push(batch);
        rest = later;
        size = (size * 2).min(AT_ONCE);
    }
    batches
}

async fn claim(client: &Client, set: &VirtualMachineInstanceReplicaSet, claim: &Claim) -> Result<(), ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    let Claim { name, uid, resource_version, owners, .. } = claim;
    let metadata = json!({ "uid": uid, "resourceVersion": resource_version, "ownerReferences": owners });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let object = NamespacedName { namespace, name };
    match unread::patch::<Instances>(client, object, &PatchParams::default(), &patch).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("change the owners of the VirtualMachineInstance")(error)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_requests_are_few() {
        let sizes = |count: usize| batches(&vec![(); count]).into_iter().map(<[()]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [] as [usize; 0]);
        assert_eq!(sizes(6), [1, 2, 3]);
        assert_eq!(sizes(64), [1, 2, 4, 8, 16, 16, 16, 1]);
    }

    #[test]
    fn what_was_refused_is_reported_before_what_another_writer_did() {
        let refused = || ReconcileError::Refused { message: "exceeded quota".to_owned() };
        let outcome =
            |outcomes| all(outcomes, Reason::FailedCreate, "create").map_err(|failure| failure.error.message());
        assert_eq!(outcome(vec![Ok(()), Ok(())]), Ok(()));
        assert_eq!(outcome(vec![Ok(()), Err(ReconcileError::Overtaken)]), Err(None));
        let message = Err(Some("exceeded quota".to_owned()));
        assert_eq!(outcome(vec![Err(ReconcileError::Overtaken), Ok(()), Err(refused())]), message);
    }
}
