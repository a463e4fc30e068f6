//! The certificate of the dashboard, where it is installed: in a Secret of its own, since the pod that shows it must not have the key of
//! the webhooks. An administrator who has another certificate gives the pod another Secret, and this one is not there.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::decide::{Lifetime, beside};
use super::keep::{KeepError, replace};
use super::{CertifiedKey, Chain, field, make, names_of, pair};
use crate::context::{Context, while_trying};

/// The Secret, and the Service of the dashboard.
pub(super) const SECRET: &str = "garboard-dashboard";
/// The label of what an installation made: a Secret of that name without it is an administrator's, and is left alone.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "garboard");

/// Renews it if it is due; when to look again, and nothing where there is no such Secret.
///
/// # Errors
/// [`KeepError`].
pub(super) async fn keep(
    context: &Context,
    chain: &Chain,
    life: Lifetime,
    now: Timestamp,
) -> Result<Option<Duration>, KeepError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let found = secrets.get_opt(SECRET).await.map_err(while_trying("get the Secret of the dashboard's certificate"))?;
    let Some(mut secret) = found.filter(is_ours) else { return Ok(None) };
    let decision = beside(chain, shown(&secret).as_ref(), life, now);
    if let Some(signer) = decision.signer.as_ref().and_then(|subject| chain.authority(subject)) {
        let made = make::serving(SECRET, signer, life.whole, &names(&context.namespace), now)?;
        secret.data = Some(data(made));
        replace(&secrets, SECRET, &secret).await?;
        tracing::info!("the dashboard's certificate was renewed");
    }
    Ok(Some(decision.rest))
}

fn is_ours(secret: &Secret) -> bool {
    let (name, value) = LABEL;
    secret.metadata.labels.as_ref().and_then(|labels| labels.get(name)).is_some_and(|found| found == value)
}

/// What the Secret has; a damaged one is made again.
fn shown(secret: &Secret) -> Option<CertifiedKey> {
    let text = |name: &str| std::str::from_utf8(&secret.data.as_ref()?.get(name)?.0).ok();
    pair(field::CERTIFICATE, text(field::CERTIFICATE)?, text(field::KEY)?).ok()
}

fn data(made: CertifiedKey) -> BTreeMap<String, ByteString> {
    let entry = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
    BTreeMap::from([entry(field::CERTIFICATE, made.certificate), entry(field::KEY, made.key)])
}

/// Those of its Service, and of a port that is forwarded to a browser's own computer.
fn names(namespace: &str) -> Vec<String> {
    names_of(SECRET, namespace).into_iter().chain(["localhost", "127.0.0.1", "::1"].map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::decide::{Lifetimes, decide};
    use super::*;

    #[test]
    fn what_is_made_is_read_back_and_has_the_names_of_a_forwarded_port() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let lives = Lifetimes::of(None);
        let decision = decide(&Chain::default(), lives, false, now);
        let chain = make::carry_out(&Chain::default(), &decision, lives, &["a.svc".to_owned()], now).unwrap();
        let made = make::serving(SECRET, &chain.authorities[0], lives.serving.whole, &names("vms"), now).unwrap();
        let secret = Secret { data: Some(data(made.clone())), ..Secret::default() };
        assert_eq!(shown(&secret), Some(made));
        assert!(beside(&chain, shown(&secret).as_ref(), lives.serving, now).signer.is_none());
        assert!(names("vms").contains(&"garboard-dashboard.vms.svc".to_owned()));
        assert_eq!(shown(&Secret::default()), None);
    }

    #[test]
    fn a_secret_without_our_label_is_left_alone() {
        let mut secret = Secret::default();
        assert!(!is_ours(&secret));
        secret.metadata.labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
        assert!(is_ours(&secret));
    }
}
