//! A cluster as commands see it: its places, what it was asked to be, and the lock that keeps commands apart.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::cgroups::Cgroups;
use crate::component::{Agent, Component, Server};
use crate::error::{Error, Result};
use crate::files::{at, ensure_directory, read, write};
use crate::layout::{Layout, NodeNumber};
use crate::tool::wait_for_orphans;

/// What a cluster was last asked to be; kept in its state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where its programs are.
    pub programs: PathBuf,
    /// How many nodes it has.
    pub nodes: u8,
    /// How many more are only played.
    pub kwok: u16,
}

impl Record {
    /// Reads it. `None` if there is no such cluster, or `up` has not come that far.
    ///
    /// # Errors
    /// It was changed.
    pub fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.record();
        if !path.exists() {
            return Ok(None);
        }
        let malformed = |source| Error::Malformed { what: path.display().to_string(), source };
        serde_json::from_str(&read(&path)?).map(Some).map_err(malformed)
    }

    /// Keeps it.
    ///
    /// # Errors
    /// No room.
    pub fn store(&self, layout: &Layout) -> Result<()> {
        let path = layout.record();
        let malformed = |source| Error::Malformed { what: path.display().to_string(), source };
        write(&path, &serde_json::to_string_pretty(self).map_err(malformed)?)
    }
}

/// A cluster, and the means to handle it.
pub struct Cluster {
    /// Its places.
    pub layout: Layout,
    /// What it was asked to be.
    pub record: Record,
    /// The machine's control groups.
    pub cgroups: Cgroups,
    /// This program, which also starts daemons and is a node's first process.
    pub helper: PathBuf,
}

impl Cluster {
    /// The cluster of a record.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn new(layout: Layout, record: Record) -> Result<Self> {
        let myself = Path::new("/proc/self/exe");
        let helper = at("find", myself, std::fs::read_link(myself))?;
        Ok(Self { layout, record, cgroups: Cgroups::of_this_machine()?, helper })
    }

    /// The cluster that `up` has made.
    ///
    /// # Errors
    /// There is none.
    pub fn existing(layout: Layout) -> Result<Self> {
        let Some(record) = Record::load(&layout)? else {
            return Err(Error::Refused(format!("there is no cluster `{}`: `cluster up` makes one", layout.name)));
        };
        Self::new(layout, record)
    }

    /// Its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeNumber> + use<> {
        NodeNumber::first(self.record.nodes)
    }

    /// Everything that should run.
    pub fn components(&self) -> Vec<Component> {
        let servers = self.servers().map(Component::Server);
        let agents = self.nodes().flat_map(|node| Agent::ALL.map(|agent| Component::Agent(node, agent)));
        servers.chain(agents).collect()
    }

    /// The programs of the control plane; KWOK only if it plays a node.
    pub fn servers(&self) -> impl Iterator<Item = Server> + use<> {
        let has_kwok = self.record.kwok > 0;
        Server::ALL.into_iter().filter(move |server| has_kwok || *server != Server::Kwok)
    }

    /// Refuses a component that this cluster does not have.
    ///
    /// # Errors
    /// A node beyond the last, KWOK without a node to play.
    pub fn expect(&self, component: Component) -> Result<()> {
        if self.components().contains(&component) {
            return Ok(());
        }
        Err(Error::Refused(format!("this cluster has no {component}")))
    }

    /// Refuses a node that this cluster does not have.
    ///
    /// # Errors
    /// One beyond the last.
    pub fn expect_node(&self, node: NodeNumber) -> Result<()> {
        if self.nodes().any(|own| own == node) {
            return Ok(());
        }
        Err(Error::Refused(format!("this cluster has no {node}: it has {} nodes", self.record.nodes)))
    }
}

/// Held while a command changes a cluster.
pub struct Lock(#[expect(dead_code, reason = "its drop lets others in")] Flock<File>);

/// Waits for its turn, and takes it. The lock is on the state directory, so nothing is left of it.
///
/// # Errors
/// The directory cannot be made.
pub fn lock(layout: &Layout) -> Result<Lock> {
    loop {
        ensure_directory(&layout.state)?;
        let file = at("open", &layout.state, File::open(&layout.state))?;
        let held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((file, _)) => {
                crate::report::step("waiting for another command that changes this cluster");
                Flock::lock(file, FlockArg::LockExclusive)
                    .map_err(|(_, source)| Error::Kernel { action: "lock the state directory".to_owned(), source })?
            }
        };
        // The holder of the lock may have removed the directory meanwhile.
        let ours = at("look at", &layout.state, held.metadata())?;
        if std::fs::metadata(&layout.state).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            // Keys are in there. Programs on nodes that are not root's see what is theirs through the node's mounts.
            at("protect", &layout.state, held.set_permissions(Permissions::from_mode(0o700)))?;
            wait_for_orphans(&layout.logs())?;
            return Ok(Lock(held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(nodes: u8, kwok: u16) -> Cluster {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        Cluster::new(layout, Record { programs: "/opt/programs".into(), nodes, kwok }).unwrap()
    }

    #[test]
    fn a_cluster_knows_what_it_consists_of() {
        assert_eq!(cluster(2, 0).components().len(), 4 + 2 * 3);
        assert_eq!(cluster(1, 5).components().len(), 5 + 3);
        let third = NodeNumber::new(3).unwrap();
        assert!(cluster(2, 0).expect_node(third).is_err() && cluster(3, 0).expect_node(third).is_ok());
        assert!(cluster(2, 0).expect(Component::Server(Server::Kwok)).is_err());
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new("main".parse().unwrap(), Some(directory.path())).unwrap();
        assert_eq!(Record::load(&layout).unwrap(), None);
        let record = Record { programs: "/opt/programs".into(), nodes: 3, kwok: 7 };
        record.store(&layout).unwrap();
        assert_eq!(Record::load(&layout).unwrap(), Some(record));
    }
}
