//! What is known of a VirtualMachine.

use std::collections::BTreeSet;

use garboard_api::v1::VirtualMachineSpec;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, Client};

use super::decide::World;
use super::{revision, status};
use crate::context::{ReconcileError, while_trying};
use crate::data_volumes::{self, ProgressByName, observe};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::ObjectKey;

pub(super) async fn observe(
    leader: &Leader,
    vm: &VirtualMachine,
    vmi: Option<VirtualMachineInstance>,
) -> Result<World, ReconcileError> {
    // A machine that has an instance, or goes, must not be kept from its stop by a claim that cannot be read.
    let is_begun = vmi.is_some() || vm.metadata.deletion_timestamp.is_some();
    let data_volumes = if is_begun { ProgressByName::new() } else { data_volumes(leader, vm).await? };
    let started_from = match &vmi {
        Some(vmi) => started_from(&leader.context.client, vm, vmi).await?,
        None => None,
    };
    Ok(World {
        vm: vm.clone(),
        vmi,
        started_from,
        data_volumes,
        now: jiff::Timestamp::now(),
        chance: uuid::Uuid::new_v4().as_u64_pair().0,
        config: leader.context.settings.borrow().config.clone(),
    })
}

/// How far the DataVolumes are that the machine names or brings along.
async fn data_volumes(leader: &Leader, vm: &VirtualMachine) -> Result<ProgressByName, ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vm.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vm.metadata.name.as_deref().ok_or(missing("a name"))?;
    let spec = vm.spec.template.spec.as_ref();
    let named = spec.into_iter().flat_map(data_volumes::names);
    let brought = vm.spec.data_volume_templates.iter().filter_map(|each| each.metadata.as_ref()?.name.as_deref());
    let names: BTreeSet<&str> = named.chain(brought).collect();
    let waiter = Waiter::Machine(ObjectKey::new(namespace, name));
    observe::data_volumes(leader, namespace, names, waiter).await
}

/// What the machine was when its instance was started, while it is newer than that; nothing if there is no record of it: an earlier
/// release made none.
async fn started_from(
    client: &Client,
    vm: &VirtualMachine,
    vmi: &VirtualMachineInstance,
) -> Result<Option<VirtualMachineSpec>, ReconcileError> {
    let named = vmi.status.as_ref().and_then(|status| status.virtual_machine_revision_name.as_deref());
    let is_asked = status::is_newer(vm, vmi) && !Phase::of(vmi).is_final();
    let Some(name) = named.filter(|_| is_asked) else { return Ok(None) };
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    match revisions.get_opt(name).await {
        Ok(found) => Ok(found.as_ref().and_then(revision::spec)),
        // Of a release whose manifests did not give this right.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(while_trying("get the revision that the VirtualMachineInstance was started from")(error)),
    }
}
