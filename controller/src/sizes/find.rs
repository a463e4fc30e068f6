//! The objects of one machine.

use garboard_api::instancetype::{GROUP, Matcher, Role, STORED_VERSION, Sizing, revision};
use garboard_api::v1::VirtualMachine;
use garboard_api::{DnsSubdomain, Fault, FaultCode, Kind, SentText};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

/// What a machine names.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Which of the two.
    pub role: Role,
    /// Its kind.
    pub kind: Kind,
    /// The object, or the copy of it.
    pub object: Value,
    /// The copy that it was found in.
    pub copy: Option<KeptCopy>,
}

/// A copy of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCopy {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Whether it is written as a new one would be.
    pub is_current: bool,
}

/// Everything that a machine names and that is there; what is not, the sizing has as missing.
///
/// # Errors
/// The API server refused, or could not be reached.
pub(crate) async fn find(client: &Client, vm: &VirtualMachine) -> kube::Result<(Sizing, Vec<Found>)> {
    let (mut sizing, mut all) = (Sizing::default(), Vec::new());
    for matcher in Role::BOTH.into_iter().filter_map(|role| Matcher::of(vm, role)) {
        let taken = match one(client, vm, &matcher).await? {
            Ok(found) => {
                let taken = sizing.take(matcher.role, &found.object["spec"]);
                all.push(found);
                taken.map_err(|error| missing(&matcher, &format!("{} cannot be read: {error}", matcher.shown())))
            }
            Err(fault) => Err(fault),
        };
        sizing.missing.extend(taken.err());
    }
    Ok((sizing, all))
}

async fn one(client: &Client, vm: &VirtualMachine, matcher: &Matcher<'_>) -> kube::Result<Result<Found, Fault>> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(name) = matcher.revision(vm) {
        return copied(client, namespace, matcher, name).await;
    }
    let kind = match matcher.object_kind() {
        Ok(kind) => kind,
        Err(fault) => return Ok(Err(fault)),
    };
    let absent = missing(matcher, &format!("{} does not exist", matcher.shown()));
    if matcher.name.parse::<DnsSubdomain>().is_err() {
        return Ok(Err(absent));
    }
    let resource = resource(kind);
    let objects: Api<DynamicObject> = if kind.is_of_cluster() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let Some(found) = objects.get_opt(matcher.name).await? else {
        // As the API server itself says it.
        let resource = format!("{}.{}", resource.plural, resource.group);
        return Ok(Err(absent.sent(SentText::NoObject { resource, name: matcher.name.to_owned() })));
    };
    let object = serde_json::to_value(found).unwrap_or_default();
    Ok(Ok(Found { role: matcher.role, kind, object, copy: None }))
}

async fn copied(
    client: &Client,
    namespace: &str,
    matcher: &Matcher<'_>,
    name: &str,
) -> kube::Result<Result<Found, Fault>> {
    if name.parse::<DnsSubdomain>().is_err() {
        return Ok(Err(missing(matcher, "no ControllerRevision can have the name in `revisionName`")));
    }
    let absent = |why: &str| missing(matcher, &format!("the ControllerRevision {name} {why}"));
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let Some(found) = revisions.get_opt(name).await? else { return Ok(Err(absent("does not exist"))) };
    let is_current = revision::is_current(found.metadata.labels.as_ref());
    let object = found.data.map(|RawExtension(object)| object).unwrap_or_default();
    let Some(kind) = revision::kind(matcher.role, &object) else {
        return Ok(Err(absent(&format!("is no copy of the kind that {} names", matcher.path()))));
    };
    let copy = Some(KeptCopy { name: name.to_owned(), is_current });
    Ok(Ok(Found { role: matcher.role, kind, object, copy }))
}

fn missing(matcher: &Matcher<'_>, message: &str) -> Fault {
    let fault = Fault::new(matcher.path().child("name"), FaultCode::NotFound, message);
    fault.instead("make it, or name another one")
}

fn resource(kind: Kind) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: STORED_VERSION.to_owned(),
        api_version: format!("{GROUP}/{STORED_VERSION}"),
        kind: kind.name().to_owned(),
        plural: kind.name().to_lowercase() + "s",
    }
}

#[cfg(test)]
mod tests {
    use garboard_api::kind::SIZES;

    use super::*;

    #[test]
    fn resources_are_those_of_the_definitions() {
        for kind in SIZES {
            let definition = garboard_api::crd::definition(kind).unwrap();
            let resource = resource(kind);
            assert_eq!(definition["spec"]["names"]["plural"], resource.plural);
            assert_eq!(definition["spec"]["group"], resource.group);
        }
    }
}
