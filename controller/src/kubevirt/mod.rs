//! The KubeVirt object's status: how the installation does. Its settings are read elsewhere (`crate::settings`).
//!
//! One that cannot be read is kept as it is, and keeps no other from its status: its own status reports it (`crate::unreadable`).

pub mod decide;
mod observe;

use std::sync::Arc;

use garboard_api::v1::KubeVirt;
use garboard_log::otlp;
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;
use tracing::Instrument;

use crate::context::{Context, FIELD_MANAGER, ReconcileError, while_trying};
use crate::reconciler::span;
use crate::stores::{Cached, Installations, ObjectKey};
use crate::{unreadable, upgrade};

/// Name of the controller's Deployment.
pub const CONTROLLER: &str = "garboard-controller";
/// Name of the node agents' DaemonSet.
pub const NODES: &str = "garboard-node";
/// How often the installation is looked at though no watch reported a change.
const PERIOD: std::time::Duration = std::time::Duration::from_secs(60);

/// Keeps the status of every KubeVirt object until the process ends.
pub async fn run(context: Context) {
    use futures::StreamExt;
    let objects: Api<Cached<Installations>> = Api::all(context.client.clone());
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &context.namespace);
    let agents: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let controller = Controller::new(objects, watcher::Config::default());
    let known = controller.store();
    let all = move || known.state().into_iter().map(|object| ObjectRef::from_obj(&*object)).collect::<Vec<_>>();
    let all_again = all.clone();
    controller
        .watches(deployments, watcher::Config::default(), move |_| all())
        .watches(agents, watcher::Config::default(), move |_| all_again())
        .run(in_its_span, failed, Arc::new(context))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn in_its_span(kept: Arc<Cached<Installations>>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let span = span(&kept, None);
    let outcome = reconcile(kept, context).instrument(span.clone()).await;
    if let Err(error) = &outcome {
        let error = ErrorChain(error);
        otlp::failed(&span, &error);
        span.in_scope(|| tracing::warn!(%error, "reconcile of a KubeVirt object failed; tried again"));
    }
    outcome
}

async fn reconcile(kept: Arc<Cached<Installations>>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let mut object = match kept.read() {
        Ok(object) => object,
        Err(problem) => {
            let ObjectKey { namespace, name } = kept.key();
            tracing::warn!(namespace, name, %problem, "the status of a KubeVirt object could not be parsed; it is not written");
            unreadable::report_failure(&context, &kept, &problem).await;
            return Ok(Action::requeue(PERIOD));
        }
    };
    if let Some(status) = &mut object.status
        && status.conditions.iter().any(|each| unreadable::is_ours(each.reason.as_ref()))
    {
        unreadable::take_back(&context, &kept).await?;
        status.conditions.retain(|each| !unreadable::is_ours(each.reason.as_ref()));
    }
    upgrade::leave_out(&mut object);
    let world = observe::observe(&context, &object).await?;
    let status = decide::decide(&world);
    if object.status.as_ref() != Some(&status) {
        let namespace = object.namespace().ok_or(ReconcileError::Incomplete { what: "a namespace" })?;
        let objects: Api<KubeVirt> = Api::namespaced(context.client.clone(), &namespace);
        let applied = json!({ "apiVersion": garboard_api::v1::API_VERSION, "kind": "KubeVirt", "status": status });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match objects.patch_status(&object.name_any(), &params, &Patch::Apply(applied)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(while_trying("write the status of the KubeVirt object")(error)),
        }
    }
    Ok(Action::requeue(PERIOD))
}

fn failed(_: Arc<Cached<Installations>>, error: &ReconcileError, _: Arc<Context>) -> Action {
    Action::requeue(error.pause())
}
