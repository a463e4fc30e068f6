//! Taking back that an instance is to leave its node: the mark that the webhook of evictions sets.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use garboard_api::VirtualMachineInstance;
use garboard_subresources::evacuation;
use garboard_subresources::options::{self, EvacuateCancelOptions};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::answer::{conflict, internal, json_patch, patch_params};
use super::forward::instance_of_call;
use super::server::Serving;

/// Takes it back, if the instance is to leave a node.
pub(super) async fn cancel(serving: &Serving, call: &Call<'_>, body: &[u8]) -> Result<Response, Refusal> {
    let options: EvacuateCancelOptions = options::read(body)?;
    let dry_run = options::is_dry_run(options.dry_run.as_ref())?;
    let vmi = instance_of_call(serving, call).await?;
    let node = match evacuation::node(&vmi) {
        Some(name) => {
            let nodes: Api<Node> = Api::all(serving.context.client.clone());
            nodes.get_opt(name).await.map_err(internal)?
        }
        None => None,
    };
    if let Some(patch) = evacuation::cancel(&vmi, node.as_ref(), &options)? {
        let instances: Api<VirtualMachineInstance> = Api::namespaced(serving.context.client.clone(), call.namespace);
        instances.patch(call.name, &patch_params(dry_run), &json_patch(patch)?).await.map_err(conflict)?;
    }
    tracing::info!(dry_run, "evacuation cancelled");
    Ok(StatusCode::OK.into_response())
}
