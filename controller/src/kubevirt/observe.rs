//! How the parts of the installation do.

use garboard_api::v1::KubeVirt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Api;

use super::decide::{NotInEffect, PodCounts, World};
use super::{CONTROLLER, NODES};
use crate::context::{Context, ReconcileError, while_trying};

pub(super) async fn observe(context: &Context, object: &KubeVirt) -> Result<World, ReconcileError> {
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &context.namespace);
    let agents: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let controller = deployments.get_opt(CONTROLLER).await.map_err(while_trying("get the controller's Deployment"))?;
    let nodes = agents.get_opt(NODES).await.map_err(while_trying("get the node agents' DaemonSet"))?;
    let settings = context.settings.borrow().clone();
    let uid = |object: &KubeVirt| object.metadata.uid.clone();
    Ok(World {
        object: object.clone(),
        stray: if object.metadata.namespace.as_deref() == Some(context.namespace.as_str()) {
            settings.object.as_ref().filter(|counting| uid(counting) != uid(object)).map(|_| NotInEffect::Younger)
        } else {
            Some(NotInEffect::Elsewhere)
        },
        controller: controller.and_then(|deployment| deployment.status).map(|status| PodCounts {
            wanted: status.replicas.unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
        }),
        nodes: nodes.and_then(|agents| agents.status).map(|status| PodCounts {
            wanted: status.desired_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or(0),
            ready: status.number_ready,
        }),
        config: settings.config,
        version: context.version,
        now: jiff::Timestamp::now(),
    })
}
