//! `node.json`: what launchers have to know of their node.

use std::io;
use std::path::Path;

use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::pod::{NODE_FACTS, NodeFacts};

use crate::device::resource::{Health, Resource};

/// What a node's devices mean to a launcher.
#[must_use]
pub fn facts(health: impl Fn(Resource) -> Health) -> NodeFacts {
    NodeFacts {
        version: PROTOCOL_VERSION,
        tap: health(Resource::Tun) == Health::Healthy,
        vhost_net: health(Resource::VhostNet) == Health::Healthy,
    }
}

/// Writes them, in one step: a launcher reads all or what was there before.
///
/// # Errors
/// Whatever the kernel says.
pub fn write(directory: &Path, facts: &NodeFacts) -> io::Result<()> {
    let fresh = directory.join("node.json.new");
    std::fs::write(&fresh, serde_json::to_vec(facts)?)?;
    std::fs::rename(fresh, directory.join(NODE_FACTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_written_as_launchers_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let health = |resource| if resource == Resource::Tun { Health::Healthy } else { Health::Unhealthy };
        write(directory.path(), &facts(health)).unwrap();
        write(directory.path(), &facts(health)).unwrap();
        let read: NodeFacts =
            serde_json::from_slice(&std::fs::read(directory.path().join(NODE_FACTS)).unwrap()).unwrap();
        assert!(read.tap && !read.vhost_net);
    }
}
