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
/// The labels of what an installation made. Others may write them, too.
const LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "garboard"), ("app.kubernetes.io/component", "dashboard")];

/// Renews it if it is due; when to look again, and nothing where there is no such Secret. `published` as for [`super::decide::decide`].
///
/// # Errors
/// [`KeepError`].
pub(super) async fn keep(
    context: &Context,
    chain: &Chain,
    life: Lifetime,
    published: bool,
    now: Timestamp,
) -> Result<Option<Duration>, KeepError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.namespace);
    let found = secrets.get_opt(SECRET).await.map_err(while_trying("get the Secret of the dashboard's certificate"))?;
    let Some(mut secret) = found.filter(is_ours) else { return Ok(None) };
    let decision = beside(chain, shown(&secret).as_ref(), life, published, now);
    if let Some(signer) = decision.signer.as_ref().and_then(|subject| chain.authority(subject)) {
        let made = make::serving(SECRET, signer, life.whole, &names(&context.namespace), now)?;
        secret.data = Some(data(made));
        replace(&secrets, SECRET, &secret).await?;
        tracing::info!("the dashboard's certificate was renewed");
    }
    Ok(Some(decision.rest))
}

/// Whether an installation made it, and nobody has put a certificate of another authority into it since: that one is an administrator's,
/// and is left alone.
fn is_ours(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    let has =
        |(name, value): &(&str, &str)| labels.and_then(|labels| labels.get(*name)).is_some_and(|one| one == value);
    if !LABELS.iter().all(has) {
        return false;
    }
    let certificate = text(secret, field::CERTIFICATE).and_then(|text| pair(field::CERTIFICATE, text, "").ok());
    let is_ours = certificate.as_ref().is_none_or(|one| one.issuer.contains(make::AUTHORITY));
    if !is_ours {
        tracing::warn!(
            secret = SECRET,
            issuer = certificate.map(|one| one.issuer),
            "the Secret of the dashboard's certificate has one of another authority, and is left as it is; give the dashboard a Secret of another name"
        );
    }
    is_ours
}

fn text<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(name)?.0).ok()
}

/// What the Secret has; a damaged one is made again.
fn shown(secret: &Secret) -> Option<CertifiedKey> {
    pair(field::CERTIFICATE, text(secret, field::CERTIFICATE)?, text(secret, field::KEY)?).ok()
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
        let secret = labelled(data(made.clone()));
        assert!(is_ours(&secret));
        assert_eq!(shown(&secret), Some(made));
        assert!(beside(&chain, shown(&secret).as_ref(), lives.serving, true, now).signer.is_none());
        assert!(names("vms").contains(&"garboard-dashboard.vms.svc".to_owned()));
        assert_eq!(shown(&Secret::default()), None);
    }

    fn labelled(data: BTreeMap<String, ByteString>) -> Secret {
        let mut secret = Secret { data: Some(data), ..Secret::default() };
        secret.metadata.labels = Some(LABELS.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        secret
    }

    #[test]
    fn a_secret_of_an_administrator_is_left_alone_whatever_its_labels_are() {
        assert!(!is_ours(&Secret::default()));
        let mut part = labelled(BTreeMap::new());
        assert!(is_ours(&part), "it is empty where it was just installed");
        part.metadata.labels.as_mut().unwrap().remove(LABELS[1].0);
        assert!(!is_ours(&part), "a chart of theirs may have the name alone");
        let damaged = BTreeMap::from([(field::CERTIFICATE.to_owned(), ByteString(b"no certificate".to_vec()))]);
        assert!(is_ours(&labelled(damaged)), "it is made again");
        let key = rcgen::KeyPair::generate().unwrap();
        let theirs = rcgen::CertificateParams::new(["vms.example.com".to_owned()]).unwrap().self_signed(&key).unwrap();
        let made = pair(field::CERTIFICATE, &theirs.pem(), &key.serialize_pem()).unwrap();
        assert!(!is_ours(&labelled(data(made))));
    }
}
