//! Keeping the certificates: looking, deciding, writing. The leader does this and nobody else.

use std::time::Duration;

use futures::stream::select;
use futures::{Stream, StreamExt};
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::decide::{Decision, Lives, decide};
use super::{CertificateError, Chain, make};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, WatchPause, while_trying};
use crate::webhook::paths::Question;

/// The Secret of the certificates, and the Service of the webhooks.
pub const SECRET: &str = "garboard-webhook";
/// Both webhook configurations.
pub const WEBHOOKS: &str = "garboard";
/// The webhook of evictions, among those that judge.
const OF_EVICTIONS: &str = "pod-eviction.kubevirt.io";
/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Api(#[from] ReconcileError),
    #[error("the certificates cannot be renewed")]
    Certificate(#[from] CertificateError),
}

/// Keeps the certificates until the process ends.
pub async fn run(context: Context) {
    let mut settings = context.settings.clone();
    let mut changes = std::pin::pin!(changes(&context));
    loop {
        // Before they are read: one that changes meanwhile is not missed.
        settings.mark_unchanged();
        let rest = match step(&context).await {
            Ok(rest) => rest,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "reconcile of the webhooks' certificates failed; tried again");
                PAUSE
            }
        };
        // A change of the settings may make a certificate due at once, and what was wiped is written again at once.
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = settings.changed() => {}
            _ = changes.next() => {}
        }
    }
}

/// An item for every change of the Secret or of a webhook configuration, our own among them.
fn changes(context: &Context) -> impl Stream<Item = ()> + use<> {
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(context.client.clone(), &context.namespace);
    let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(context.client.clone());
    let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> = Api::all(context.client.clone());
    select(changes_of(secrets, SECRET), select(changes_of(mutating, WEBHOOKS), changes_of(validating, WEBHOOKS)))
}

fn changes_of<K>(objects: Api<K>, name: &str) -> impl Stream<Item = ()> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher::watcher(objects, only).backoff(WatchPause::default()).filter_map(|event| async {
        match event {
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => Some(()),
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "watch of the webhooks' certificates failed");
                None
            }
        }
    })
}

/// Looks once, does what is due, and says when to look again.
async fn step(context: &Context) -> Result<Duration, KeepError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let secret = secrets.get(SECRET).await.map_err(while_trying("get the Secret of the webhooks' certificates"))?;
    let chain = read(&secret);
    let lives = Lives::of(context.settings.borrow().certificates());
    let now = jiff::Timestamp::now();
    let told = webhooks(&context.client).await?;
    let decision = decide(&chain, lives, is_published(&told, &chain), now);
    let after = make::carry_out(&chain, &decision, lives, &names(&context.namespace), now)?;
    if after != chain {
        store(&secrets, secret, &after, &decision).await?;
    }
    publish(&context.client, &told, &after).await?;
    Ok(decision.rest)
}

/// What somebody spoilt is made anew.
fn read(secret: &Secret) -> Chain {
    let data = secret.data.clone().unwrap_or_default();
    Chain::read(&data).unwrap_or_else(|error| {
        tracing::error!(error = %ErrorChain(&error), "the webhooks' certificates cannot be used; new ones are issued");
        Chain::default()
    })
}

/// The names under which an API server asks.
fn names(namespace: &str) -> Vec<String> {
    vec![format!("{SECRET}.{namespace}.svc"), format!("{SECRET}.{namespace}.svc.cluster.local")]
}

async fn store(
    secrets: &Api<Secret>,
    mut secret: Secret,
    chain: &Chain,
    decision: &Decision,
) -> Result<(), ReconcileError> {
    // With the resource version of what was read: whoever was faster wins.
    secret.data = Some(chain.write());
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match secrets.replace(SECRET, &params, &secret).await {
        Ok(_) => {
            tracing::info!(
                authority = decision.authority,
                serving = decision.serving.is_some(),
                ended = ?decision.drop,
                "the webhooks' certificates were renewed"
            );
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("store the webhooks' certificates")(error)),
    }
}

