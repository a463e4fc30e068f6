//! The supervisors of running pods are replaced when the controller is given another image for launchers. Guests run on.
//!
//! An installation is upgraded in this order: definitions and rights, controllers, node agents, and then the supervisors of
//! running pods, node by node as the agents of the installed version are ready. Going back is the same with the image of before.
//! Only the leader does it, and only while the Deployment of the controllers names its image: two versions may take turns as leaders
//! while one of them is rolled out. A pod whose supervisor is of the image that the controller gives to new pods costs nothing: no
//! request is made for it.

mod apply;
pub mod decide;
mod installed;
pub mod names;
mod observe;
mod progress;
pub mod world;

use std::collections::HashSet;
use std::sync::Arc;

use garboard_api::conditions;
use garboard_api::v1::KubeVirt;
use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Instrument;

use self::decide::decide;
use self::names::{LAUNCHERS_UPDATED, ROUND};
use self::observe::Observer;
use self::world::RoundMemory;
use crate::reconcilers::Leader;
use crate::stores::ObjectKey;

/// Where launcher pods that have changed are handed in.
pub type Changed = UnboundedSender<ObjectKey>;

/// A way for launcher pods that have changed. What is handed in is taken every second at least.
#[must_use]
pub fn changes() -> (Changed, UnboundedReceiver<ObjectKey>) {
    unbounded_channel()
}

/// Takes what this module writes out of a KubeVirt object, for the writer of the rest of its status.
pub fn leave_out(object: &mut KubeVirt) {
    if let Some(status) = &mut object.status {
        status.outdated_virtual_machine_instance_workloads = None;
        conditions::remove(&mut status.conditions, LAUNCHERS_UPDATED);
    }
}

/// Replaces supervisors for as long as this replica leads, once all launcher pods and instances are known.
pub async fn run(leader: Arc<Leader>, mut changed: UnboundedReceiver<ObjectKey>) {
    let mut observer = Observer::new(leader.clone());
    let mut memory = RoundMemory::default();
    for number in 1_u64.. {
        let mut keys = HashSet::new();
        if observer.is_idle() {
            // Nothing is outdated: only a pod that changes may make a difference.
            let Some(key) = changed.recv().await else { return };
            keys.insert(key);
        } else {
            tokio::time::sleep(ROUND).await;
        }
        while let Ok(key) = changed.try_recv() {
            keys.insert(key);
        }
        observer.look_at(&keys);
        // What is logged in a round belongs to it.
        let span = tracing::info_span!("upgrade", round = number);
        memory = round(&leader, &mut observer, memory).instrument(span).await;
    }
}

async fn round(leader: &Leader, observer: &mut Observer, memory: RoundMemory) -> RoundMemory {
    let Some(world) = observer.observe(&memory, Timestamp::now()).await else { return memory };
    let decision = decide(&world, &memory);
    apply::apply(&leader.context, &world, decision).await
}

#[cfg(test)]
mod tests;
