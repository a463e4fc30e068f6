//! From a VirtualMachineInstance to its launcher pod, and to its status until the node agent has taken over.

mod apply;
pub mod decide;
mod eviction;
mod fields;
pub mod history;
mod leaving;
mod observe;
mod out_of_memory;
mod place;
mod pod_status;
mod readiness;
mod rejected;
pub mod remains;
mod situation;
mod start;
mod status;

use std::sync::Arc;
use std::time::Duration;

use garboard_api::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use self::decide::{CLAIM_MAY_COME, Decision, Step, World, decide};
use self::observe::PodLookup;
use crate::context::{ReconcileError, while_trying};
use crate::data_volumes::LONGEST_WAIT;
use crate::durations::Durations;
use crate::reconciler::{Pause, Reconcile};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::{Cached, Instances, ObjectKey};
use crate::unreadable;

/// How soon is looked for a pod that the watch is about to deliver; it wakes the reconciler earlier.
const SOON: Duration = Duration::from_secs(1);

/// Reconciles VirtualMachineInstances.
pub struct Reconciler(pub Arc<Leader>);

impl Reconcile for Reconciler {
    type Kind = Instances;

    async fn reconcile(&self, object: &Cached<Instances>, _: u32) -> Result<Option<Pause>, ReconcileError> {
        let leader = &self.0;
        leader.waiting.forget(&Waiter::Instance(object.key()));
        let mut vmi = match object.read_to_remove() {
            Ok(vmi) => vmi,
            Err(problem) => {
                unreadable::report_failure(&leader.context, object, &problem).await;
                return Err(problem.into());
            }
        };
        if let Some(status) = &mut vmi.status
            && status.conditions.iter().any(|each| unreadable::is_ours(each.reason.as_ref()))
        {
            unreadable::take_back(&leader.context, object).await?;
            status.conditions.retain(|each| !unreadable::is_ours(each.reason.as_ref()));
        }
        let pod = match observe::look_up(leader, &vmi).await? {
            PodLookup::There(pod) => Some(*pod),
            PodLookup::Absent => None,
            PodLookup::Expected => return Ok(Some(Pause::Until(SOON))),
        };
        let mut world = observe::observe(leader, &vmi, pod.clone()).await?;
        let mut is_fresh = false;
        if decide::makes_pod(&world) {
            // Gone, or another one by now; the watch reports it soon.
            let Some(fresh) = afresh(leader, &vmi, pod.clone()).await? else { return Ok(None) };
            (world, is_fresh) = (fresh, true);
        }
        let mut decision = decide(&world);
        if !is_fresh && asks_afresh(&decision) {
            let Some(fresh) = afresh(leader, &vmi, pod).await? else { return Ok(None) };
            world = fresh;
            decision = decide(&world);
        }
        apply::apply(leader, &world, &decision).await?;
        Ok(pause(&world, &decision))
    }

    fn gone(&self, namespace: &str, name: &str) {
        self.0.waiting.forget(&Waiter::Instance(ObjectKey::new(namespace, name)));
    }

    fn durations(&self) -> &Durations {
        &self.0.context.reconciles.instances
    }
}

/// What waits for a claim asks less and less often.
fn pause(world: &World, decision: &Decision) -> Option<Pause> {
    let pause = decision.recheck?;
    let waits = world.pod.is_none() && decision.steps.iter().all(|step| matches!(step, Step::Warn { .. }));
    let is_for_claim = waits && pause == CLAIM_MAY_COME;
    Some(if is_for_claim { Pause::Growing { first: pause, longest: LONGEST_WAIT } } else { Pause::Until(pause) })
}

/// Whether something is started or ended: a store that lags must not be the reason.
fn asks_afresh(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| match step {
        Step::CreateClaim(_)
        | Step::CreatePod(_)
        | Step::DeletePod { .. }
        | Step::ReplaceRejectedPod { .. }
        | Step::RemoveFinalizer { .. } => true,
        Step::AnnotatePod { .. } | Step::Warn { .. } => false,
    })
}

/// The same instance, asked of the API server; nothing if it is not there any more.
async fn afresh(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    pod: Option<Pod>,
) -> Result<Option<World>, ReconcileError> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let instances: Api<Cached<Instances>> = Api::namespaced(leader.context.client.clone(), namespace);
    let found = instances.get_opt(name).await.map_err(while_trying("get the VirtualMachineInstance"))?;
    match found.map(|found| found.read_to_remove()).transpose()? {
        Some(fresh) if fresh.metadata.uid == vmi.metadata.uid => observe::observe(leader, &fresh, pod).await.map(Some),
        Some(_) | None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
