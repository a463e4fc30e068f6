//! Where API servers have objects converted: `spec.conversion` of the definitions whose kinds are served in a version with other fields.
//! The manifest has none, so that applying it again takes nothing away, and a namespace of one's own needs no other manifest.

use garboard_api::crd;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Chain;
use super::keep::SECRET;
use super::publish::bundle;
use crate::context::{FIELD_MANAGER, ReconcileError, while_trying};
use crate::webhook::paths::Webhook;

/// The definitions of kinds with a version that is converted.
pub(super) const DEFINITIONS: [&str; 2] = ["virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io"];

/// The port of the Service that the webhooks are behind.
const PORT: i32 = 443;

/// A definition without its schemas, which are most of it.
pub(super) type Definition = Object<Conversion, NotUsed>;

/// What of a definition is the controller's.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Conversion {
    #[serde(default)]
    conversion: Option<CustomResourceConversion>,
    #[serde(default)]
    versions: Vec<Named>,
}

/// A version.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Named {
    name: String,
}

fn api(client: &Client) -> Api<Definition> {
    Api::all_with(client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()))
}

/// Reads those that are there.
///
/// # Errors
/// The API server cannot be asked.
pub(super) async fn read(client: &Client) -> Result<Vec<Definition>, ReconcileError> {
    let mut found = Vec::new();
    for name in DEFINITIONS {
        let definition = api(client).get_opt(name).await;
        found.extend(definition.map_err(while_trying("get the definitions whose objects are converted"))?);
    }
    Ok(found)
}

/// Writes where to ask, where it is not written.
///
/// # Errors
/// The API server refuses, or cannot be asked.
pub(super) async fn write(
    client: &Client,
    definitions: &[Definition],
    chain: &Chain,
    namespace: &str,
) -> Result<(), ReconcileError> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for definition in definitions {
        if let Some(patch) = patch(definition, chain, namespace) {
            let trying = while_trying("publish where objects of older versions are converted");
            api(client).patch(&definition.name_any(), &params, &Patch::Apply(patch)).await.map_err(trying)?;
        }
    }
    Ok(())
}

/// What is to be applied to a definition; nothing if it has it already, or has no version that is converted.
pub(super) fn patch(definition: &Definition, chain: &Chain, namespace: &str) -> Option<Value> {
    let is_converted = definition.spec.versions.iter().any(|version| version.name == crd::FIRST_VERSION);
    let path = chain.paths.as_ref()?.of(Webhook::Convert);
    let bundle = bundle(chain);
    if !is_converted || is_known(definition, &bundle, &path, namespace) {
        return None;
    }
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": definition.name_any() },
        "spec": { "conversion": { "strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": bundle,
                "service": { "namespace": namespace, "name": SECRET, "port": PORT, "path": path },
            },
        } } },
    }))
}

fn is_known(definition: &Definition, bundle: &ByteString, path: &str, namespace: &str) -> bool {
    let conversion = definition.spec.conversion.as_ref();
    let config = conversion
        .filter(|conversion| conversion.strategy == "Webhook")
        .and_then(|conversion| conversion.webhook.as_ref()?.client_config.as_ref());
    let Some(config) = config else { return false };
    let is_ours = config.service.as_ref().is_some_and(|service| {
        service.path.as_deref() == Some(path) && service.namespace == namespace && service.name == SECRET
    });
    is_ours && config.ca_bundle.as_ref() == Some(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::paths::Paths;

    const NAMESPACE: &str = "elsewhere";

    fn definition(versions: &[&str], conversion: &Value) -> Definition {
        let versions: Vec<Value> = versions.iter().map(|name| json!({ "name": name, "schema": {} })).collect();
        serde_json::from_value(json!({
            "metadata": { "name": DEFINITIONS[0] }, "spec": { "conversion": conversion, "versions": versions },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_published_is_known_and_what_was_changed_is_written_again() {
        let chain = Chain { paths: Some(Paths::random()), ..Chain::default() };
        let all = ["v1", "v1alpha3", "v1alpha2"];
        let written = patch(&definition(&all, &json!({ "strategy": "None" })), &chain, NAMESPACE).unwrap();
        let conversion = &written["spec"]["conversion"];
        assert_eq!(conversion["webhook"]["clientConfig"]["service"]["namespace"], NAMESPACE);
        assert_eq!(patch(&definition(&all, conversion), &chain, NAMESPACE), None);
        assert!(patch(&definition(&all, conversion), &chain, "garboard").is_some(), "another namespace");
        let renewed = Chain { paths: Some(Paths::random()), ..Chain::default() };
        assert!(patch(&definition(&all, conversion), &renewed, NAMESPACE).is_some(), "another path");
    }

    #[test]
    fn a_definition_of_an_earlier_manifest_is_left_alone() {
        let chain = Chain { paths: Some(Paths::random()), ..Chain::default() };
        assert_eq!(patch(&definition(&["v1", "v1alpha3"], &json!({ "strategy": "None" })), &chain, NAMESPACE), None);
    }

    #[test]
    fn the_definitions_are_those_of_the_kinds_with_the_version() {
        let kinds = crd::KINDS.into_iter().filter(|kind| crd::has_first_version(*kind));
        let names: Vec<_> = kinds.filter_map(crd::definition).map(|all| all["metadata"]["name"].clone()).collect();
        assert_eq!(names, DEFINITIONS);
    }
}
