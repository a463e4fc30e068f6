//! Whose token an agent shows: a TokenReview. The node is the one that the API server put into the token when it was made
//! for the agent's pod (Kubernetes 1.32, `ServiceAccountTokenPodNodeInfo`); an agent says nothing of it itself.

use garboard_cluster::names::NODE_ACCOUNT;
use garboard_tunnel::AUDIENCE;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Api;
use kube::api::PostParams;

use crate::context::Context;

/// The key of `extra` with the node's name.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Why a token is not that of a node's agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAnAgent {
    /// The API server could not be asked.
    #[error("the token could not be reviewed")]
    Unknown(#[source] Box<kube::Error>),
    /// It does not know the token.
    #[error("the token is not valid for {AUDIENCE}")]
    Invalid,
    /// The token is another account's.
    #[error("the token belongs to {user}, not to the node agents' account")]
    Other {
        /// Whose it is.
        user: String,
    },
    /// The token is not bound to a pod on a node.
    #[error("the token is not bound to a pod on a node")]
    Unbound,
}

/// The node whose agent has this token.
///
/// # Errors
/// [`NotAnAgent`].
pub(super) async fn node_of(context: &Context, token: &str) -> Result<String, NotAnAgent> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![AUDIENCE.to_owned()]) };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviews: Api<TokenReview> = Api::all(context.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| NotAnAgent::Unknown(Box::new(error)))?;
    judge(answer.status.unwrap_or_default(), &context.namespace)
}

/// What a review comes to. Pure.
fn judge(status: TokenReviewStatus, namespace: &str) -> Result<String, NotAnAgent> {
    let is_for_us = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
    if status.authenticated != Some(true) || !is_for_us {
        return Err(NotAnAgent::Invalid);
    }
    let user = status.user.unwrap_or_default();
    let name = user.username.unwrap_or_default();
    if name != format!("system:serviceaccount:{namespace}:{NODE_ACCOUNT}") {
        return Err(NotAnAgent::Other { user: name });
    }
    let node = user.extra.unwrap_or_default().remove(NODE_NAME).unwrap_or_default().into_iter().next();
    node.filter(|node| !node.is_empty()).ok_or(NotAnAgent::Unbound)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(change: Value) -> Result<String, String> {
        let mut status = json!({
            "authenticated": true, "audiences": ["garboard-controller"],
            "user": {"username": "system:serviceaccount:garboard:garboard-node",
                "extra": {"authentication.kubernetes.io/node-name": ["node-1"]}},
        });
        json_patch::merge(&mut status, &change);
        judge(serde_json::from_value(status).unwrap(), "garboard").map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_bound_token_of_an_agent_with_our_audience_is_one() {
        assert_eq!(judged(json!({})), Ok("node-1".to_owned()));
        let not_valid = Err("the token is not valid for garboard-controller".to_owned());
        assert_eq!(judged(json!({"authenticated": false})), not_valid);
        assert_eq!(judged(json!({"audiences": ["https://kubernetes.default.svc"]})), not_valid);
        assert_eq!(judged(json!({"audiences": null})), not_valid);
        let other = judged(json!({"user": {"username": "system:serviceaccount:other:garboard-node"}}));
        assert!(other.unwrap_err().contains("not to the node agents' account"));
        let unbound = Err("the token is not bound to a pod on a node".to_owned());
        assert_eq!(judged(json!({"user": {"extra": null}})), unbound);
    }
}
