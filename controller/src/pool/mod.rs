//! From a VirtualMachinePool to its machines.
//!
//! Nothing is remembered of what was asked for: before something is done, the pool is read and the metadata of its machines are listed,
//! in two requests whichever number there is, and a machine that is created twice is refused by the API server, for its name is that of
//! its number ([`garboard_api::pool::name`]).

mod apply;
pub mod decide;
mod heal;
pub mod member;
mod observe;
mod order;
mod record;
mod revision;
mod rewrite;
mod status;
mod steps;
mod update;

use std::sync::Arc;
use std::time::Duration;

use crate::context::ReconcileError;
use crate::durations::Durations;
use crate::reconciler::{Pause, Reconcile};
use crate::reconcilers::Leader;
use crate::stores::{Cached, Pools};
use crate::unreadable;
use decide::decide;

/// A pool with more machines than this is many, …
const MANY: usize = 100;
/// … and events of this time are looked at together: each look reads a part of every machine in the store.
const GATHERING: Duration = Duration::from_millis(250);

/// Reconciles VirtualMachinePools.
pub struct Reconciler(pub Arc<Leader>);

impl Reconcile for Reconciler {
    type Kind = Pools;

    async fn reconcile(&self, object: &Cached<Pools>, _: u32) -> Result<Option<Pause>, ReconcileError> {
        let leader = &self.0;
        let mut pool = match object.read() {
            Ok(pool) => pool,
            Err(problem) => {
                unreadable::report_failure(&leader.context, object, &problem).await;
                return Err(problem.into());
            }
        };
        if let Some(status) = &mut pool.status
            && status.conditions.iter().any(|each| unreadable::is_ours(each.reason.as_ref()))
        {
            unreadable::take_back(&leader.context, object).await?;
            status.conditions.retain(|each| !unreadable::is_ours(each.reason.as_ref()));
        }
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        if leader.machines.controlled_by(uid).len() > MANY {
            tokio::time::sleep(GATHERING).await;
        }
        let world = observe::observe(leader, pool).await?;
        let decision = decide(&world);
        let (world, decision) = if decision.acts() {
            // Gone; the watch reports it soon.
            let Some(world) = observe::afresh(leader, &world).await? else { return Ok(None) };
            let decision = decide(&world);
            (world, decision)
        } else {
            (world, decision)
        };
        apply::apply(leader, &world, &decision).await?;
        Ok(decision.recheck.map(Pause::Until))
    }

    fn gone(&self, _: &str, _: &str) {}

    fn durations(&self) -> &Durations {
        &self.0.context.reconciles.pools
    }
}

#[cfg(test)]
mod tests;
