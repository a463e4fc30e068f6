//! Whether an agent that is connected is still one: its token is reviewed again and again. A token ends with its time, its pod, its
//! account and its node; the agent's kubelet renews it, so the one that the agent would show now is reviewed.

use std::time::Duration;

use garboard_protocol::causes::ErrorChain;

use super::review::NotAnAgent;

/// How long after a review the next one is, at the least and at the most: 8000 agents are some 18 reviews a second.
const LEAST: Duration = Duration::from_secs(5 * 60);
const MOST: Duration = Duration::from_secs(10 * 60);

/// Why a connection is ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Over {
    /// The token is none of an agent any more.
    #[error(transparent)]
    NotAnAgent(#[from] NotAnAgent),
    /// It is now that of another node's agent.
    #[error("the token is now that of node {node}")]
    OtherNode {
        /// The node.
        node: String,
    },
}

/// An agent that is connected.
pub(super) trait ConnectedAgent: Send {
    /// The token that it would show now; nothing if it does not say.
    fn token(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// The node whose agent has this token.
    ///
    /// # Errors
    /// [`NotAnAgent`].
    fn review(&self, token: &str) -> impl Future<Output = Result<String, NotAnAgent>> + Send;
}

/// Ends when the agent of `node` is none any more, and says why. `first` is the token with which it came. An API server that cannot be
/// asked ends no connection.
pub(super) async fn over(node: &str, first: String, mut agent: impl ConnectedAgent) -> Over {
    let mut token = first;
    loop {
        tokio::time::sleep(pause(uuid::Uuid::new_v4().as_u128())).await;
        if let Some(shown) = agent.token().await {
            token = shown;
        }
        match agent.review(&token).await {
            Ok(found) if found == node => {}
            Ok(found) => return Over::OtherNode { node: found },
            Err(error @ NotAnAgent::Unknown(_)) => {
                tracing::warn!(node, error = %ErrorChain(&error), "the token of a connected agent could not be reviewed");
            }
            Err(error @ (NotAnAgent::Invalid | NotAnAgent::Other { .. } | NotAnAgent::Unbound)) => return error.into(),
        }
    }
}

/// By chance, so that agents that connected together are not reviewed together.
fn pause(chance: u128) -> Duration {
    let span = (MOST - LEAST).as_millis();
    LEAST + Duration::from_millis(u64::try_from(chance % span).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    /// Shows one token, and is judged so, one time after the other.
    struct Judged {
        shown: Option<String>,
        judged: Mutex<std::vec::IntoIter<Result<String, NotAnAgent>>>,
        seen: Mutex<Vec<String>>,
    }

    impl ConnectedAgent for &Judged {
        async fn token(&mut self) -> Option<String> {
            self.shown.clone()
        }

        async fn review(&self, token: &str) -> Result<String, NotAnAgent> {
            self.seen.lock().unwrap().push(token.to_owned());
            self.judged.lock().unwrap().next().expect("it goes on")
        }
    }

    /// How long a connection lasts whose tokens are judged so, one after the other.
    async fn lasts(shown: Option<&str>, judged: Vec<Result<String, NotAnAgent>>) -> (Duration, Over, Vec<String>) {
        let begun = Instant::now();
        let judged = Mutex::new(judged.into_iter());
        let agent = Judged { shown: shown.map(str::to_owned), judged, seen: Mutex::default() };
        let end = over("node-1", "first".to_owned(), &agent).await;
        (begun.elapsed(), end, agent.seen.into_inner().unwrap())
    }

    fn unknown() -> NotAnAgent {
        let response = kube::core::Status { code: 503, ..Default::default() };
        NotAnAgent::Unknown(Box::new(kube::Error::Api(Box::new(response))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_token_and_not_with_the_api_server() {
        let good = || Ok("node-1".to_owned());
        let (time, end, seen) = lasts(None, vec![good(), Err(unknown()), good(), Err(NotAnAgent::Invalid)]).await;
        assert!(matches!(end, Over::NotAnAgent(NotAnAgent::Invalid)), "{end}");
        assert!((LEAST * 4..=MOST * 4).contains(&time), "{time:?}");
        assert_eq!(seen, ["first"; 4], "an agent of a version before shows no other");
        // A removed account's is noticed within one pause.
        let (time, end, _) = lasts(None, vec![Err(NotAnAgent::Invalid)]).await;
        assert!(matches!(end, Over::NotAnAgent(_)) && time <= MOST, "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_that_the_agent_would_show_now_counts_and_is_of_its_node() {
        let (_, end, seen) = lasts(Some("renewed"), vec![Ok("node-1".to_owned()), Ok("node-2".to_owned())]).await;
        assert_eq!(end.to_string(), "the token is now that of node node-2");
        assert_eq!(seen, ["renewed"; 2]);
    }

    #[test]
    fn pauses_are_spread() {
        let pauses: Vec<Duration> = (0..1000_u128).map(|seed| pause(seed * 7_919_773)).collect();
        assert!(pauses.iter().all(|pause| (LEAST..MOST).contains(pause)));
        let late = pauses.iter().filter(|pause| **pause > (LEAST + MOST) / 2).count();
        assert!((300..700).contains(&late), "{late}");
    }
}
