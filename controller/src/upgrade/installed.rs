//! What is installed, asked of the API server while supervisors are outdated: whether the Deployment names the image of this
//! controller, and which node agents are ready.

use std::collections::BTreeSet;

use garboard_api::conditions::PodConditionType;
use garboard_cluster::report::condition::condition;
use garboard_protocol::causes::ErrorChain;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::ListParams;

use super::names::{LOOK_EVERY, LOOK_RARELY};
use crate::context::Context;
use crate::kubevirt::{CONTROLLER, NODES};
use crate::time::elapsed;

/// By which the pods of the node agents are found.
const AGENT_SELECTOR: &str = "app.kubernetes.io/component=node";
/// How the controller is given the image of launchers.
const OPTION: &str = "--launcher-image";
const VARIABLE: &str = "GARBOARD_LAUNCHER_IMAGE";

/// What is installed.
#[derive(Clone, Debug, Default)]
pub(super) struct Installed {
    /// The Deployment gives the image of this controller to launchers.
    pub(super) is_ours: bool,
    /// Nodes whose agents are of the installed version, and ready.
    pub(super) agents: BTreeSet<String>,
}

/// Looks now and then.
#[derive(Default)]
pub(super) struct Lookout {
    last: Option<Look>,
}

struct Look {
    at: Timestamp,
    is_active: bool,
    found: Option<Installed>,
}

impl Lookout {
    /// What is installed; agents are asked for only where it `is_active`: supervisors may be replaced. Nothing without an answer.
    pub(super) async fn look(&mut self, context: &Context, is_active: bool, now: Timestamp) -> Option<Installed> {
        let is_good = |look: &&Look| {
            let every = if is_active || look.found.is_none() { LOOK_EVERY } else { LOOK_RARELY };
            elapsed(look.at, now) < every && (look.is_active || !is_active)
        };
        if let Some(look) = self.last.as_ref().filter(is_good) {
            return look.found.clone();
        }
        let found = match ask(context, is_active).await {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not read the Deployment of the controllers and the DaemonSet of the node agents");
                None
            }
        };
        self.last = Some(Look { at: now, is_active, found: found.clone() });
        found
    }
}

async fn ask(context: &Context, is_active: bool) -> kube::Result<Installed> {
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &context.namespace);
    let deployment = deployments.get_opt(CONTROLLER).await?;
    let is_ours = deployment.is_none_or(|deployment| names(&deployment, &context.launcher_image));
    if !is_ours || !is_active {
        return Ok(Installed { is_ours, agents: BTreeSet::new() });
    }
    let sets: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
    let selected = ListParams::default().labels(AGENT_SELECTOR);
    let (set, pods) = futures::try_join!(sets.get_opt(NODES), pods.list(&selected))?;
    Ok(Installed { is_ours, agents: set.map(|set| current_agents(&set, &pods.items)).unwrap_or_default() })
}

/// Whether a Deployment of controllers gives this image to launchers. Where its image cannot be read here, it
/// does when all its pods are of its template, for this is one of them.
pub(super) fn names(deployment: &Deployment, image: &str) -> bool {
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let named = spec.and_then(|spec| spec.containers.iter().find_map(named_image));
    match named {
        Some(named) => named == image,
        None => deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation == deployment.metadata.generation
                && status.updated_replicas.is_some()
                && status.updated_replicas == status.replicas
        }),
    }
}

fn named_image(container: &Container) -> Option<String> {
    let arguments: Vec<&String> = container.command.iter().chain(&container.args).flatten().collect();
    let joined = arguments.iter().find_map(|argument| argument.strip_prefix(OPTION)?.strip_prefix('='));
    let apart = arguments
        .iter()
        .zip(arguments.iter().skip(1))
        .find(|(argument, _)| **argument == OPTION)
        .map(|(_, next)| next.as_str());
    let variable = container.env.iter().flatten().find(|each| each.name == VARIABLE);
    let named = joined.or(apart).or_else(|| variable?.value.as_deref())?;
    // The kubelet puts in what stands elsewhere.
    (!named.contains("$(")).then(|| named.to_owned())
}

/// Nodes of the agents that are ready and have the image of the DaemonSet's template; where all have been rolled out, an image
/// that something else has rewritten counts as the same.
pub(super) fn current_agents(set: &DaemonSet, pods: &[Pod]) -> BTreeSet<String> {
    let first =
        |pod: Option<&k8s_openapi::api::core::v1::PodSpec>| pod.and_then(|spec| spec.containers.first()?.image.clone());
    let wanted = first(set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()));
    let is_whole = set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.updated_number_scheduled == Some(status.desired_number_scheduled)
    });
    let is_ready = |pod: &Pod| condition(pod, PodConditionType::Ready.name()).is_some_and(|each| each.status == "True");
    let current = pods.iter().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
    let current = current.filter(|pod| is_whole || first(pod.spec.as_ref()) == wanted);
    current.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}
