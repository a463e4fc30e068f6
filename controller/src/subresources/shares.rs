//! The shares of users and of namespaces in what this replica does, at once and in a time. A namespace has one, because who may make service accounts in it is
//! as many users as they like.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use garboard_subresources::refusal::Refusal;
use tokio::time::Instant;

use super::limits::{
    HERE_OF_A_NAMESPACE, LARGE_BODIES, RATE_OF_A_NAMESPACE, RATE_OF_A_USER, REQUESTS_OF_A_NAMESPACE,
    REQUESTS_OF_A_USER, WAITING_OF_A_USER,
};
use super::rates::{Buckets, Rate};
use super::turns::{Turn, Turns};
use crate::metrics::Counted;

/// Requests that wait or are answered.
#[derive(Clone)]
pub(super) struct Requests {
    /// All of a namespace, whether they wait or are answered.
    here: Turns,
    users: Turns,
    namespaces: Turns,
    large_of_users: Turns,
    large_of_namespaces: Turns,
}

impl Requests {
    /// Those of [`super::limits`].
    pub(super) fn usual() -> Self {
        let large = || Turns::new(LARGE_BODIES, HERE_OF_A_NAMESPACE);
        Self {
            here: Turns::new(HERE_OF_A_NAMESPACE, 0),
            users: Turns::new(REQUESTS_OF_A_USER, WAITING_OF_A_USER),
            namespaces: Turns::new(REQUESTS_OF_A_NAMESPACE, HERE_OF_A_NAMESPACE),
            large_of_users: large(),
            large_of_namespaces: large(),
        }
    }

    /// What a request has before its user's rights are known. An API server has forwarded it, and does so only for who has the right.
    pub(super) async fn of_user(&self, user: &str, namespace: &str, until: Instant) -> Option<[Turn; 2]> {
        let here = self.here.take(namespace)?;
        Some([here, self.users.wait(user, until).await?])
    }

    /// What a request that may have a large body has in addition, before the turn of its namespace: meanwhile it takes of its user alone.
    pub(super) async fn of_a_large_body(&self, user: &str, namespace: &str, until: Instant) -> Option<[Turn; 2]> {
        let of_user = self.large_of_users.wait(user, until).await?;
        Some([of_user, self.large_of_namespaces.wait(namespace, until).await?])
    }

    /// What a request has once the rights are known.
    pub(super) async fn of_namespace(&self, namespace: &str, until: Instant) -> Option<Turn> {
        self.namespaces.wait(namespace, until).await
    }
}

/// How often users and namespaces have something changed, or a launcher asked.
#[derive(Clone)]
pub(super) struct Rates {
    users: Arc<Mutex<Buckets>>,
    namespaces: Arc<Mutex<Buckets>>,
}

impl Rates {
    /// Those of [`super::limits`].
    pub(super) fn usual() -> Self {
        let buckets = |rate: Rate| Arc::new(Mutex::new(Buckets::new(rate)));
        Self { users: buckets(RATE_OF_A_USER), namespaces: buckets(RATE_OF_A_NAMESPACE) }
    }

    /// Counts a request of a user.
    ///
    /// # Errors
    /// [`Refusal::TooOften`].
    pub(super) fn of_user(&self, user: &str, now: Instant) -> Result<(), Refusal> {
        taken(&self.users, user, now)
    }

    /// Counts one to a namespace, once the rights are known.
    ///
    /// # Errors
    /// [`Refusal::TooOften`].
    pub(super) fn of_namespace(&self, namespace: &str, now: Instant) -> Result<(), Refusal> {
        taken(&self.namespaces, namespace, now)
    }
}

fn taken(buckets: &Mutex<Buckets>, whose: &str, now: Instant) -> Result<(), Refusal> {
    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    buckets.take(whose, now.into_std()).map_err(|wait| Refusal::TooOften(whole_seconds(wait)))
}

/// So many seconds, rounded up: the header `Retry-After` has no fractions.
fn whole_seconds(wait: Duration) -> i32 {
    i32::try_from(wait.as_secs()).unwrap_or(i32::MAX).saturating_add(i32::from(wait.subsec_nanos() > 0))
}

