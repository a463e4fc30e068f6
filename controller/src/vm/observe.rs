//! What is known of a VirtualMachine, asked afresh: a cache that lags would make it start twice.

use std::collections::BTreeSet;

use garboard_api::{VirtualMachine, VirtualMachineInstance};
use kube::Api;

use super::decide::World;
use crate::context::{Context, ReconcileError, while_trying};
use crate::data_volumes::{self, Fillings, observe};

pub(super) async fn observe(context: &Context, vm: &VirtualMachine) -> Result<World, ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vm.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vm.metadata.name.as_deref().ok_or(missing("a name"))?;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), namespace);
    let vmi = instances.get_opt(name).await.map_err(while_trying("get the VirtualMachineInstance"))?;
    // A machine that has an instance, or goes, must not be kept from its stop by a claim that cannot be read.
    let is_begun = vmi.is_some() || vm.metadata.deletion_timestamp.is_some();
    let fillings = if is_begun { Fillings::new() } else { fillings(context, vm, namespace).await? };
    Ok(World {
        vm: vm.clone(),
        vmi,
        fillings,
        now: jiff::Timestamp::now(),
        chance: uuid::Uuid::new_v4().as_u64_pair().0,
        config: context.settings.borrow().config.clone(),
    })
}

/// How far the DataVolumes are that the machine names or brings along.
async fn fillings(context: &Context, vm: &VirtualMachine, namespace: &str) -> Result<Fillings, ReconcileError> {
    let spec = vm.spec.template.spec.as_ref();
    let named = spec.into_iter().flat_map(data_volumes::names);
    let brought = vm.spec.data_volume_templates.iter().filter_map(|each| each.metadata.as_ref()?.name.as_deref());
    let names: BTreeSet<&str> = named.chain(brought).collect();
    let claims = observe::claims(&context.client, namespace, names.iter().map(|name| (*name).to_owned())).await?;
    observe::fillings(&context.client, namespace, names.into_iter(), &claims).await
}
