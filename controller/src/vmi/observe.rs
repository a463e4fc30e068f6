//! What is known of a VirtualMachineInstance, asked afresh.

use std::collections::BTreeMap;

use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;

use super::Leader;
use super::decide::World;
use super::memory::Trace;
use crate::context::{Context, ReconcileError, while_trying};
use crate::data_volumes;
use crate::pod::{self, LauncherImage};

pub(super) async fn observe(leader: &Leader, vmi: &VirtualMachineInstance) -> Result<World, ReconcileError> {
    let context = &leader.context;
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = pod::name(vmi).ok_or(missing("a name or UID"))?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = pods.get_opt(&name).await.map_err(while_trying("get the launcher pod"))?;
    let claims = if pod.is_some() { BTreeMap::new() } else { claims(context, vmi, namespace).await? };
    let named: Vec<&str> = if pod.is_some() { Vec::new() } else { data_volumes::names(&vmi.spec).collect() };
    let fillings = data_volumes::observe(&context.client, namespace, named.into_iter()).await?;
    let settings = context.settings.borrow().clone();
    let now = jiff::Timestamp::now();
    Ok(World {
        vmi: vmi.clone(),
        trace: trace(leader, vmi, pod.as_ref(), now),
        leading_since: leader.memory.since(),
        pod,
        claims,
        fillings,
        now,
        launcher_image: LauncherImage {
            reference: context.launcher_image.clone(),
            pull_policy: settings.image_pull_policy().to_owned(),
        },
        config: settings.config,
    })
}

/// What is remembered of the instance's pod with what was seen now. What its status says need not be remembered.
fn trace(leader: &Leader, vmi: &VirtualMachineInstance, pod: Option<&Pod>, now: jiff::Timestamp) -> Trace {
    let (memory, uid) = (&leader.memory, vmi.metadata.uid.as_deref().unwrap_or_default());
    let phase = Phase::of(vmi);
    match pod {
        _ if phase.is_final() => memory.forget(uid),
        Some(_) if phase >= Phase::Scheduled && !memory.of(uid).turned_away => memory.forget(uid),
        Some(pod) => return memory.seen(uid, super::status::node(pod).is_some()),
        None if phase > Phase::Pending || memory.of(uid).had_pod() => return memory.missing(uid, now),
        None => {}
    }
    memory.of(uid)
}

/// The claims the instance names; one that does not exist is not in the answer.
async fn claims(
    context: &Context,
    vmi: &VirtualMachineInstance,
    namespace: &str,
) -> Result<BTreeMap<String, PersistentVolumeClaim>, ReconcileError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let mut found = BTreeMap::new();
    for name in vmi.spec.claims(vmi.metadata.name.as_deref().unwrap_or_default()) {
        if let Some(claim) = api.get_opt(&name).await.map_err(while_trying("get a PersistentVolumeClaim"))? {
            found.insert(name, claim);
        }
    }
    Ok(found)
}
