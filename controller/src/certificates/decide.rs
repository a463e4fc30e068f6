//! When a certificate is to be renewed, and who signs it. Pure.

use std::time::Duration;

use garboard_api::v1::{CertConfig, KubeVirtCertificateRotateStrategy};
use garboard_api::validate::{LONGEST_CERTIFICATE, SHORTEST_CERTIFICATE, duration};
use jiff::Timestamp;

use super::{CertifiedKey, Chain};

/// How long after its publication an authority begins to sign: every API server has seen it by then.
pub const PROPAGATION: Duration = Duration::from_secs(20);
/// A certificate is valid from so long before it is made: clocks differ.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// How often the certificates are looked at though nothing is due.
const LONGEST_REST: Duration = Duration::from_secs(3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(168 * 3600);
const SERVING_LIFE: Duration = Duration::from_secs(24 * 3600);
/// What is left of a life when its certificate is renewed, unless it is set: a fifth.
const SPARE: u32 = 5;

/// How long a kind of certificate lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// From its making to its end.
    pub whole: Duration,
    /// How long before its end it is renewed.
    pub spare: Duration,
}

impl Lifetime {
    fn of(config: Option<&CertConfig>, usual: Duration) -> Self {
        let read = |text: Option<&String>| text.and_then(|text| duration(text));
        // Settings that were stored while no webhook was asked may have any value, and certificates still have to be renewed.
        let whole = read(config.and_then(|config| config.duration.as_ref())).unwrap_or(usual);
        let whole = whole.clamp(SHORTEST_CERTIFICATE, LONGEST_CERTIFICATE);
        let spare = read(config.and_then(|config| config.renew_before.as_ref())).unwrap_or(whole / SPARE);
        Self { whole, spare }
    }
}

/// The lives of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of an authority.
    pub authority: Lifetime,
    /// Of what the webhooks show.
    pub serving: Lifetime,
}

impl Lifetimes {
    /// As the settings of the cluster have it.
    #[must_use]
    pub fn of(strategy: Option<&KubeVirtCertificateRotateStrategy>) -> Self {
        let own = strategy.and_then(|strategy| strategy.self_signed.as_ref());
        Self {
            authority: Lifetime::of(own.and_then(|own| own.ca.as_ref()), AUTHORITY_LIFE),
            serving: Lifetime::of(own.and_then(|own| own.server.as_ref()), SERVING_LIFE),
        }
    }
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Authorities (by subject) that have ended.
    pub drop: Vec<String>,
    /// Whether a new authority is to be made.
    pub authority: bool,
    /// Whether the serving certificate is to be issued again, and by which authority; `None` in it is the new one.
    pub serving: Option<Option<String>>,
    /// When to look again.
    pub rest: Duration,
}

/// Decides. `published`: whether every webhook configuration names exactly the authorities of the chain.
#[must_use]
pub fn decide(chain: &Chain, lives: Lifetimes, published: bool, now: Timestamp) -> Decision {
    let (alive, ended): (Vec<_>, Vec<_>) = chain.authorities.iter().partition(|authority| authority.to > now);
    let newest = alive.first();
    let authority = newest.is_none_or(|newest| until_due(newest, lives.authority, now).is_zero());
    let signer = signer(chain, published, now).map(|signer| signer.subject.clone());
    let is_due = chain.serving.as_ref().is_none_or(|serving| {
        let is_known = alive.iter().any(|authority| authority.subject == serving.issuer);
        !is_known || until_due(serving, lives.serving, now).is_zero()
    });
    let serving = is_due.then_some(signer);
    let rest = if authority || serving.is_some() || !ended.is_empty() {
        PROPAGATION
    } else {
        let of_authority = newest.map(|newest| until_due(newest, lives.authority, now));
        let of_serving = chain.serving.as_ref().map(|serving| until_due(serving, lives.serving, now));
        let next = of_authority.into_iter().chain(of_serving).min().unwrap_or_default();
        next.clamp(Duration::from_secs(1), LONGEST_REST)
    };
    Decision { drop: ended.iter().map(|each| each.subject.clone()).collect(), authority, serving, rest }
}

/// Who signs what is issued now: the newest authority that was published for a while. Until one was, the oldest, which is known everywhere
/// if any is.
fn signer(chain: &Chain, published: bool, now: Timestamp) -> Option<&CertifiedKey> {
    let mut alive = chain.authorities.iter().filter(|authority| authority.to > now);
    let ready = alive.clone().find(|each| published && age(each.from, now) >= PROPAGATION);
    ready.or_else(|| alive.next_back())
}

/// What is to be done with a certificate beside that of the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The authority (by subject) that is to sign it again, if it is due: the one that would sign the webhooks' certificate now. The one that
    /// has signed that may end soon, and what it signs ends with it.
    pub signer: Option<String>,
    /// When to look again.
    pub rest: Duration,
}

/// Decides that, where `shown` is what there is. `published` as for [`decide`].
#[must_use]
pub fn beside(chain: &Chain, shown: Option<&CertifiedKey>, life: Lifetime, published: bool, now: Timestamp) -> Beside {
    let known = shown.filter(|shown| chain.authority(&shown.issuer).is_some());
    let rest = known.map(|shown| until_due(shown, life, now)).unwrap_or_default();
    if rest.is_zero() {
        let signer = signer(chain, published, now).map(|signer| signer.subject.clone());
        return Beside { signer, rest: PROPAGATION };
    }
    Beside { signer: None, rest: rest.clamp(Duration::from_secs(1), LONGEST_REST) }
}

