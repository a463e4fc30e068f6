//! What is known of a VirtualMachine.

use std::collections::BTreeSet;

use garboard_api::v1::VirtualMachineSpec;
use garboard_api::{ClusterConfig, Phase, VirtualMachine, VirtualMachineInstance};
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, Client};

use super::decide::{self, World};
use super::sizes::{self, Sizes};
use super::{revision, status};
use crate::context::{ReconcileError, while_trying};
use crate::data_volumes::{self, Foreign, ProgressByName, observe};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::ObjectKey;

pub(super) async fn observe(
    leader: &Leader,
    vm: &VirtualMachine,
    vmi: Option<VirtualMachineInstance>,
) -> Result<World, ReconcileError> {
    // A machine that has an instance, or goes, must not be kept from its stop by a claim that cannot be read.
    let is_begun = vmi.is_some() || vm.metadata.deletion_timestamp.is_some();
    let (data_volumes, foreign) = if is_begun { Default::default() } else { data_volumes(leader, vm).await? };
    let absent_sources = observe::absent_sources(leader, vm, &data_volumes).await;
    let config = leader.context.settings.borrow().config.clone();
    let sizes = sizes(&leader.context.client, vm, vmi.as_ref(), &config).await?;
    let mut world = World {
        vm: vm.clone(),
        vmi,
        started_from: None,
        data_volumes,
        foreign,
        absent_sources,
        now: jiff::Timestamp::now(),
        chance: uuid::Uuid::new_v4().as_u64_pair().0,
        config,
        sizes,
    };
    world.started_from = started_from(&leader.context.client, &world).await;
    Ok(world)
}

/// Instancetype and preference, if they are needed. A machine that has an instance must not be kept from its stop by one that cannot be
/// read.
async fn sizes(
    client: &Client,
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    config: &ClusterConfig,
) -> Result<Sizes, ReconcileError> {
    if !sizes::are_needed(vm, vmi) {
        return Ok(Sizes::default());
    }
    match crate::sizes::find(client, vm).await {
        Ok((sizing, found)) => Ok(Sizes::of(vm, &sizing, found, config)),
        Err(error) if vmi.is_some() => {
            tracing::warn!(error = %ErrorChain(&error), "the instancetype or preference of a machine could not be read");
            Ok(Sizes::unread(ErrorChain(&error).to_string()))
        }
        Err(error) => Err(while_trying("look for the instancetype or preference")(error)),
    }
}

/// How far the DataVolumes are that the machine names or brings along, and what of these is not its own.
async fn data_volumes(
    leader: &Leader,
    vm: &VirtualMachine,
) -> Result<(ProgressByName, Option<Foreign>), ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vm.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vm.metadata.name.as_deref().ok_or(missing("a name"))?;
    let spec = vm.spec.template.spec.as_ref();
    let named = spec.into_iter().flat_map(data_volumes::names);
    let brought = vm.spec.data_volume_templates.iter().filter_map(|each| each.metadata.as_ref()?.name.as_deref());
    let names: BTreeSet<&str> = named.chain(brought).collect();
    let waiter = Waiter::Machine(ObjectKey::new(namespace, name));
    observe::of_machine(leader, vm, names, &waiter).await
}

/// What the machine was when its instance was started, while it is newer than that; nothing where that is not known: an earlier release
/// made no record, it was refused, it is another owner's, or it cannot be read now. Then the two instances alone are compared. A stop
/// waits for no answer.
async fn started_from(client: &Client, world: &World) -> Option<VirtualMachineSpec> {
    let vmi = world.vmi.as_ref()?;
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    if !status::is_newer(&world.vm, vmi) || Phase::of(vmi).is_final() || decide::ends(world) {
        return None;
    }
    let namespace = world.vm.metadata.namespace.as_deref().unwrap_or_default();
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    match revisions.get_opt(name).await {
        Ok(found) => found.filter(|found| revision::is_of(found, &world.vm)).as_ref().and_then(revision::spec),
        Err(error) => {
            let error = ErrorChain(&error);
            tracing::warn!(%error, revision = name, "the revision that a machine was started from could not be read");
            None
        }
    }
}
