//! Who may read metrics: accounts that may `get` the path `/metrics` by the cluster's RBAC (`nonResourceURLs`), as of Kubernetes' own
//! components. The token is reviewed by the API server, and both answers are kept for a minute.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HeaderMap};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The path that a role has to name, for the metrics of nodes too.
const PATH: &str = "/metrics";
/// How long a token that was let in is not reviewed again.
const KEPT: Duration = Duration::from_secs(60);
/// Tokens that are kept: each Prometheus has one.
const MOST: usize = 64;
/// Tokens that are reviewed at once: a flood of false ones is no flood of the API server.
const REVIEWS: usize = 4;
/// The longest token that is reviewed, bytes.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How long the API server may take.
const WITHIN: Duration = Duration::from_secs(5);

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// It has no token.
    #[error("a bearer token is required, of an account that may `get` the nonResourceURL {PATH}")]
    NoToken,
    /// The API server does not know the token.
    #[error("the bearer token is not valid")]
    Invalid,
    /// The account has no right to it.
    #[error(
        "{user} may not `get` the nonResourceURL {PATH}; bind it to a ClusterRole that allows it, such as garboard-metrics-reader"
    )]
    Forbidden {
        /// Who.
        user: String,
    },
    /// The API server could not be asked.
    #[error("the API server could not be asked whose token it is")]
    Unknown(#[source] Box<kube::Error>),
    /// The API server does not answer, or too many others ask.
    #[error("the API server did not answer within {} s", WITHIN.as_secs())]
    Slow,
}

impl Refused {
    /// Its name, of few: a label of the metric that counts them.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::Invalid => "invalid",
            Self::Forbidden { .. } => "forbidden",
            Self::Unknown(_) | Self::Slow => "unknown",
        }
    }

    /// All names.
    pub(super) const REASONS: [&'static str; 4] = ["forbidden", "invalid", "no_token", "unknown"];
}

/// Asks, and remembers.
pub(super) struct Access {
    client: Client,
    turns: Semaphore,
    known: Mutex<HashMap<String, Instant>>,
}

impl Access {
    /// Of the API server behind this client.
    pub(super) fn new(client: Client) -> Self {
        Self { client, turns: Semaphore::new(REVIEWS), known: Mutex::default() }
    }

    /// Whether who sends these headers may read metrics.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let token = bearer(headers).ok_or(Refused::NoToken)?;
        if self.is_known(token) {
            return Ok(());
        }
        let reviewing = async {
            // A semaphore that is never closed.
            let _turn = self.turns.acquire().await;
            // Others with the same token may have been let in meanwhile.
            if self.is_known(token) {
                return Ok(());
            }
            let user = self.user(token).await?;
            self.may(user).await
        };
        tokio::time::timeout(WITHIN, reviewing).await.unwrap_or(Err(Refused::Slow))?;
        self.keep(token);
        Ok(())
    }

    async fn user(&self, token: &str) -> Result<UserInfo, Refused> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status = answer.map_err(|error| Refused::Unknown(Box::new(error)))?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        user.filter(|user| user.username.as_deref().is_some_and(|name| !name.is_empty())).ok_or(Refused::Invalid)
    }

    async fn may(&self, user: UserInfo) -> Result<(), Refused> {
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &question(user)).await;
        let status = answer.map_err(|error| Refused::Unknown(Box::new(error)))?.status.unwrap_or_default();
        let is_allowed = status.allowed && !status.denied.unwrap_or_default();
        if is_allowed { Ok(()) } else { Err(Refused::Forbidden { user: name }) }
    }

    fn is_known(&self, token: &str) -> bool {
        self.lock().get(token).is_some_and(|since| since.elapsed() < KEPT)
    }

    fn keep(&self, token: &str) {
        let mut known = self.lock();
        known.retain(|_, since| since.elapsed() < KEPT);
        if known.len() < MOST {
            known.insert(token.to_owned(), Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The question whether a user may read metrics. Pure.
fn question(user: UserInfo) -> SubjectAccessReview {
    let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let token = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.trim();
    Some(token).filter(|token| !token.is_empty() && token.len() <= LONGEST_TOKEN)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_question_is_of_the_path_and_of_the_whole_user() {
        let user = serde_json::from_value(json!({
            "username": "system:serviceaccount:monitoring:prometheus", "uid": "u", "groups": ["g"], "extra": {"a": ["b"]},
        }));
        let asked = serde_json::to_value(question(user.unwrap()).spec).unwrap();
        let expected = json!({
            "user": "system:serviceaccount:monitoring:prometheus", "uid": "u", "groups": ["g"], "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        });
        assert_eq!(asked, expected);
    }

    #[test]
    fn only_a_bearer_token_of_a_usual_length_is_one() {
        let found = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(found("Bearer abc"), Some("abc".to_owned()));
        assert_eq!((found("Bearer "), found("Basic abc"), found("abc")), (None, None, None));
        assert_eq!(found(&format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1))), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn every_refusal_has_one_of_the_names() {
        let all = [Refused::NoToken, Refused::Invalid, Refused::Forbidden { user: String::new() }, Refused::Slow];
        assert_eq!(all.len(), Refused::REASONS.len());
        assert!(all.iter().all(|refused| Refused::REASONS.contains(&refused.reason())));
    }
}
