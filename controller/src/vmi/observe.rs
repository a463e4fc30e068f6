//! What is known of a VirtualMachineInstance, asked afresh.

use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::Leader;
use super::decide::World;
use super::memory::Trace;
use crate::context::{Context, ReconcileError, while_trying};
use crate::data_volumes::observe::{self, Claims};
use crate::data_volumes::{self, Fillings};
use crate::pod::{self, LauncherImage};

pub(super) async fn observe(leader: &Leader, vmi: &VirtualMachineInstance) -> Result<World, ReconcileError> {
    let context = &leader.context;
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = pod::name(vmi).ok_or(missing("a name or UID"))?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = pods.get_opt(&name).await.map_err(while_trying("get the launcher pod"))?;
    // An instance that has had its pod, or goes, must not be kept from its end by a claim that cannot be read.
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let (phase, known) = (Phase::of(vmi), leader.memory.of(uid));
    let had_pod = (phase > Phase::Pending || known.had_pod()) && !known.turned_away;
    let is_begun = pod.is_some() || had_pod || phase.is_final() || vmi.metadata.deletion_timestamp.is_some();
    let (claims, fillings) = if is_begun { Default::default() } else { storage(context, vmi, namespace).await? };
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
    let over = pod.filter(|pod| super::status::is_over(pod)).map(|_| now);
    match pod {
        _ if phase.is_final() => memory.forget(uid),
        // Until then a kubelet may turn it away, and how often that was counts.
        Some(_) if phase >= Phase::Running && over.is_none() => memory.forget(uid),
        Some(pod) => return memory.seen(uid, super::status::node(pod).is_some(), over),
        None if phase > Phase::Pending || memory.of(uid).had_pod() => return memory.missing(uid, now),
        None => {}
    }
    memory.of(uid)
}

/// The claims the instance names, and how far those are that are filled first.
async fn storage(
    context: &Context,
    vmi: &VirtualMachineInstance,
    namespace: &str,
) -> Result<(Claims, Fillings), ReconcileError> {
    let names = vmi.spec.claims(vmi.metadata.name.as_deref().unwrap_or_default());
    let claims = observe::claims(&context.client, namespace, names).await?;
    let named = data_volumes::names(&vmi.spec);
    let fillings = observe::fillings(&context.client, namespace, named, &claims).await?;
    Ok((claims, fillings))
}