/// How long until a certificate is renewed. One that was made under a longer setting lives no longer than the setting
/// now; one whose signer ended earlier lives shorter, and is not renewed before half of that.
fn until_due(pair: &CertifiedKey, life: Lifetime, now: Timestamp) -> Duration {
    let whole = left(pair.to, pair.from).saturating_sub(CLOCK_SKEW).min(life.whole);
    let age = age(pair.from, now);
    whole.saturating_sub(age).saturating_sub(life.spare.min(whole / 2))
}

fn left(to: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(now)).unwrap_or_default()
}

fn age(from: Timestamp, now: Timestamp) -> Duration {
    left(now, from).saturating_sub(CLOCK_SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: Lifetimes = Lifetimes {
        authority: Lifetime { whole: Duration::from_secs(1000), spare: Duration::from_secs(200) },
        serving: Lifetime { whole: Duration::from_secs(100), spare: Duration::from_secs(20) },
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pair(subject: &str, issuer: &str, made: i64, to: i64) -> CertifiedKey {
        let (subject, issuer) = (subject.to_owned(), issuer.to_owned());
        let from = at(made - 60);
        CertifiedKey { certificate: String::new(), key: String::new(), subject, issuer, from, to: at(to) }
    }

    #[test]
    fn an_empty_secret_gets_both() {
        let decision = decide(&Chain::default(), LIVES, false, at(0));
        assert_eq!((decision.authority, decision.serving), (true, Some(None)));
    }

    #[test]
    fn what_is_fresh_is_left_alone_until_the_first_is_due() {
        let chain =
            Chain { authorities: vec![pair("a", "a", 0, 1000)], serving: Some(pair("s", "a", 0, 100)), paths: None };
        let decision = decide(&chain, LIVES, true, at(10));
        assert_eq!((decision.authority, decision.serving), (false, None));
        assert_eq!(decision.rest, Duration::from_secs(70));
        assert_eq!(decide(&chain, LIVES, true, at(80)).serving, Some(Some("a".to_owned())));
    }

    #[test]
    fn a_new_authority_signs_only_after_it_was_published_for_a_while() {
        let authorities = vec![pair("b", "b", 800, 1800), pair("a", "a", 0, 1000)];
        let chain = Chain { authorities, serving: Some(pair("s", "a", 720, 820)), paths: None };
        let signer = |published, now| decide(&chain, LIVES, published, at(now)).serving.unwrap().unwrap();
        assert_eq!(signer(true, 805), "a");
        assert_eq!(signer(false, 900), "a");
        assert_eq!(signer(true, 821), "b");
    }

    #[test]
    fn an_authority_that_is_not_published_is_replaced() {
        let authorities = vec![pair("b", "b", 800, 1800), pair("a", "a", 0, 1000)];
        let chain = Chain { authorities, serving: Some(pair("s", "a", 990, 1090)), paths: None };
        let decision = decide(&chain, LIVES, true, at(1001));
        assert_eq!((decision.drop, decision.serving), (vec!["a".to_owned()], Some(Some("b".to_owned()))));
    }

    #[test]
    fn a_life_cut_short_does_not_spin() {
        let authorities = vec![pair("b", "b", 990, 1990), pair("a", "a", 0, 1000)];
        let chain = Chain { authorities, serving: Some(pair("s", "a", 984, 1000)), paths: None };
        assert_eq!(decide(&chain, LIVES, true, at(985)).serving, None);
    }

    #[test]
    fn shorter_settings_count_at_once() {
        let chain =
            Chain { authorities: vec![pair("a", "a", 0, 9000)], serving: Some(pair("s", "a", 0, 9000)), paths: None };
        let decision = decide(&chain, LIVES, true, at(850));
        assert_eq!((decision.authority, decision.serving), (true, Some(Some("a".to_owned()))));
    }

    #[test]
    fn a_certificate_beside_it_is_signed_by_the_newest_authority_that_is_known() {
        let authorities = vec![pair("b", "b", 800, 1800), pair("a", "a", 0, 1000)];
        // That of the webhooks is the older one's still, which ends soon.
        let chain = Chain { authorities, serving: Some(pair("s", "a", 795, 895)), paths: None };
        let signer = |shown: Option<&CertifiedKey>, published, now| {
            beside(&chain, shown, LIVES.serving, published, at(now)).signer
        };
        assert_eq!(signer(None, true, 806).as_deref(), Some("a"), "the new one is not known everywhere");
        assert_eq!(signer(None, false, 890).as_deref(), Some("a"), "nor is it published");
        assert_eq!(signer(None, true, 890).as_deref(), Some("b"), "the older one would end it at 1000");
        let fresh = pair("d", "a", 805, 905);
        let decision = beside(&chain, Some(&fresh), LIVES.serving, true, at(815));
        assert_eq!(decision, Beside { signer: None, rest: Duration::from_secs(70) });
        assert_eq!(signer(Some(&fresh), true, 885).as_deref(), Some("b"));
        let of_none = pair("d", "c", 805, 905);
        assert_eq!(signer(Some(&of_none), true, 815).as_deref(), Some("a"), "of an authority that is none");
        assert_eq!(beside(&Chain::default(), None, LIVES.serving, true, at(0)).signer, None);
    }

    #[test]
    fn lives_are_kubevirts_by_default() {
        let lives = Lifetimes::of(None);
        assert_eq!(lives.authority.whole, Duration::from_secs(604_800));
        assert_eq!(lives.serving.spare, Duration::from_secs(17_280));
    }
}
