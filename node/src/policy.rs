//! Whether the admission policies bind this agent. They identify it by the name of its account: where that is another, or where the
//! policies were not applied, nothing would keep a stolen token of one node from the others, and nothing would show it. So the
//! agent tries, as a dry run, what it must not do, on the one object that is always there: its own node.

use garboard_protocol::causes::ErrorChain;
use std::time::Duration;

use crate::cluster::ApiServer;

/// How long the agent waits for the answer before it serves launchers without it: the API server may be away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause before the API server is asked again.
const PAUSE: Duration = Duration::from_secs(10);

/// What was answered.
#[derive(Debug)]
pub enum Answer {
    /// A policy refused it.
    Binds,
    /// It would have been done.
    Open,
    /// Neither.
    Unknown(Box<kube::Error>),
}

/// No policy binds this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no admission policy binds this agent: a label of its node that is not its own could be written; apply all of \
     deploy/garboard.yaml, and keep the name `garboard-node` of its account"
)]
pub struct PolicyMissing;

impl Answer {
    /// By the API server's answer to the attempt.
    #[must_use]
    pub fn of<T>(attempt: Result<T, kube::Error>) -> Self {
        match attempt {
            Ok(_) => Self::Open,
            Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => Self::Binds,
            Err(error) => Self::Unknown(Box::new(error)),
        }
    }
}

/// Asks once, and not for long; whether it is known.
///
/// # Errors
/// [`PolicyMissing`].
pub async fn at_start(api: &ApiServer, node: &str) -> Result<bool, PolicyMissing> {
    match tokio::time::timeout(PATIENCE, api.try_what_is_forbidden(node)).await {
        Ok(Answer::Binds) => Ok(true),
        Ok(Answer::Open) => Err(PolicyMissing),
        Ok(Answer::Unknown(_)) | Err(_) => Ok(false),
    }
}

/// Asks until it is known; ends only if no policy binds.
pub async fn until_known(api: ApiServer, node: String, mut known: bool) {
    while !known {
        tokio::time::sleep(PAUSE).await;
        match api.try_what_is_forbidden(&node).await {
            Answer::Binds => known = true,
            Answer::Open => {
                tracing::error!("{PolicyMissing}");
                return;
            }
            Answer::Unknown(error) => {
                tracing::warn!(error = %ErrorChain(&*error), "check of the admission policies failed; tried again");
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(message: &str) -> Answer {
        Answer::of::<()>(Err(kube::Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403)))))
    }

    #[test]
    fn only_a_policys_no_is_one() {
        let by_policy = "nodes \"node-1\" is forbidden: ValidatingAdmissionPolicy 'garboard-node-nodes' with binding \
                         'garboard-node-nodes' denied request: the agent may change labels of kubevirt.io only";
        assert!(matches!(refused(by_policy), Answer::Binds));
        let by_rights = "nodes \"node-1\" is forbidden: User \"x\" cannot patch resource \"nodes\" in API group \"\"";
        assert!(matches!(refused(by_rights), Answer::Unknown(_)));
        assert!(matches!(Answer::of(Ok(())), Answer::Open));
    }
}
