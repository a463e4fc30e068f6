//! What is known of a VirtualMachineInstance: out of the stores, and of the API server where they may lag.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::metadata::label;
use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;

use super::decide::World;
use super::history::{Place, PodHistory};
use super::{pod_status, remains};
use crate::context::{ReconcileError, while_trying};
use crate::data_volumes::observe::{self, Claims};
use crate::data_volumes::{self, ProgressByName};
use crate::pod::{self, LauncherImage};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::{Cached, ObjectKey, Pods};
use crate::time::elapsed;

/// How long the watch may take to deliver a pod that was just made, before the API server is asked for it.
const DELIVERY: Duration = Duration::from_secs(5);

/// What is known of an instance's pod.
pub(super) enum PodLookup {
    /// It is there.
    There(Box<Pod>),
    /// There is none.
    Absent,
    /// It was made a moment ago, and the watch has not delivered it yet.
    Expected,
}

/// Looks for the pod that the instance owns, whatever its name.
pub(super) async fn look_up(leader: &Leader, vmi: &VirtualMachineInstance) -> Result<PodLookup, ReconcileError> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    if let Some(pod) = choose(vmi, &leader.pods.controlled_by(uid))? {
        return Ok(PodLookup::There(Box::new(pod)));
    }
    let (phase, known) = (Phase::of(vmi), leader.histories.of(uid));
    let had_pod = phase > Phase::Pending || known.had_pod();
    // A pod that was seen may have been listed, and not be delivered by the watch yet: the API server is asked.
    let is_over = phase.is_final() && vmi.metadata.deletion_timestamp.is_none();
    if !had_pod || is_over {
        return Ok(PodLookup::Absent);
    }
    if known.made.is_some_and(|made| elapsed(made, jiff::Timestamp::now()) < DELIVERY) {
        return Ok(PodLookup::Expected);
    }
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let pods: Api<Cached<Pods>> = Api::namespaced(leader.context.client.clone(), namespace);
    let of_vmi = ListParams::default().labels(&format!("{}={uid}", label::CREATED_BY));
    let found = pods.list(&of_vmi).await.map_err(while_trying("list the launcher pods of an instance"))?;
    let owned = found.items.into_iter().filter(|pod| pod.controller().is_some_and(|owner| owner.uid == uid));
    let owned: Vec<_> = owned.map(Arc::new).collect();
    Ok(choose(vmi, &owned)?.map_or(PodLookup::Absent, |pod| PodLookup::There(Box::new(pod))))
}

/// One of an instance's pods: one that is not over, and of several that with the name that this release gives.
fn choose(vmi: &VirtualMachineInstance, pods: &[Arc<Cached<Pods>>]) -> Result<Option<Pod>, ReconcileError> {
    let pods: Vec<Pod> = pods.iter().map(|pod| pod.read()).collect::<Result<_, _>>()?;
    let name = pod::name(vmi);
    Ok(pods.into_iter().min_by_key(|pod| (pod_status::is_over(pod), pod.metadata.name != name)))
}

pub(super) async fn observe(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    pod: Option<Pod>,
) -> Result<World, ReconcileError> {
    // An instance that has had its pod, or goes, must not be kept from its end by a claim that cannot be read.
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let (phase, known) = (Phase::of(vmi), leader.histories.of(uid));
    let had_pod = (phase > Phase::Pending || known.had_pod()) && !known.rejected;
    let is_begun = pod.is_some() || had_pod || phase.is_final() || vmi.metadata.deletion_timestamp.is_some();
    let (claims, data_volumes) = if is_begun { Default::default() } else { storage(leader, vmi).await? };
    let settings = leader.context.settings.borrow().clone();
    let now = jiff::Timestamp::now();
    let history = history(leader, vmi, pod.as_ref(), now);
    Ok(World {
        vmi: vmi.clone(),
        agent_lives: pod.is_none() && agent_lives(leader, vmi, &history, now).await?,
        history,
        leading_since: leader.histories.since(),
        pod,
        claims,
        data_volumes,
        now,
        launcher_image: LauncherImage {
            reference: leader.context.launcher_image.clone(),
            pull_policy: settings.image_pull_policy().to_owned(),
        },
        config: settings.config,
    })
}

/// Where a pod is.
fn place(pod: &Pod) -> Option<Place> {
    let node = pod_status::node(pod)?.to_owned();
    Some(Place { pod_uid: pod.metadata.uid.clone()?, node })
}

/// Whether the agent can answer for the node of an instance's last pod. No agent is asked while an instance has not had one.
async fn agent_lives(
    leader: &Leader,
    vmi: &VirtualMachineInstance,
    history: &PodHistory,
    now: jiff::Timestamp,
) -> Result<bool, ReconcileError> {
    let had_pod = Phase::of(vmi) > Phase::Pending || history.had_pod() || remains::is_open(vmi.status.as_ref());
    let place = remains::last_place(vmi.status.as_ref(), history.place.as_ref());
    let Some(place) = place.filter(|_| had_pod && !Phase::of(vmi).is_final()) else { return Ok(false) };
    let nodes: Api<Node> = Api::all(leader.context.client.clone());
    match nodes.get_opt(&place.node).await {
        Ok(node) => Ok(node.is_some_and(|node| remains::lives(&node, now))),
        // Of a release whose manifests did not give this right.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
        Err(error) => Err(while_trying("get the node of the launcher pod")(error)),
    }
}

/// What is remembered of the instance's pod with what was seen now. What is in its status need not be remembered.
fn history(leader: &Leader, vmi: &VirtualMachineInstance, pod: Option<&Pod>, now: jiff::Timestamp) -> PodHistory {
    let (histories, uid) = (&leader.histories, vmi.metadata.uid.as_deref().unwrap_or_default());
    let phase = Phase::of(vmi);
    let over = pod.filter(|pod| pod_status::is_over(pod)).map(|_| now);
    match pod {
        _ if phase.is_final() => histories.forget(uid),
        // Until then a kubelet may reject it, and how often that was counts.
        Some(_) if phase >= Phase::Running && over.is_none() => histories.forget(uid),
        Some(pod) => return histories.seen(uid, place(pod), over),
        None if phase > Phase::Pending || histories.of(uid).had_pod() || remains::is_open(vmi.status.as_ref()) => {
            return histories.missing(uid, now);
        }
        None => {}
    }
    histories.of(uid)
}

/// The claims the instance names, and how far those are that are filled first.
async fn storage(leader: &Leader, vmi: &VirtualMachineInstance) -> Result<(Claims, ProgressByName), ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = vmi.metadata.name.as_deref().ok_or(missing("a name"))?;
    let waiter = Waiter::Instance(ObjectKey::new(namespace, name));
    let named: BTreeSet<&str> = data_volumes::names(&vmi.spec).collect();
    let data_volumes = observe::data_volumes(leader, namespace, named, &waiter).await?;
    // A machine that waits for its data asks for nothing else.
    let waits = data_volumes::obstacle(&data_volumes).is_some();
    let names = vmi.spec.claims(name).filter(|_| !waits);
    let claims = observe::claims(leader, namespace, names, &waiter).await?;
    Ok((claims, data_volumes))
}
