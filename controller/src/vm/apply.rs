//! Doing what was decided about a VirtualMachine. Every step may be repeated, and any may be the last.

use garboard_api::v1::VirtualMachineStatus;
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use kube::runtime::events::EventType;
use kube::{Api, Resource};
use serde_json::json;

use super::decide::{Decision, Step, World};
use super::status;
use crate::context::{Context, FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::data_volumes;

pub(super) async fn apply(context: &Context, world: &World, decision: &Decision) -> Result<(), ReconcileError> {
    let vm = &world.vm;
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vm.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vm.metadata.name.as_deref().ok_or(missing("a name"))?;
    let machines: Api<VirtualMachine> = Api::namespaced(context.client.clone(), namespace);
    // How an instance ended is only known while it is there; that one was made follows from the instance.
    let remembers = decision.steps.iter().any(|step| matches!(step, Step::DeleteVmi { .. }));
    if remembers {
        write_status(&machines, vm, decision).await?;
    }
    for step in &decision.steps {
        if let Err(error) = take(context, vm, step, (namespace, name)).await {
            if let Some(sentence) = error.refusal()
                && let Some((reason, what)) = made_by(step)
            {
                confess(context, (&machines, world), reason, &format!("could not make the {what}: {sentence}")).await?;
            }
            return Err(error);
        }
    }
    if remembers { Ok(()) } else { write_status(&machines, vm, decision).await }
}

/// What a step makes, and KubeVirt's reason of the event where that is refused.
fn made_by(step: &Step) -> Option<(&'static str, String)> {
    match step {
        Step::CreateVmi(_) => Some((status::FAILED_CREATE, "VirtualMachineInstance".to_owned())),
        Step::CreateDataVolume { name, .. } => Some(("FailedDataVolumeCreate", format!("DataVolume {name}"))),
        Step::DeleteVmi { .. } | Step::AdoptVmi { .. } | Step::Unhalt | Step::RemoveFinalizer { .. } => None,
    }
}

/// What the API server refused is told in the status, for an event is soon forgotten; and once as an event.
async fn confess(
    context: &Context,
    (machines, world): (&Api<VirtualMachine>, &World),
    reason: &'static str,
    note: &str,
) -> Result<(), ReconcileError> {
    let vm = &world.vm;
    if !status::is_known(vm, note) {
        context.tell(&vm.object_ref(&()), EventType::Warning, (reason, note.to_owned())).await;
    }
    let told = Decision { steps: Vec::new(), status: status::without_instance_because(world, note), recheck: None };
    write_status(machines, vm, &told).await
}

async fn take(
    context: &Context,
    vm: &VirtualMachine,
    step: &Step,
    (namespace, name): (&str, &str),
) -> Result<(), ReconcileError> {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
    match step {
        Step::CreateDataVolume { name, object } => make_data_volume(context, vm, (name, object)).await?,
        Step::CreateVmi(vmi) => match instances.create(&made_by_us(), vmi).await {
            Ok(_) => {
                context
                    .tell(
                        &vm.object_ref(&()),
                        EventType::Normal,
                        ("SuccessfulCreate", format!("made the VirtualMachineInstance {name}")),
                    )
                    .await
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(while_trying("create the VirtualMachineInstance")(error)),
        },
        Step::DeleteVmi { uid } => {
            let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
            match instances.delete(name, &params).await {
                Ok(_) => {
                    context
                        .tell(
                            &vm.object_ref(&()),
                            EventType::Normal,
                            ("SuccessfulDelete", format!("stops the VirtualMachineInstance {name}")),
                        )
                        .await
                }
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("delete the VirtualMachineInstance")(error)),
            }
        }
        Step::AdoptVmi { uid, owner } => {
            let patch = json!({ "metadata": { "uid": uid, "ownerReferences": [owner] } });
            let adopted = instances.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            adopted.map_err(while_trying("adopt the VirtualMachineInstance"))?;
        }
        Step::Unhalt => {
            let machines: Api<VirtualMachine> = Api::namespaced(context.client.clone(), namespace);
            let spec =
                if vm.spec.running.is_some() { json!({"running": true}) } else { json!({"runStrategy": "Always"}) };
            let patch = json!({"metadata": {"resourceVersion": vm.metadata.resource_version}, "spec": spec});
            settled(machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        }
        Step::RemoveFinalizer { rest } => {
            let machines: Api<VirtualMachine> = Api::namespaced(context.client.clone(), namespace);
            let patch = json!({ "metadata": { "uid": vm.metadata.uid, "finalizers": rest } });
            match machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(while_trying("let the VirtualMachine go")(error)),
            }
        }
    }
    Ok(())
}

async fn make_data_volume(
    context: &Context,
    vm: &VirtualMachine,
    (name, object): (&str, &DynamicObject),
) -> Result<(), ReconcileError> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let volumes: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &data_volumes::resource());
    match volumes.create(&made_by_us(), object).await {
        Ok(_) => {
            let note = format!("made the DataVolume {name}");
            context.tell(&vm.object_ref(&()), EventType::Normal, ("SuccessfulDataVolumeCreate", note)).await;
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        // The kind, not the object.
        Err(kube::Error::Api(status)) if data_volumes::is_absent(&status) => {
            Err(ReconcileError::Refused { sentence: data_volumes::NO_IMPORTER.to_owned() })
        }
        Err(error) => Err(while_trying("create a DataVolume")(error)),
    }
}

/// Only what says something else than before. What this controller decides it applies as its own; requests that others
/// have made are crossed out of a list that is theirs, and only if nobody has made another meanwhile.
async fn write_status(
    machines: &Api<VirtualMachine>,
    vm: &VirtualMachine,
    decision: &Decision,
) -> Result<(), ReconcileError> {
    let name = vm.metadata.name.as_deref().unwrap_or_default();
    let before = vm.status.clone().unwrap_or_default();
    if before == decision.status || is_leaving(decision) {
        return Ok(());
    }
    if before.state_change_requests != decision.status.state_change_requests {
        let patch = json!({
            "metadata": { "resourceVersion": vm.metadata.resource_version },
            "status": { "stateChangeRequests": decision.status.state_change_requests },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        settled(machines.patch_status(name, &params, &Patch::Merge(patch)).await)?;
    }
    if ours(&before) != ours(&decision.status) {
        let applied = json!({
            "apiVersion": garboard_api::v1::API_VERSION,
            "kind": "VirtualMachine",
            "metadata": { "uid": vm.metadata.uid },
            "status": ours(&decision.status),
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        settled(machines.patch_status(name, &params, &Patch::Apply(applied)).await)?;
    }
    Ok(())
}

fn settled(written: kube::Result<VirtualMachine>) -> Result<(), ReconcileError> {
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachine")(error)),
    }
}

/// The part of a status that this controller decides.
fn ours(status: &VirtualMachineStatus) -> VirtualMachineStatus {
    VirtualMachineStatus {
        conditions: status.conditions.clone(),
        created: status.created,
        desired_generation: status.desired_generation,
        observed_generation: status.observed_generation,
        printable_status: status.printable_status.clone(),
        ready: status.ready,
        run_strategy: status.run_strategy.clone(),
        start_failure: status.start_failure.clone(),
        stored_machine: status.stored_machine.clone(),
        ..VirtualMachineStatus::default()
    }
}

fn is_leaving(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| matches!(step, Step::RemoveFinalizer { .. }))
}
