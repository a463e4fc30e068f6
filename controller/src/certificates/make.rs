//! Making certificates.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::decide::{CLOCK_SKEW, Decision, Lifetimes};
use super::{CertificateError, CertifiedKey, Chain, field, pair};
use crate::webhook::paths::Paths;

/// How the common names of our authorities begin, those of earlier versions too.
pub(super) const AUTHORITY: &str = "garboard-webhook-authority-";

/// The chain after a decision was carried out. `names` are those of the webhooks' Service.
pub(super) fn carry_out(
    chain: &Chain,
    decision: &Decision,
    lives: Lifetimes,
    names: &[String],
    now: Timestamp,
) -> Result<Chain, CertificateError> {
    let mut after = chain.clone();
    after.paths.get_or_insert_with(Paths::random);
    after.authorities.retain(|authority| !decision.drop.contains(&authority.subject));
    if decision.authority {
        after.authorities.insert(0, authority(lives.authority.whole, now)?);
    }
    let Some(signer) = &decision.serving else { return Ok(after) };
    let known = signer.as_ref().and_then(|subject| after.authority(subject));
    if let Some(signer) = known.or(after.authorities.first()) {
        after.serving = Some(serving("garboard-webhook", signer, lives.serving.whole, names, now)?);
    }
    Ok(after)
}

fn authority(life: Duration, now: Timestamp) -> Result<CertifiedKey, CertificateError> {
    let mut wanted = CertificateParams::default();
    // The name has the time: a certificate names by it the authority that signed it.
    wanted.distinguished_name = named(&format!("{AUTHORITY}{}", now.as_millisecond()));
    wanted.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    lasting(&mut wanted, now, now.checked_add(life)?)?;
    let key = KeyPair::generate()?;
    pair(field::AUTHORITIES, &wanted.self_signed(&key)?.pem(), &key.serialize_pem())
}

/// A certificate with that common name, for those names of hosts.
pub(super) fn serving(
    subject: &str,
    signer: &CertifiedKey,
    life: Duration,
    names: &[String],
    now: Timestamp,
) -> Result<CertifiedKey, CertificateError> {
    let issuer = Issuer::from_ca_cert_pem(&signer.certificate, KeyPair::from_pem(&signer.key)?)?;
    let mut wanted = CertificateParams::new(names)?;
    wanted.distinguished_name = named(subject);
    wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    wanted.use_authority_key_identifier_extension = true;
    lasting(&mut wanted, now, now.checked_add(life)?.min(signer.to))?;
    let key = KeyPair::generate()?;
    pair(field::CERTIFICATE, &wanted.signed_by(&key, &issuer)?.pem(), &key.serialize_pem())
}

fn named(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::OrganizationName, "Garboard");
    full.push(DnType::CommonName, name);
    full
}

fn lasting(wanted: &mut CertificateParams, now: Timestamp, to: Timestamp) -> Result<(), CertificateError> {
    wanted.not_before = calendar(now.checked_sub(CLOCK_SKEW)?);
    wanted.not_after = calendar(to);
    Ok(())
}

/// The same instant for rcgen, which counts with another crate. Both hold every second that certificates can name.
fn calendar(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::*;

    #[test]
    fn what_is_made_is_read_back_and_trusted_by_its_authority() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let lives = Lifetimes::of(None);
        let names = ["garboard-webhook.garboard.svc".to_owned()];
        let first = decide(&Chain::default(), lives, false, now);
        let chain = carry_out(&Chain::default(), &first, lives, &names, now).unwrap();
        assert_eq!(Chain::read(&chain.write()).unwrap(), chain);
        let serving = chain.serving.as_ref().unwrap();
        assert_eq!(serving.issuer, chain.authorities[0].subject);
        assert_eq!(serving.to, now.checked_add(lives.serving.whole).unwrap());
        let later = now.checked_add(lives.serving.whole).unwrap();
        let second = decide(&chain, lives, true, later);
        let renewed = carry_out(&chain, &second, lives, &names, later).unwrap();
        assert_eq!(renewed.authorities, chain.authorities);
        assert!(chain.paths.is_some());
        assert_eq!(renewed.paths, chain.paths, "API servers would ask at the old ones");
        assert_ne!(renewed.serving, chain.serving);
    }

    #[test]
    fn certificates_are_made_with_any_settings() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (written, seconds) in [("1000000000h", 876_000 * 3600), ("0s", 60)] {
            let each = serde_json::json!({"duration": written});
            let strategy = serde_json::json!({"selfSigned": {"ca": each, "server": each}});
            let lives = Lifetimes::of(Some(&serde_json::from_value(strategy).unwrap()));
            assert_eq!(lives.serving.whole, Duration::from_secs(seconds));
            let decision = decide(&Chain::default(), lives, false, now);
            let chain = carry_out(&Chain::default(), &decision, lives, &["a.svc".to_owned()], now).unwrap();
            let settled = decide(&chain, lives, true, now);
            assert_eq!((settled.authority, settled.serving), (false, None), "{written}");
        }
    }
}
