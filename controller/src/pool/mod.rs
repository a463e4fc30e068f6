//! From a VirtualMachinePool to its machines.
//!
//! Nothing is remembered of what was asked for: before something is done, the pool is read, and before machines come or go the metadata of
//! all are listed, in two requests whichever number there is. A machine that is created twice is refused by the API server, for its name
//! is that of its number ([`garboard_api::pool::name`]), and so is the deletion of one that was written since.

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
use decide::{Decision, World, decide};

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
        // Gone; the watch reports it soon.
        let Some((world, decision)) = decide_afresh(leader, world).await? else { return Ok(None) };
        apply::apply(leader, &world, &decision).await?;
        Ok(decision.recheck.map(Pause::Until))
    }

    fn gone(&self, _: &str, _: &str) {}

    fn durations(&self) -> &Durations {
        &self.0.context.reconciles.pools
    }
}

/// What is to be done, in a world of which the API server was asked as far as [it needs that](Decision::needs_list): its machines are listed
/// once at most. Nothing if the pool is gone.
async fn decide_afresh(leader: &Leader, world: World) -> Result<Option<(World, Decision)>, ReconcileError> {
    let decision = decide(&world);
    if !decision.acts() {
        return Ok(Some((world, decision)));
    }
    if !decision.needs_list() {
        let Some(read) = observe::afresh(leader, &world, false).await? else { return Ok(None) };
        let decision = decide(&read);
        // The pool may ask for more by now.
        if !decision.needs_list() {
            return Ok(Some((read, decision)));
        }
    }
    let Some(listed) = observe::afresh(leader, &world, true).await? else { return Ok(None) };
    let decision = decide(&listed);
    Ok(Some((listed, decision)))
}

#[cfg(test)]
mod tests;
