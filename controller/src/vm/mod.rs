//! From a VirtualMachine to its VirtualMachineInstance, by its run strategy.

mod apply;
pub mod decide;
pub(crate) mod kept;
mod observe;
mod record;
mod revision;
pub mod sizes;
mod status;
mod step;

use std::sync::Arc;

use garboard_api::{VirtualMachine, VirtualMachineInstance};
use kube::Api;

use crate::context::{ReconcileError, while_trying};
use crate::data_volumes;
use crate::durations::Durations;
use crate::reconciler::{Pause, Reconcile};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::{Cached, Instances, Machines, ObjectKey};
use crate::unreadable;
use decide::{Decision, Step, World, decide};

/// Reconciles VirtualMachines.
pub struct Reconciler(pub Arc<Leader>);

impl Reconcile for Reconciler {
    type Kind = Machines;

    async fn reconcile(&self, object: &Cached<Machines>, _: u32) -> Result<Option<Pause>, ReconcileError> {
        let leader = &self.0;
        leader.waiting.forget(&Waiter::Machine(object.key()));
        let mut vm = match object.read_to_remove() {
            Ok(vm) => vm,
            Err(problem) => {
                unreadable::report_failure(&leader.context, object, &problem).await;
                return Err(problem.into());
            }
        };
        if let Some(status) = &mut vm.status
            && status.conditions.iter().any(|each| unreadable::is_ours(each.reason.as_ref()))
        {
            unreadable::take_back(&leader.context, object).await?;
            status.conditions.retain(|each| !unreadable::is_ours(each.reason.as_ref()));
        }
        let world = observe::observe(leader, &vm, stored_instance(leader, &vm)?).await?;
        let (world, decision) = match decide(&world) {
            decision if asks_afresh(&decision) => match afresh(leader, world, &decision).await? {
                Some(world) => {
                    let decision = decide(&world);
                    (world, decision)
                }
                // Gone; the watch reports it soon.
                None => return Ok(None),
            },
            decision => (world, decision),
        };
        apply::apply(&leader.context, &world, &decision).await?;
        Ok(pause(&world, &decision))
    }

    fn gone(&self, namespace: &str, name: &str) {
        self.0.waiting.forget(&Waiter::Machine(ObjectKey::new(namespace, name)));
    }

    fn durations(&self) -> &Durations {
        &self.0.context.reconciles.machines
    }
}

/// What waits for storage asks less and less often; a change of a DataVolume is observed in any case.
fn pause(world: &World, decision: &Decision) -> Option<Pause> {
    let pause = decision.recheck?;
    if world.sizes.problem.is_some() {
        return Some(Pause::Growing { first: pause, longest: sizes::LONGEST_WAIT });
    }
    let waits = world.foreign.is_some() || data_volumes::obstacle(&world.data_volumes).is_some();
    Some(if waits { Pause::Growing { first: pause, longest: data_volumes::LONGEST_WAIT } } else { Pause::Until(pause) })
}

/// The instance that has the machine's name: any other is not its own, whatever owner it names. One that cannot be read can be
/// ended all the same.
fn stored_instance(leader: &Leader, vm: &VirtualMachine) -> Result<Option<VirtualMachineInstance>, ReconcileError> {
    let (namespace, name) = (vm.metadata.namespace.as_deref(), vm.metadata.name.as_deref());
    let found = leader.instances.named(namespace.unwrap_or_default(), name.unwrap_or_default());
    Ok(found.map(|found| found.read().or_else(|_| found.remnant())).transpose()?)
}

/// Whether something is started, adopted or ended: a store that lags must not be the reason.
fn asks_afresh(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| match step {
        Step::RecordRevision { .. }
        | Step::CreateVmi(_)
        | Step::DeleteVmi { .. }
        | Step::AdoptVmi { .. }
        | Step::Unhalt
        | Step::Expand { .. }
        | Step::RemoveFinalizer { .. } => true,
        Step::CreateDataVolume { .. }
        | Step::Annotate { .. }
        | Step::Keep { .. }
        | Step::KeepCopy { .. }
        | Step::DropCopy { .. } => false,
    })
}

/// The same machine, asked of the API server; nothing if it is not there any more. Its instance is asked for, too, unless it
/// is to be made: whether there is one the API server answers then.
async fn afresh(leader: &Leader, world: World, decision: &Decision) -> Result<Option<World>, ReconcileError> {
    let (namespace, name) = (world.vm.metadata.namespace.clone(), world.vm.metadata.name.clone());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let machines: Api<Cached<Machines>> = Api::namespaced(leader.context.client.clone(), &namespace);
    let found = machines.get_opt(&name).await.map_err(while_trying("get the VirtualMachine"))?;
    let Some(vm) = found.map(|found| found.read_to_remove()).transpose()? else { return Ok(None) };
    if vm.metadata.uid != world.vm.metadata.uid {
        return Ok(None);
    }
    let makes = decision.steps.iter().any(|step| matches!(step, Step::CreateVmi(_)));
    let vmi = if makes {
        world.vmi
    } else {
        let instances: Api<Cached<Instances>> = Api::namespaced(leader.context.client.clone(), &namespace);
        let found = instances.get_opt(&name).await.map_err(while_trying("get the VirtualMachineInstance"))?;
        found.map(|found| found.read().or_else(|_| found.remnant())).transpose()?
    };
    observe::observe(leader, &vm, vmi).await.map(Some)
}

#[cfg(test)]
mod tests;
