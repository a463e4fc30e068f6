//! Keeping the certificates: looking, deciding, writing. Only the leader does this.

use std::time::Duration;

use futures::stream::{select, select_all};
use futures::{Stream, StreamExt};
use garboard_cluster::names::AUTHORITIES;
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::dashboard;
use super::decide::{Decision, Lifetimes, PROPAGATION, decide};
use super::definitions::DEFINITIONS;
use super::publish::Published;
use super::{CertificateError, Chain, make, names_of};
use crate::context::{Context, ReconcileError, WatchPause, made_by_us, while_trying};

/// The Secret of the certificates, and the Service of the webhooks.
pub const SECRET: &str = "garboard-webhook";
/// Both webhook configurations.
pub const WEBHOOKS: &str = "garboard";
/// The APIServices of the subresource API.
pub const API_SERVICES: [&str; 4] = [
    "v1.subresources.kubevirt.io",
    "v1alpha3.subresources.kubevirt.io",
    "v1alpha2.subresources.kubevirt.io",
    "v1.subresources.garboard.dev",
];
/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
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

/// An item for every change of a Secret of certificates, of a webhook configuration, an APIService or a definition, our own among them.
fn changes(context: &Context) -> impl Stream<Item = ()> + use<> {
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(context.client.clone(), &context.namespace);
    let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(context.client.clone());
    let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> = Api::all(context.client.clone());
    let services = |name: &&str| {
        let services: Api<PartialObjectMeta<APIService>> = Api::all(context.client.clone());
        changes_of(services, name).boxed()
    };
    let services = select_all(API_SERVICES.iter().map(services));
    let webhooks = select(changes_of(mutating, WEBHOOKS), changes_of(validating, WEBHOOKS));
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(context.client.clone(), &context.namespace);
    let of_dashboard = changes_of(secrets.clone(), dashboard::SECRET);
    let ours = select(select(changes_of(secrets, SECRET), of_dashboard), changes_of(maps, AUTHORITIES));
    let definitions = |name: &&str| {
        let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(context.client.clone());
        changes_of(definitions, name).boxed()
    };
    let definitions = select_all(DEFINITIONS.iter().map(definitions));
    select(select(ours, definitions), select(webhooks, services))
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
                tracing::warn!(%error, "watch of the certificates failed");
                None
            }
        }
    })
}

/// Looks once, does what is due, and returns when to look again.
async fn step(context: &Context) -> Result<Duration, KeepError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let secret = secrets.get(SECRET).await.map_err(while_trying("get the Secret of the webhooks' certificates"))?;
    let chain = read(&secret);
    let lives = Lifetimes::of(context.settings.borrow().certificates());
    let now = jiff::Timestamp::now();
    let published = Published::read(&context.client, &context.namespace).await?;
    let is_published = published.is_of(&chain, &context.namespace);
    let decision = decide(&chain, lives, is_published, now);
    let after = make::carry_out(&chain, &decision, lives, &names_of(SECRET, &context.namespace), now)?;
    if after != chain {
        store(&secrets, secret, &after, &decision).await?;
    }
    published.write(&context.client, &context.namespace, &after).await?;
    let rest = dashboard::keep(context, &after, lives.serving, is_published, now).await.unwrap_or_else(|error| {
        // That of the webhooks does not wait for it.
        tracing::warn!(error = %ErrorChain(&error), "the dashboard's certificate could not be renewed; tried again");
        Some(PROPAGATION)
    });
    Ok(rest.map_or(decision.rest, |rest| rest.min(decision.rest)))
}

/// A damaged one is made again.
fn read(secret: &Secret) -> Chain {
    let data = secret.data.clone().unwrap_or_default();
    Chain::read(&data).unwrap_or_else(|error| {
        tracing::error!(error = %ErrorChain(&error), "the webhooks' certificates cannot be used; new ones are issued");
        Chain::default()
    })
}

async fn store(
    secrets: &Api<Secret>,
    mut secret: Secret,
    chain: &Chain,
    decision: &Decision,
) -> Result<(), ReconcileError> {
    secret.data = Some(chain.write());
    replace(secrets, SECRET, &secret).await?;
    tracing::info!(
        authority = decision.authority,
        serving = decision.serving.is_some(),
        ended = ?decision.drop,
        "the webhooks' certificates were renewed"
    );
    Ok(())
}

/// With the resource version of what was read: the first writer wins.
pub(super) async fn replace(secrets: &Api<Secret>, name: &str, secret: &Secret) -> Result<(), ReconcileError> {
    match secrets.replace(name, &made_by_us(), secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("store certificates in their Secret")(error)),
    }
}
