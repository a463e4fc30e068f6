//! From a VirtualMachineInstanceReplicaSet to its instances.
//!
//! Nothing is remembered of what was asked for: before something is created or deleted, the set is read and the metadata of its
//! instances are listed, in two requests whichever number there is, and a name that is created twice is refused by the API server
//! ([`garboard_api::set::name`]).

mod apply;
pub mod decide;
pub mod member;
mod observe;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crate::context::ReconcileError;
use crate::durations::Durations;
use crate::reconciler::{Pause, Reconcile};
use crate::reconcilers::Leader;
use crate::stores::{Cached, ReplicaSets};
use crate::unreadable;
use decide::decide;

/// A set with more instances than this is many, …
const MANY: usize = 100;
/// … and events of this time are looked at together: while instances start there is one every few milliseconds, and each look reads a
/// part of every instance in the store.
const GATHERING: Duration = Duration::from_millis(250);

/// Reconciles VirtualMachineInstanceReplicaSets.
pub struct Reconciler(pub Arc<Leader>);

impl Reconcile for Reconciler {
    type Kind = ReplicaSets;

    async fn reconcile(&self, object: &Cached<ReplicaSets>, _: u32) -> Result<Option<Pause>, ReconcileError> {
        let leader = &self.0;
        let mut set = match object.read() {
            Ok(set) => set,
            Err(problem) => {
                unreadable::report_failure(&leader.context, object, &problem).await;
                return Err(problem.into());
            }
        };
        if let Some(status) = &mut set.status
            && status.conditions.iter().any(|each| unreadable::is_ours(each.reason.as_ref()))
        {
            unreadable::take_back(&leader.context, object).await?;
            status.conditions.retain(|each| !unreadable::is_ours(each.reason.as_ref()));
        }
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        if leader.instances.controlled_by(uid).len() > MANY {
            tokio::time::sleep(GATHERING).await;
        }
        let world = observe::observe(leader, set)?;
        let decision = decide(&world);
        let (world, decision) = if decision.acts() {
            // Gone; the watch reports it soon.
            let Some(world) = observe::afresh(leader, &world).await? else { return Ok(None) };
            let decision = decide(&world);
            (world, decision)
        } else {
            (world, decision)
        };
        apply::apply(&leader.context, &world, &decision).await?;
        Ok(decision.recheck.map(Pause::Until))
    }

    fn gone(&self, _: &str, _: &str) {}

    fn durations(&self) -> &Durations {
        &self.0.context.reconciles.replica_sets
    }
}

#[cfg(test)]
mod tests;
