//! Which objects a machine means by the labels of its volumes.

use garboard_api::instancetype::Role;
use garboard_api::instancetype::infer::{self, Look, MOST_LOOKS, Next, Source};
use garboard_api::v1::VirtualMachine;
use garboard_api::{DnsSubdomain, Fault};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

use crate::data_volumes;

/// Writes the names into a machine. It is read with the controller's rights, of the objects that the machine leads to: labels alone.
///
/// # Errors
/// The API server refused, or could not be reached; beside that, why nothing is named.
pub(crate) async fn infer(client: &Client, vm: &mut VirtualMachine) -> kube::Result<Result<(), Fault>> {
    for role in Role::BOTH {
        let Some(matcher) = infer::is_due(vm, role) else { continue };
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let mut next = infer::begin(vm, &matcher);
        for _ in 0..MOST_LOOKS {
            let Next::Look(look) = &next else { break };
            let object = looked_at(client, look).await?;
            next = infer::follow(look, object.as_ref(), role, &namespace);
        }
        if let Err(fault) = infer::settle(vm, role, next) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(()))
}

async fn looked_at(client: &Client, look: &Look) -> kube::Result<Option<Value>> {
    // What cannot be asked for does not exist.
    if [&look.namespace, &look.name].iter().any(|name| name.parse::<DnsSubdomain>().is_err()) {
        return Ok(None);
    }
    let found = match look.source {
        Source::Claim => {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &look.namespace);
            claims.get_opt(&look.name).await?.map(serde_json::to_value)
        }
        Source::DataVolume => dynamic(client, look, &data_volumes::resource()).await?,
        Source::DataSource => dynamic(client, look, &sources()).await?,
    };
    found.transpose().map_err(kube::Error::SerdeError)
}

async fn dynamic(
    client: &Client,
    look: &Look,
    resource: &ApiResource,
) -> kube::Result<Option<serde_json::Result<Value>>> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &look.namespace, resource);
    // Also where the cluster has no importer: then there is no such path.
    Ok(objects.get_opt(&look.name).await?.map(serde_json::to_value))
}

fn sources() -> ApiResource {
    let volumes = data_volumes::resource();
    ApiResource { kind: Source::DataSource.kind().to_owned(), plural: "datasources".to_owned(), ..volumes }
}
