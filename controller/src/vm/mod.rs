//! From a VirtualMachine to its VirtualMachineInstance, by its run strategy.

mod apply;
pub mod decide;
mod observe;
pub mod status;

use std::sync::Arc;

use garboard_api::{VirtualMachine, VirtualMachineInstance};
use garboard_launcher::vm::Chain;
use kube::Api;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;

use crate::context::{Context, ReconcileError, WatchPause};

/// Reconciles every VirtualMachine until the process ends.
pub async fn run(context: Context) {
    use futures::StreamExt;
    let machines: Api<VirtualMachine> = Api::all(context.client.clone());
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    Controller::new(machines, watcher::Config::default())
        .owns(instances, watcher::Config::default())
        .trigger_backoff(WatchPause::default())
        .run(reconcile, failed, Arc::new(context))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(vm: Arc<VirtualMachine>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let world = observe::observe(&context, &vm).await?;
    let decision = decide::decide(&world);
    apply::apply(&context, &world, &decision).await?;
    Ok(Action::requeue(decision.recheck.unwrap_or(crate::context::SAFETY_NET)))
}

fn failed(vm: Arc<VirtualMachine>, error: &ReconcileError, _: Arc<Context>) -> Action {
    if error.is_abnormal() {
        let (namespace, name) = (&vm.metadata.namespace, &vm.metadata.name);
        tracing::warn!(namespace, vm = name, error = %Chain(error), "a VirtualMachine is looked at again");
    }
    Action::requeue(error.pause())
}

#[cfg(test)]
mod tests;
