//! Requests whose answers are not read: an answer is the whole object again, and the watch brings it in any case.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::stores::{Kept, Kind};

/// An object's namespace and name.
pub type Place<'a> = (&'a str, &'a str);

/// Makes an object in a namespace.
///
/// # Errors
/// The API server refused, or could not be reached.
pub async fn create<K>(client: &Client, namespace: &str, params: &PostParams, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
{
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(namespace))).create(params, body);
    send(client, request, "create").await
}

/// Changes an object.
///
/// # Errors
/// The API server refused, or could not be reached.
pub async fn patch<K: Kind>(
    client: &Client,
    (namespace, name): Place<'_>,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> kube::Result<()> {
    let request = Request::new(Kept::<K>::url_path(&(), Some(namespace))).patch(name, params, patch);
    send(client, request, "patch").await
}

/// Changes an object's status.
///
/// # Errors
/// The API server refused, or could not be reached.
pub async fn patch_status<K: Kind>(
    client: &Client,
    (namespace, name): Place<'_>,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> kube::Result<()> {
    let request = Request::new(Kept::<K>::url_path(&(), Some(namespace)));
    send(client, request.patch_subresource("status", name, params, patch), "patch_status").await
}

async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    what: &'static str,
) -> kube::Result<()> {
    let mut request = request.map_err(Error::BuildRequest)?;
    // Its name in traces, as kube's own requests have it.
    request.extensions_mut().insert(what);
    client.request::<IgnoredAny>(request).await.map(|_| ())
}