/// Whether all webhooks trust exactly the authorities of the chain.
fn is_published((mutating, validating): &Webhooks, chain: &Chain) -> bool {
    let bundle = ByteString(chain.bundle().into_bytes());
    let mut told = bundles_of_mutating(mutating).chain(bundles_of_validating(validating));
    told.all(|told| told == Some(&bundle))
}

type Webhooks = (MutatingWebhookConfiguration, ValidatingWebhookConfiguration);

async fn webhooks(client: &Client) -> Result<Webhooks, ReconcileError> {
    let trying = || while_trying("get the webhook configurations");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    Ok((mutating.get(WEBHOOKS).await.map_err(trying())?, validating.get(WEBHOOKS).await.map_err(trying())?))
}

fn bundles_of_mutating(all: &MutatingWebhookConfiguration) -> impl Iterator<Item = Option<&ByteString>> {
    all.webhooks.iter().flatten().map(|webhook| webhook.client_config.ca_bundle.as_ref())
}

fn bundles_of_validating(all: &ValidatingWebhookConfiguration) -> impl Iterator<Item = Option<&ByteString>> {
    all.webhooks.iter().flatten().map(|webhook| webhook.client_config.ca_bundle.as_ref())
}

/// Tells the API servers whom to trust and where to ask, unless they know.
async fn publish(client: &Client, (mutating, validating): &Webhooks, chain: &Chain) -> Result<(), ReconcileError> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let trying = || while_trying("publish the webhooks' authorities and paths");
    let entries = mutating.webhooks.iter().flatten();
    let entries = entries.map(|webhook| (webhook.name.as_str(), &webhook.client_config, Question::Mutate));
    if let Some(patch) = publication("MutatingWebhookConfiguration", entries, chain) {
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        api.patch(WEBHOOKS, &params, &Patch::Apply(patch)).await.map_err(trying())?;
    }
    let question = |name: &str| if name == OF_EVICTIONS { Question::Evict } else { Question::Validate };
    let entries = validating.webhooks.iter().flatten();
    let entries = entries.map(|webhook| (webhook.name.as_str(), &webhook.client_config, question(&webhook.name)));
    if let Some(patch) = publication("ValidatingWebhookConfiguration", entries, chain) {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        api.patch(WEBHOOKS, &params, &Patch::Apply(patch)).await.map_err(trying())?;
    }
    Ok(())
}

/// What is to be applied to a configuration; nothing if all its webhooks, by name, say it already.
fn publication<'a>(
    kind: &str,
    webhooks: impl Iterator<Item = (&'a str, &'a WebhookClientConfig, Question)>,
    chain: &Chain,
) -> Option<Value> {
    let bundle = ByteString(chain.bundle().into_bytes());
    let mut is_known = true;
    let mut entries = Vec::new();
    for (name, config, question) in webhooks {
        let path = chain.paths.as_ref().map(|paths| paths.of(question));
        let mut told = json!({ "caBundle": bundle });
        is_known &= config.ca_bundle.as_ref() == Some(&bundle);
        if let Some(service) = &config.service {
            is_known &= service.path == path;
            told["service"] = json!({ "path": path });
        }
        entries.push(json!({ "name": name, "clientConfig": told }));
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
    use crate::webhook::paths::Paths;

    #[test]
    fn a_wiped_path_is_published_again_and_what_is_known_is_not() {
        let chain = Chain { paths: Some(Paths::random()), ..Chain::default() };
        let path = chain.paths.as_ref().unwrap().of(Question::Evict);
        let known: WebhookClientConfig = serde_json::from_value(json!({
            "caBundle": "", "service": {"name": SECRET, "namespace": "garboard", "path": path}}))
        .unwrap();
        let patch =
            |config: &WebhookClientConfig| publication("x", [("w", config, Question::Evict)].into_iter(), &chain);
        assert_eq!(patch(&known), None);
        let mut wiped = known.clone();
        wiped.service.as_mut().unwrap().path = None;
        assert_eq!(patch(&wiped).unwrap()["webhooks"][0]["clientConfig"]["service"]["path"], json!(path));
        wiped = known.clone();
        wiped.ca_bundle = None;
        assert!(patch(&wiped).is_some());
    }
}
