//! Telling API servers whom to trust, and where to ask the webhooks.

use garboard_cluster::names::{AUTHORITIES, AUTHORITIES_KEY};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Chain;
use super::definitions::{self, Definition};
use super::keep::{API_SERVICES, WEBHOOKS};
use crate::context::{FIELD_MANAGER, ReconcileError, while_trying};
use crate::webhook::paths::Webhook;

/// The webhook of evictions, among those that judge.
const OF_EVICTIONS: &str = "pod-eviction.kubevirt.io";

/// The objects by which API servers know whom to trust.
pub(super) struct Published {
    mutating: MutatingWebhookConfiguration,
    validating: ValidatingWebhookConfiguration,
    /// Those that are there: an installation by an earlier manifest has none.
    services: Vec<APIService>,
    /// The ConfigMap for node agents, if it is there.
    authorities: Option<ConfigMap>,
    /// Definitions with a version that is converted.
    definitions: Vec<Definition>,
}

impl Published {
    /// Reads them.
    ///
    /// # Errors
    /// The API server cannot be asked, or there are no webhook configurations.
    pub(super) async fn read(client: &Client, namespace: &str) -> Result<Self, ReconcileError> {
        let trying = || while_trying("get the webhook configurations");
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let all: Api<APIService> = Api::all(client.clone());
        let mut services = Vec::new();
        for name in API_SERVICES {
            services.extend(all.get_opt(name).await.map_err(while_trying("get the APIServices"))?);
        }
        Ok(Self {
            mutating: mutating.get(WEBHOOKS).await.map_err(trying())?,
            validating: validating.get(WEBHOOKS).await.map_err(trying())?,
            services,
            definitions: definitions::read(client).await?,
            authorities: config_maps(client, namespace)
                .get_opt(AUTHORITIES)
                .await
                .map_err(while_trying("get the ConfigMap of the authorities"))?,
        })
    }

    /// Whether all of them trust exactly the authorities of the chain.
    pub(super) fn is_of(&self, chain: &Chain, namespace: &str) -> bool {
        let bundle = bundle(chain);
        if self.definitions.iter().any(|definition| definitions::patch(definition, chain, namespace).is_some()) {
            return false;
        }
        let mutating = self.mutating.webhooks.iter().flatten().map(|webhook| webhook.client_config.ca_bundle.as_ref());
        let validating =
            self.validating.webhooks.iter().flatten().map(|webhook| webhook.client_config.ca_bundle.as_ref());
        let services = self.services.iter().map(bundle_of);
        if self.authorities.as_ref().is_some_and(|map| !has_authorities(map, chain)) {
            return false;
        }
        mutating.chain(validating).chain(services).all(|published| published == Some(&bundle))
    }

    /// Writes whom to trust and where to ask, where it is not written.
    ///
    /// # Errors
    /// The API server refuses, or cannot be asked.
    pub(super) async fn write(&self, client: &Client, namespace: &str, chain: &Chain) -> Result<(), ReconcileError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        // Before admission: what is written in an older version is judged once it can be converted.
        definitions::write(client, &self.definitions, chain, namespace).await?;
        let trying = || while_trying("publish the webhooks' authorities and paths");
        let entries = self.mutating.webhooks.iter().flatten();
        let entries = entries.map(|webhook| (webhook.name.as_str(), &webhook.client_config, Webhook::Mutate));
        if let Some(patch) = publication("MutatingWebhookConfiguration", entries, chain) {
            let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
            api.patch(WEBHOOKS, &params, &Patch::Apply(patch)).await.map_err(trying())?;
        }
        let of_name = |name: &str| if name == OF_EVICTIONS { Webhook::Evict } else { Webhook::Validate };
        let entries = self.validating.webhooks.iter().flatten();
        let entries = entries.map(|webhook| (webhook.name.as_str(), &webhook.client_config, of_name(&webhook.name)));
        if let Some(patch) = publication("ValidatingWebhookConfiguration", entries, chain) {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            api.patch(WEBHOOKS, &params, &Patch::Apply(patch)).await.map_err(trying())?;
        }
        let services: Api<APIService> = Api::all(client.clone());
        for service in &self.services {
            if let Some(patch) = trusted(service, chain) {
                let trying = while_trying("publish the authorities of the subresource API");
                services.patch(&service.name_any(), &params, &Patch::Apply(patch)).await.map_err(trying)?;
            }
        }
        if self.authorities.as_ref().is_some_and(|map| !has_authorities(map, chain)) {
            let patch = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": AUTHORITIES },
                "data": { AUTHORITIES_KEY: chain.bundle() },
            });
            let trying = while_trying("publish the authorities for node agents");
            config_maps(client, namespace).patch(AUTHORITIES, &params, &Patch::Apply(patch)).await.map_err(trying)?;
        }
        Ok(())
    }
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn has_authorities(map: &ConfigMap, chain: &Chain) -> bool {
    map.data.as_ref().and_then(|data| data.get(AUTHORITIES_KEY)) == Some(&chain.bundle())
}

pub(super) fn bundle(chain: &Chain) -> ByteString {
    ByteString(chain.bundle().into_bytes())
}

fn bundle_of(service: &APIService) -> Option<&ByteString> {
    service.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref())
}

/// What is to be applied to an APIService; nothing if it has it already.
fn trusted(service: &APIService, chain: &Chain) -> Option<Value> {
    let bundle = bundle(chain);
    (bundle_of(service) != Some(&bundle)).then(|| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": service.name_any() },
            "spec": { "caBundle": bundle },
        })
    })
}

/// What is to be applied to a configuration; nothing if all its webhooks, by name, have it already.
fn publication<'a>(
    kind: &str,
    webhooks: impl Iterator<Item = (&'a str, &'a WebhookClientConfig, Webhook)>,
    chain: &Chain,
) -> Option<Value> {
    let bundle = bundle(chain);
    let mut is_known = true;
    let mut entries = Vec::new();
    for (name, config, webhook) in webhooks {
        let path = chain.paths.as_ref().map(|paths| paths.of(webhook));
        let mut published = json!({ "caBundle": bundle });
        is_known &= config.ca_bundle.as_ref() == Some(&bundle);
        if let Some(service) = &config.service {
            is_known &= service.path == path;
            published["service"] = json!({ "path": path });
        }
        entries.push(json!({ "name": name, "clientConfig": published }));
    }
    (!is_known).then(|| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": WEBHOOKS },
            "webhooks": entries,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::SECRET;
    use crate::webhook::paths::Paths;

    #[test]
    fn a_wiped_path_is_published_again_and_what_is_known_is_not() {
        let chain = Chain { paths: Some(Paths::random()), ..Chain::default() };
        let path = chain.paths.as_ref().unwrap().of(Webhook::Evict);
        let known: WebhookClientConfig = serde_json::from_value(json!({
            "caBundle": "", "service": {"name": SECRET, "namespace": "garboard", "path": path}}))
        .unwrap();
        let patch =
            |config: &WebhookClientConfig| publication("x", [("w", config, Webhook::Evict)].into_iter(), &chain);
        assert_eq!(patch(&known), None);
        let mut wiped = known.clone();
        wiped.service.as_mut().unwrap().path = None;
        assert_eq!(patch(&wiped).unwrap()["webhooks"][0]["clientConfig"]["service"]["path"], json!(path));
        wiped = known.clone();
        wiped.ca_bundle = None;
        assert!(patch(&wiped).is_some());
    }
}
