//! The shares of users and of namespaces in what this replica does. A namespace has one, because who may make service accounts in it is
//! as many users as they like.

use tokio::time::Instant;

use super::limits::{
    HERE_OF_A_NAMESPACE, LARGE_BODIES, REQUESTS_OF_A_NAMESPACE, REQUESTS_OF_A_USER, WAITING_OF_A_USER,
};
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
