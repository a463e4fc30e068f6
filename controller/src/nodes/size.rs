//! How many nodes are to have an agent: the time over which agents dial follows from it. A replica that has just started has no
//! connection to count.

use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_tunnel::controller::Nodes;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;

use crate::context::Context;
use crate::kubevirt::NODES;

/// How often the DaemonSet is read, and how soon where it could not be.
const EVERY: Duration = Duration::from_secs(5 * 60);
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps the number up to date. Never ends.
pub(super) async fn follow(context: &Context, nodes: &Nodes) {
    let agents: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    loop {
        let pause = match agents.get_opt(NODES).await {
            Ok(found) => {
                nodes.expect(wanted(found.as_ref()));
                EVERY
            }
            Err(error) => {
                tracing::debug!(error = %ErrorChain(&error), "the node agents could not be counted; tried again");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Without a DaemonSet, or before it was looked at, no number.
fn wanted(agents: Option<&DaemonSet>) -> usize {
    let status = agents.and_then(|agents| agents.status.as_ref());
    status.and_then(|status| usize::try_from(status.desired_number_scheduled).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSetStatus;

    use super::*;

    #[test]
    fn as_many_agents_are_expected_as_the_daemon_set_wants() {
        let of = |desired_number_scheduled| DaemonSet {
            status: Some(DaemonSetStatus { desired_number_scheduled, ..DaemonSetStatus::default() }),
            ..DaemonSet::default()
        };
        assert_eq!(wanted(Some(&of(8000))), 8000);
        assert_eq!(wanted(Some(&of(-1))), 0);
        assert_eq!(wanted(Some(&DaemonSet::default())), 0);
        assert_eq!(wanted(None), 0);
    }
}
