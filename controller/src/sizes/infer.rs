//! Which objects a machine means by the labels of its volumes.

use garboard_api::instancetype::Role;
use garboard_api::instancetype::infer::{self, Look, MOST_LOOKS, Next, Source};
use garboard_api::v1::VirtualMachine;
use garboard_api::{DnsSubdomain, Fault};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::{ApiResource, DynamicObject, Status};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;

use crate::{data_volumes, stores};

/// What there is of an object.
#[derive(Debug, PartialEq)]
enum Seen {
    Object(Value),
    /// There is none of the name.
    Absent,
    /// The cluster has no such kind.
    Unserved,
}

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
            next = match looked_at(client, look).await? {
                Seen::Object(object) => infer::follow(look, Some(&object), role, &namespace),
                Seen::Absent => infer::follow(look, None, role, &namespace),
                Seen::Unserved => infer::unserved(look, role, &namespace),
            };
        }
        if let Err(fault) = infer::settle(vm, role, next) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(()))
}

async fn looked_at(client: &Client, look: &Look) -> kube::Result<Seen> {
    // What cannot be asked for does not exist.
    if [&look.namespace, &look.name].iter().any(|name| name.parse::<DnsSubdomain>().is_err()) {
        return Ok(Seen::Absent);
    }
    match look.source {
        Source::Claim => {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &look.namespace);
            seen(claims.get(&look.name).await)
        }
        Source::DataVolume => dynamic(client, look, &data_volumes::resource()).await,
        Source::DataSource => dynamic(client, look, &sources()).await,
        Source::Snapshot => dynamic(client, look, &snapshots()).await,
    }
}

async fn dynamic(client: &Client, look: &Look, resource: &ApiResource) -> kube::Result<Seen> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &look.namespace, resource);
    seen(objects.get(&look.name).await)
}

fn seen(answer: kube::Result<impl Serialize>) -> kube::Result<Seen> {
    match answer {
        Ok(object) => serde_json::to_value(object).map(Seen::Object).map_err(kube::Error::SerdeError),
        Err(kube::Error::Api(status)) if stores::is_absent(&status) => Ok(missing(&status)),
        Err(error) => Err(error),
    }
}

/// The answer about an object has its name. Of a kind that is not served there is no such path, and no name in the answer.
fn missing(status: &Status) -> Seen {
    let is_of_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    if is_of_object { Seen::Absent } else { Seen::Unserved }
}

fn sources() -> ApiResource {
    let volumes = data_volumes::resource();
    ApiResource { kind: Source::DataSource.kind().to_owned(), plural: "datasources".to_owned(), ..volumes }
}

fn snapshots() -> ApiResource {
    ApiResource {
        group: "snapshot.storage.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "snapshot.storage.k8s.io/v1".to_owned(),
        kind: Source::Snapshot.kind().to_owned(),
        plural: "volumesnapshots".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: Value) -> kube::Result<Value> {
        let status: Status = serde_json::from_value(status).unwrap();
        Err(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_kind_that_is_not_served_is_no_object_that_does_not_exist() {
        let absent = json!({"status": "Failure", "reason": "NotFound", "code": 404, "message": "not found",
            "details": {"name": "s", "group": "snapshot.storage.k8s.io", "kind": "volumesnapshots"}});
        assert_eq!(seen(answer(absent)).unwrap(), Seen::Absent);
        // What the client makes of an answer that is plain text.
        let unserved = json!({"status": "Failure", "reason": "Failed to parse error data", "code": 404,
            "message": "404 page not found"});
        assert_eq!(seen(answer(unserved)).unwrap(), Seen::Unserved);
        let refused = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
        assert!(seen(answer(refused)).is_err());
        assert_eq!(seen(Ok(json!({"metadata": {}}))).unwrap(), Seen::Object(json!({"metadata": {}})));
    }
}
