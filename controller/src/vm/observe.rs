//! What is known of a VirtualMachine.

use std::collections::BTreeSet;

use garboard_api::{VirtualMachine, VirtualMachineInstance};

use super::decide::World;
use crate::context::ReconcileError;
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
    Ok(World {
        vm: vm.clone(),
        vmi,
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