/// The most streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) of_all: usize,
    pub(super) of_a_user: usize,
    pub(super) of_a_namespace: usize,
    /// Those that go through the connection of a node's agent, which has not many more for all.
    pub(super) of_a_namespace_on_a_node: usize,
    /// The same of all namespaces: the rest of the connection is for requests.
    pub(super) of_a_node: usize,
}

/// Streams that are open. None is waited for: they are open for as long as their clients like.
#[derive(Clone)]
pub(super) struct Streams {
    all: Turns,
    users: Turns,
    namespaces: Turns,
    on_nodes: Turns,
    nodes: Turns,
}

impl Streams {
    /// At most so many.
    pub(super) fn new(most: Most) -> Self {
        let turns = |most: usize| Turns::new(most, 0);
        Self {
            all: turns(most.of_all),
            users: turns(most.of_a_user),
            namespaces: turns(most.of_a_namespace),
            on_nodes: turns(most.of_a_namespace_on_a_node),
            nodes: turns(most.of_a_node),
        }
    }

    /// A stream of a user to a machine of a namespace.
    pub(super) fn take(&self, user: &str, namespace: &str) -> Option<StreamTurn> {
        let own = [self.users.take(user)?, self.namespaces.take(namespace)?];
        Some(StreamTurn { _all: self.all.take("")?, _own: own, _on_node: None, _counted: None })
    }

    /// The same through the agent of a node.
    pub(super) fn take_on(&self, node: &str, user: &str, namespace: &str) -> Option<StreamTurn> {
        // No name of a node has a slash.
        let on_node = [self.on_nodes.take(&format!("{node}/{namespace}"))?, self.nodes.take(node)?];
        Some(StreamTurn { _on_node: Some(on_node), ..self.take(user, namespace)? })
    }
}

/// The turns of a stream; they end when this is dropped.
pub(super) struct StreamTurn {
    _all: Turn,
    _own: [Turn; 2],
    _on_node: Option<[Turn; 2]>,
    _counted: Option<Counted>,
}

impl StreamTurn {
    /// It is counted for as long.
    pub(super) fn counted(self, counted: Counted) -> Self {
        Self { _counted: Some(counted), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { of_all: 4, of_a_user: 2, of_a_namespace: 3, of_a_namespace_on_a_node: 1, of_a_node: 2 };

    #[test]
    fn a_wait_is_in_whole_seconds_and_never_none() {
        for (milliseconds, seconds) in [(1, 1), (999, 1), (1000, 1), (1001, 2), (20_000, 20)] {
            assert_eq!(whole_seconds(Duration::from_millis(milliseconds)), seconds, "{milliseconds}");
        }
    }

    #[test]
    fn the_users_of_a_namespace_share_its_streams_and_take_none_of_another() {
        let streams = Streams::new(MOST);
        let mut open = ["ada", "ada", "bob"].map(|user| streams.take(user, "one").unwrap()).into_iter();
        assert!(streams.take("eve", "one").is_none(), "another account of the same namespace");
        assert!(streams.take("ada", "two").is_none(), "a user has so many in all namespaces together");
        let of_another = streams.take("eve", "two").unwrap();
        assert!(streams.take("eve", "two").is_none(), "the replica has no more");
        open.next();
        assert!(streams.take("eve", "one").is_some());
        drop((open, of_another));
        assert!(streams.take("ada", "one").is_some());
    }

    #[test]
    fn a_namespace_takes_a_part_of_a_nodes_connection() {
        let streams = Streams::new(MOST);
        let _first = streams.take_on("node-1", "ada", "one").unwrap();
        assert!(streams.take_on("node-1", "bob", "one").is_none());
        let second = streams.take_on("node-2", "ada", "one").unwrap();
        let third = streams.take_on("node-1", "bob", "two").unwrap();
        assert!(streams.take_on("node-1", "eve", "three").is_none(), "the rest is for requests");
        drop(third);
        drop(second);
        assert!(streams.take_on("node-2", "bob", "one").is_some());
    }
}
