//! Doing what was decided about a VirtualMachine. Every step may be repeated, and any may be the last.

use garboard_api::conditions::Reason;
use garboard_api::metadata::annotation;
use garboard_api::v1::VirtualMachineStatus;
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use garboard_log::otlp;
use garboard_protocol::causes::ErrorChain;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, Resource};
use serde_json::json;

use super::decide::{Decision, Step, World};
use super::{kept, record, sizes, status};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, is_refusal, made_by_us, observed_versions, while_trying};
use crate::data_volumes;
use crate::events::NewEvent;
use crate::stores::{self, Cached, Instances, Machines};
use crate::unread::{self, NamespacedName};

pub(super) async fn apply(context: &Context, world: &World, decision: &Decision) -> Result<(), ReconcileError> {
    let vm = &world.vm;
    let object = NamespacedName::of(&vm.metadata)?;
    // How an instance ended is only known while it is there; that one was made follows from the instance.
    let remembers = decision.steps.iter().any(|step| matches!(step, Step::DeleteVmi { .. }));
    if remembers {
        write_status(context, vm, decision).await?;
    }
    let mut is_recorded = true;
    for step in &decision.steps {
        is_recorded = match take(context, vm, step, object, is_recorded).await {
            Ok(is_recorded) => is_recorded,
            Err(error) => {
                if let Some(message) = error.message() {
                    let failure = failure_of(step, &error);
                    let note = format!("could not {}: {message}", failure.action);
                    report_failure(context, world, &failure, &note).await?;
                }
                return Err(error);
            }
        };
    }
    if remembers {
        return Ok(());
    }
    write_status(context, vm, decision).await?;
    for name in sizes::dropped(decision) {
        sizes::apply::drop_copy(context, vm, name).await;
    }
    let failed = status::failed_volume(vm, &decision.status);
    failed.into_iter().for_each(|event| context.record(&vm.object_ref(&()), event));
    Ok(())
}

/// The report where a step fails.
struct Failure {
    /// KubeVirt's reason where it has one.
    reason: Reason,
    /// The reason of its event.
    event: Reason,
    /// What could not be done.
    action: String,
}

fn failure_of(step: &Step, error: &ReconcileError) -> Failure {
    let (reason, action) = match step {
        Step::CreateVmi(_) => (Reason::FailedCreate, "make the VirtualMachineInstance".to_owned()),
        Step::RecordRevision { .. } => (Reason::FailedCreate, record::ACTION.to_owned()),
        Step::CreateDataVolume { name, .. } => {
            (Reason::FailedDataVolumeCreate, format!("create the DataVolume {name}"))
        }
        Step::DeleteVmi { .. } => (Reason::FailedDelete, "stop the VirtualMachineInstance".to_owned()),
        Step::AdoptVmi { .. } => (Reason::FailedAdopt, "adopt the VirtualMachineInstance".to_owned()),
        Step::Unhalt => (Reason::FailedUpdate, "start the machine".to_owned()),
        Step::Annotate { .. } => (Reason::FailedUpdate, "write to the VirtualMachineInstance".to_owned()),
        Step::Keep { .. } => (Reason::FailedUpdate, "keep the firmware's identity of the machine".to_owned()),
        Step::KeepCopy { .. } => (Reason::FailedCreate, sizes::apply::ACTION.to_owned()),
        Step::DropCopy { .. } => (Reason::FailedDelete, "delete a copy of the instancetype or preference".to_owned()),
        Step::Expand { .. } => (Reason::FailedUpdate, "write the instancetype into the machine".to_owned()),
        Step::RemoveFinalizer { .. } => (Reason::FailedDelete, "remove the finalizer of the machine".to_owned()),
    };
    let may_not_read = matches!(step, Step::CreateDataVolume { .. })
        && error.message().is_some_and(|message| data_volumes::may_not_read(&message));
    let event = if may_not_read { Reason::UnauthorizedDataVolumeCreate } else { reason };
    Failure { reason, event, action }
}

/// What the API server refused is written in the status, for an event is soon forgotten; and once as an event.
async fn report_failure(context: &Context, world: &World, failure: &Failure, note: &str) -> Result<(), ReconcileError> {
    let vm = &world.vm;
    if !status::is_known(vm, note) {
        context.record(&vm.object_ref(&()), NewEvent::warning(failure.event, note));
    }
    let status = status::because(world, failure.reason, note);
    let failed = Decision { steps: Vec::new(), status, recheck: None };
    write_status(context, vm, &failed).await
}

