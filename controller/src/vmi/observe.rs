//! What is known of a VirtualMachineInstance, asked afresh.

use std::collections::BTreeMap;

use garboard_api::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;

use super::decide::World;
use crate::context::{Context, ReconcileError, while_trying};
use crate::pod::{self, LauncherImage};

pub(super) async fn observe(context: &Context, vmi: &VirtualMachineInstance) -> Result<World, ReconcileError> {
    let missing = |what| ReconcileError::Incomplete { what };
    let namespace = vmi.metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
    let name = pod::name(vmi).ok_or(missing("a name or UID"))?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = pods.get_opt(&name).await.map_err(while_trying("get the launcher pod"))?;
    let claims = if pod.is_some() { BTreeMap::new() } else { claims(context, vmi, namespace).await? };
    let settings = context.settings.borrow().clone();
    Ok(World {
        vmi: vmi.clone(),
        pod,
        claims,
        now: jiff::Timestamp::now(),
        launcher_image: LauncherImage {
            reference: context.launcher_image.clone(),
            pull_policy: settings.image_pull_policy().to_owned(),
        },
        config: settings.config,
    })
}

/// The claims the instance names; one that does not exist is not in the answer.
async fn claims(
    context: &Context,
    vmi: &VirtualMachineInstance,
    namespace: &str,
) -> Result<BTreeMap<String, PersistentVolumeClaim>, ReconcileError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let mut found = BTreeMap::new();
    for name in vmi.spec.volumes.iter().filter_map(pod::claim_name) {
        if let Some(claim) = api.get_opt(name).await.map_err(while_trying("get a PersistentVolumeClaim"))? {
            found.insert(name.to_owned(), claim);
        }
    }
    Ok(found)
}
