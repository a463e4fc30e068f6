//! Claims and DataVolumes, asked of the API server.

use std::collections::BTreeMap;

use garboard_api::DnsSubdomain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::DynamicObject;
use kube::{Api, Client};

use super::{Fillings, filling, is_absent, resource};
use crate::context::{ReconcileError, while_trying};

/// Claims by their name; one that does not exist is not among them.
pub(crate) type Claims = BTreeMap<String, PersistentVolumeClaim>;

/// The claims of these names.
pub(crate) async fn claims(
    client: &Client,
    namespace: &str,
    names: impl Iterator<Item = String>,
) -> Result<Claims, ReconcileError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut found = Claims::new();
    for name in names.filter(|name| may_exist(name)) {
        if let Some(claim) = api.get_opt(&name).await.map_err(while_trying("get a PersistentVolumeClaim"))? {
            found.insert(name, claim);
        }
    }
    Ok(found)
}

/// How far the DataVolumes of these names are; `claims` has theirs.
pub(crate) async fn fillings(
    client: &Client,
    namespace: &str,
    names: impl Iterator<Item = &str>,
    claims: &Claims,
) -> Result<Fillings, ReconcileError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let mut found = Fillings::new();
    for name in names {
        let volume = if may_exist(name) { volume(&api, name).await? } else { None };
        found.insert(name.to_owned(), filling(volume.as_ref().map(|volume| &volume.data), claims.get(name)));
    }
    Ok(found)
}

async fn volume(api: &Api<DynamicObject>, name: &str) -> Result<Option<DynamicObject>, ReconcileError> {
    match api.get(name).await {
        Ok(volume) => Ok(Some(volume)),
        Err(kube::Error::Api(status)) if is_absent(&status) => Ok(None),
        Err(error) => Err(while_trying("get a DataVolume")(error)),
    }
}

/// Whether anything can have this name: what cannot be asked for does not exist, and is told so.
fn may_exist(name: &str) -> bool {
    name.parse::<DnsSubdomain>().is_ok()
}
