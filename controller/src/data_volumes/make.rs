//! Making DataVolumes, as an account of their own.

use http::HeaderValue;
use kube::core::{DynamicObject, Request};
use kube::{Client, Resource};

use crate::context::made_by_us;

/// The service account that DataVolumes are made as, in the namespace of the installation. It may create DataVolumes and has
/// no right to a pod or to a claim.
const ACCOUNT: &str = "garboard-datavolumes";

/// Kubernetes' header for a request that is judged as another account's.
const IMPERSONATE: &str = "impersonate-user";

/// Makes a DataVolume. `installed_in` is the namespace of the installation, where the account is.
///
/// # Errors
/// The error of the API server, also where the controller may not act as the account.
pub(crate) async fn make(client: &Client, installed_in: &str, volume: &DynamicObject) -> kube::Result<DynamicObject> {
    let namespace = volume.metadata.namespace.as_deref();
    let body = serde_json::to_vec(volume).map_err(kube::Error::SerdeError)?;
    let path = DynamicObject::url_path(&super::resource(), namespace);
    let mut request = Request::new(path).create(&made_by_us(), body).map_err(kube::Error::BuildRequest)?;
    let account = format!("system:serviceaccount:{installed_in}:{ACCOUNT}");
    let account = HeaderValue::try_from(account).map_err(|error| kube::Error::HttpError(error.into()))?;
    request.headers_mut().insert(IMPERSONATE, account);
    client.request(request).await
}