/// Does one step, and says whether the start has a record that its instance can name; `is_recorded`: whether it had one before.
async fn take(
    context: &Context,
    vm: &VirtualMachine,
    step: &Step,
    object: NamespacedName<'_>,
    is_recorded: bool,
) -> Result<bool, ReconcileError> {
    let NamespacedName { namespace, name } = object;
    // As it is stored: the answer to a change of one that cannot be read cannot be read either.
    let instances: Api<Cached<Instances>> = Api::namespaced(context.client.clone(), namespace);
    match step {
        Step::CreateDataVolume { name, object, absent_source, is_claimed } => {
            bring(context, vm, name, object, *is_claimed).await?;
            let warning = absent_source.as_ref().map(|source| without_source(name, source));
            warning.into_iter().for_each(|event| context.record(&vm.object_ref(&()), event));
        }
        Step::RecordRevision { object: revision, replaces } => {
            return record::record(context, vm, revision, *replaces).await;
        }
        Step::CreateVmi(vmi) => make_instance(context, vm, vmi, is_recorded).await?,
        Step::DeleteVmi { uid } => {
            let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
            match instances.delete(name, &params).await {
                Ok(_) => {
                    let note = format!("deleted the VirtualMachineInstance {name} to stop the machine");
                    context.record(&vm.object_ref(&()), NewEvent::normal(Reason::SuccessfulDelete, note));
                }
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("delete the VirtualMachineInstance")(error)),
            }
        }
        Step::AdoptVmi { uid, resource_version, owners } => {
            let metadata = json!({ "uid": uid, "resourceVersion": resource_version, "ownerReferences": owners });
            let patch = json!({ "metadata": metadata });
            match instances.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_conflict() => return Err(ReconcileError::Overtaken),
                Err(error) => return Err(while_trying("adopt the VirtualMachineInstance")(error)),
            }
        }
        Step::Annotate { uid, annotations } => {
            let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
            match instances.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("write annotations of the VirtualMachineInstance")(error)),
            }
        }
        Step::Unhalt => {
            let spec =
                if vm.spec.running.is_some() { json!({"running": true}) } else { json!({"runStrategy": "Always"}) };
            let version = &vm.metadata.resource_version;
            let metadata = json!({"resourceVersion": version, "annotations": observed_versions()});
            let patch = json!({"metadata": metadata, "spec": spec});
            let params = PatchParams::default();
            settled(unread::patch::<Machines>(&context.client, object, &params, &Patch::Merge(patch)).await)?;
        }
        Step::Keep { value } => keep(context, vm, value).await?,
        Step::KeepCopy { object } => sizes::apply::keep(context, object).await?,
        Step::DropCopy { .. } => {} // After the status, which names it still.
        Step::Expand { spec } => sizes::apply::expand(context, vm, spec).await?,
        Step::RemoveFinalizer { rest } => {
            let machines: Api<Cached<Machines>> = Api::namespaced(context.client.clone(), namespace);
            // The list is of this version: one that another program has removed since may not be added again.
            let version = &vm.metadata.resource_version;
            let metadata = json!({ "uid": vm.metadata.uid, "resourceVersion": version, "finalizers": rest });
            let patch = json!({ "metadata": metadata });
            match machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(kube::Error::Api(status)) if status.is_conflict() => return Err(ReconcileError::Overtaken),
                Err(error) => return Err(while_trying("remove the finalizer of the VirtualMachine")(error)),
            }
        }
    }
    Ok(is_recorded)
}

async fn make_instance(
    context: &Context,
    vm: &VirtualMachine,
    vmi: &VirtualMachineInstance,
    is_recorded: bool,
) -> Result<(), ReconcileError> {
    let NamespacedName { namespace, name } = NamespacedName::of(&vm.metadata)?;
    let mut made = if is_recorded { vmi.clone() } else { record::unnamed(vmi) };
    if let Some(trace) = otlp::annotation(&tracing::Span::current()) {
        made.metadata.annotations.get_or_insert_default().insert(annotation::TRACE.to_owned(), trace);
    }
    match unread::create(&context.client, namespace, &made_by_us(), &made).await {
        Ok(()) => {
            let note = format!("created the VirtualMachineInstance {name}");
            context.record(&vm.object_ref(&()), NewEvent::normal(Reason::SuccessfulCreate, note));
            Ok(())
        }
        // It may be another's: what was asked for is crossed out once the watch has shown whose it is.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("create the VirtualMachineInstance")(error)),
    }
}

/// A refusal, perhaps of a policy of this cluster, is no reason to leave a machine alone that runs.
async fn keep(context: &Context, vm: &VirtualMachine, value: &str) -> Result<(), ReconcileError> {
    let object = NamespacedName::of(&vm.metadata)?;
    let mut annotations = json!(observed_versions());
    annotations[annotation::STORED_MACHINE] = json!(value);
    let patch = json!({ "metadata": { "uid": vm.metadata.uid, "annotations": annotations } });
    match unread::patch::<Machines>(&context.client, object, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(kube::Error::Api(status)) if is_refusal(status.code) => {
            let note = format!("could not write {}: {}", kept::place(), status.message);
            context.record(&vm.object_ref(&()), NewEvent::warning(Reason::FailedUpdate, note));
            Ok(())
        }
        Err(error) => Err(while_trying("write the annotation of the VirtualMachine")(error)),
    }
}

