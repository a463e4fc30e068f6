//! From a VirtualMachineInstance to its launcher pod, and to its status until the node agent has taken over.

mod apply;
pub mod decide;
mod fields;
pub mod memory;
mod observe;
mod readiness;
mod start;
pub mod status;
mod turned_away;

use std::sync::Arc;

use garboard_api::VirtualMachineInstance;
use garboard_launcher::vm::Chain;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;

use self::memory::Memory;
use crate::context::{Context, ReconcileError, WatchPause};

/// Reconciles every VirtualMachineInstance until the process ends.
pub async fn run(context: Context) {
    let memory = Memory::beginning(jiff::Timestamp::now());
    use futures::StreamExt;
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    let pods: Api<Pod> = Api::all(context.client.clone());
    let launchers = watcher::Config::default().labels("kubevirt.io=virt-launcher");
    Controller::new(instances, watcher::Config::default())
        .owns(pods, launchers)
        .trigger_backoff(WatchPause::default())
        .run(reconcile, failed, Arc::new(Leader { context, memory }))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// What a replica works with while it leads.
struct Leader {
    context: Context,
    memory: Memory,
}

async fn reconcile(vmi: Arc<VirtualMachineInstance>, leader: Arc<Leader>) -> Result<Action, ReconcileError> {
    let world = observe::observe(&leader, &vmi).await?;
    let decision = decide::decide(&world);
    apply::apply(&leader, &vmi, &decision).await?;
    Ok(Action::requeue(decision.recheck.unwrap_or(crate::context::SAFETY_NET)))
}

fn failed(vmi: Arc<VirtualMachineInstance>, error: &ReconcileError, _: Arc<Leader>) -> Action {
    if error.is_abnormal() {
        let (namespace, name) = (&vmi.metadata.namespace, &vmi.metadata.name);
        tracing::warn!(namespace, vmi = name, error = %Chain(error), "a VirtualMachineInstance is looked at again");
    }
    Action::requeue(error.pause())
}

#[cfg(test)]
mod tests;
