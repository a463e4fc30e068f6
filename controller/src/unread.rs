//! Requests whose answers are not read: an answer is the whole object again, and the watch brings it in any case.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::context::ReconcileError;
use crate::stores::{Cached, Kind};

/// Which object of its kind.
#[derive(Clone, Copy, Debug)]
pub struct NamespacedName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl<'a> NamespacedName<'a> {
    /// That of an object.
    ///
    /// # Errors
    /// [`ReconcileError::Incomplete`]: the API server sent it without one of the two.
    pub fn of(metadata: &'a ObjectMeta) -> Result<Self, ReconcileError> {
        let missing = |what| ReconcileError::Incomplete { what };
        let namespace = metadata.namespace.as_deref().ok_or(missing("a namespace"))?;
        let name = metadata.name.as_deref().ok_or(missing("a name"))?;
        Ok(Self { namespace, name })
    }
}

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
    object: NamespacedName<'_>,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> kube::Result<()> {
    let request = Request::new(Cached::<K>::url_path(&(), Some(object.namespace))).patch(object.name, params, patch);
    send(client, request, "patch").await
}

/// Changes an object's status.
///
/// # Errors
/// The API server refused, or could not be reached.
pub async fn patch_status<K: Kind>(
    client: &Client,
    object: NamespacedName<'_>,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> kube::Result<()> {
    let request = Request::new(Cached::<K>::url_path(&(), Some(object.namespace)));
    send(client, request.patch_subresource("status", object.name, params, patch), "patch_status").await
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