/// The event of a DataVolume that was made, and that waits for what it copies.
fn without_source(name: &str, source: &str) -> NewEvent {
    let note = format!("the DataVolume {name} stays empty until the claim {source} exists, which it copies");
    NewEvent::warning(Reason::SourcePvcNotAvailable, note)
}

/// Makes a DataVolume. Where there is a claim, which the machine is started with, it must not be another's.
async fn bring(
    context: &Context,
    vm: &VirtualMachine,
    name: &str,
    object: &DynamicObject,
    is_claimed: bool,
) -> Result<(), ReconcileError> {
    match make_data_volume(context, vm, name, object).await {
        // The machine waits for it in any case.
        Err(ReconcileError::Overtaken) if !is_claimed => Ok(()),
        made if is_claimed => or_as_it_is(made, name),
        made => made,
    }
}

/// A refusal, where there is a claim that can be used without a DataVolume.
fn or_as_it_is(made: Result<(), ReconcileError>, name: &str) -> Result<(), ReconcileError> {
    match made {
        Err(error) if error.is_refused_for_good() => {
            tracing::info!(error = %ErrorChain(&error), name, "a claim is used as it is, without a DataVolume");
            Ok(())
        }
        Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn make_data_volume(
    context: &Context,
    vm: &VirtualMachine,
    name: &str,
    object: &DynamicObject,
) -> Result<(), ReconcileError> {
    match data_volumes::make::make(&context.client, &context.namespace, object).await {
        Ok(_) => {
            let note = format!("created the DataVolume {name}");
            context.record(&vm.object_ref(&()), NewEvent::normal(Reason::SuccessfulDataVolumeCreate, note));
            Ok(())
        }
        // Whose it is the watch shows soon: until then nothing is started with it.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(ReconcileError::Overtaken),
        // The kind, not the object.
        Err(kube::Error::Api(status)) if stores::is_absent(&status) => {
            Err(ReconcileError::Refused { message: data_volumes::NO_IMPORTER.to_owned() })
        }
        Err(error) => Err(while_trying("create a DataVolume")(error)),
    }
}

/// Only what differs from before. What this controller decides it applies as its own; requests that others
/// have made are crossed out of a list that is theirs, and only if no other was made meanwhile.
async fn write_status(context: &Context, vm: &VirtualMachine, decision: &Decision) -> Result<(), ReconcileError> {
    let object = NamespacedName::of(&vm.metadata)?;
    let before = vm.status.clone().unwrap_or_default();
    if before == decision.status || is_leaving(decision) {
        return Ok(());
    }
    let left = &decision.status.state_change_requests;
    if before.state_change_requests != *left {
        let patch = json!({
            "metadata": { "resourceVersion": vm.metadata.resource_version },
            // Clients ask whether there is such a field: with the last request it goes.
            "status": { "stateChangeRequests": (!left.is_empty()).then_some(left) },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        settled(unread::patch_status::<Machines>(&context.client, object, &params, &Patch::Merge(patch)).await)?;
    }
    if owned_fields(&before) != owned_fields(&decision.status) {
        let applied = json!({
            "apiVersion": garboard_api::v1::API_VERSION,
            "kind": "VirtualMachine",
            "metadata": { "uid": vm.metadata.uid },
            "status": owned_fields(&decision.status),
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        settled(unread::patch_status::<Machines>(&context.client, object, &params, &Patch::Apply(applied)).await)?;
    }
    Ok(())
}

fn settled(written: kube::Result<()>) -> Result<(), ReconcileError> {
    match written {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachine")(error)),
    }
}

/// The part of a status that this controller decides.
fn owned_fields(status: &VirtualMachineStatus) -> VirtualMachineStatus {
    VirtualMachineStatus {
        conditions: status.conditions.clone(),
        created: status.created,
        desired_generation: status.desired_generation,
        instancetype_ref: status.instancetype_ref.clone(),
        observed_generation: status.observed_generation,
        preference_ref: status.preference_ref.clone(),
        printable_status: status.printable_status.clone(),
        ready: status.ready,
        run_strategy: status.run_strategy.clone(),
        start_failure: status.start_failure.clone(),
        stored_machine: status.stored_machine.clone(),
        volume_snapshot_statuses: status.volume_snapshot_statuses.clone(),
        ..VirtualMachineStatus::default()
    }
}

fn is_leaving(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| matches!(step, Step::RemoveFinalizer { .. }))
}
