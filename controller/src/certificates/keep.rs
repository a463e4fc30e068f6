//! Keeping the certificates: looking, deciding, writing. The leader does this and nobody else.

use std::time::Duration;

use garboard_launcher::vm::Chain as Causes;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::decide::{Decision, Lives, decide};
use super::{CertificateError, Chain, make};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, while_trying};

/// The Secret of the certificates, and the Service of the webhooks.
pub const SECRET: &str = "garboard-webhook";
/// Both webhook configurations.
pub const WEBHOOKS: &str = "garboard";
/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Api(#[from] ReconcileError),
    #[error("the certificates cannot be kept")]
    Certificate(#[from] CertificateError),
}

/// Keeps the certificates until the process ends.
pub async fn run(context: Context) {
    let mut settings = context.settings.clone();
    loop {
        // Before they are read: one that changes meanwhile is not missed.
        settings.mark_unchanged();
        let rest = match step(&context).await {
            Ok(rest) => rest,
            Err(error) => {
                tracing::warn!(error = %Causes(&error), "the webhooks' certificates are looked at again");
                PAUSE
            }
        };
        // A change of the settings may make a certificate due at once.
        let _ = tokio::time::timeout(rest, settings.changed()).await;
    }
}

/// Looks once, does what is due, and says when to look again.
async fn step(context: &Context) -> Result<Duration, KeepError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let secret = secrets.get(SECRET).await.map_err(while_trying("get the Secret of the webhooks' certificates"))?;
    let chain = read(&secret);
    let lives = Lives::of(context.settings.borrow().certificates());
    let now = jiff::Timestamp::now();
    let decision = decide(&chain, lives, is_published(&context.client, &chain).await?, now);
    let after = make::carry_out(&chain, &decision, lives, &names(&context.namespace), now)?;
    if after != chain {
        store(&secrets, secret, &after, &decision).await?;
    }
    publish(&context.client, &after.bundle()).await?;
    Ok(decision.rest)
}

/// What somebody spoilt is made anew.
fn read(secret: &Secret) -> Chain {
    let data = secret.data.clone().unwrap_or_default();
    Chain::read(&data).unwrap_or_else(|error| {
        tracing::error!(error = %Causes(&error), "the webhooks' certificates are made anew");
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
async fn is_published(client: &Client, chain: &Chain) -> Result<bool, ReconcileError> {
    let bundle = ByteString(chain.bundle().into_bytes());
    let (mutating, validating) = webhooks(client).await?;
    let mut told = bundles_of_mutating(&mutating).chain(bundles_of_validating(&validating));
    Ok(told.all(|told| told == Some(&bundle)))
}

async fn webhooks(
    client: &Client,
) -> Result<(MutatingWebhookConfiguration, ValidatingWebhookConfiguration), ReconcileError> {
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

/// Tells the API servers whom to trust, unless they know.
async fn publish(client: &Client, bundle: &str) -> Result<(), ReconcileError> {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let (mutating, validating) = webhooks(client).await?;
    let told = json!(bundle);
    let applied = |kind: &str, names: Vec<&str>| -> Value {
        let entry = |name: &&str| json!({ "name": name, "clientConfig": { "caBundle": told } });
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": WEBHOOKS },
            "webhooks": names.iter().map(entry).collect::<Vec<_>>(),
        })
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    if bundles_of_mutating(&mutating).any(|known| known != Some(&bundle)) {
        let names = mutating.webhooks.iter().flatten().map(|webhook| webhook.name.as_str()).collect();
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let patch = Patch::Apply(applied("MutatingWebhookConfiguration", names));
        api.patch(WEBHOOKS, &params, &patch).await.map_err(while_trying("publish the webhooks' authorities"))?;
    }
    if bundles_of_validating(&validating).any(|known| known != Some(&bundle)) {
        let names = validating.webhooks.iter().flatten().map(|webhook| webhook.name.as_str()).collect();
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let patch = Patch::Apply(applied("ValidatingWebhookConfiguration", names));
        api.patch(WEBHOOKS, &params, &patch).await.map_err(while_trying("publish the webhooks' authorities"))?;
    }
    Ok(())
}
