//! `node.json`: what launchers read of their node.

use std::io;
use std::path::Path;

use garboard_machine::facts::KvmFacts;
use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::pod::{NODE_FACTS, NodeFacts};

use crate::device::resource::{Health, Resource};

/// What a node's devices mean to a launcher. `measured` is what was found out about KVM before the agent started; a device
/// that has come since then was not measured.
#[must_use]
pub fn facts(health: impl Fn(Resource) -> Health, measured: Option<&KvmFacts>) -> NodeFacts {
    let has_come = measured.is_some_and(|kvm| !kvm.state.runs_guests()) && health(Resource::Kvm) == Health::Healthy;
    NodeFacts {
        version: PROTOCOL_VERSION,
        tap: health(Resource::Tun) == Health::Healthy,
        vhost_net: health(Resource::VhostNet) == Health::Healthy,
        kvm: measured.filter(|_| !has_come).cloned(),
    }
}

/// Writes them, in one step: a launcher reads all or what was there before.
///
/// # Errors
/// The kernel's error.
pub fn write(directory: &Path, facts: &NodeFacts) -> io::Result<()> {
    let fresh = directory.join("node.json.new");
    std::fs::write(&fresh, serde_json::to_vec(facts)?)?;
    std::fs::rename(fresh, directory.join(NODE_FACTS))
}

#[cfg(test)]
mod tests {
    use garboard_machine::facts::KvmState;

    use super::*;

    #[test]
    fn they_are_written_as_launchers_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let health = |resource| if resource == Resource::Tun { Health::Healthy } else { Health::Unhealthy };
        let kvm = measured(KvmState::Emulated);
        write(directory.path(), &facts(health, None)).unwrap();
        write(directory.path(), &facts(health, Some(&kvm))).unwrap();
        let read: NodeFacts =
            serde_json::from_slice(&std::fs::read(directory.path().join(NODE_FACTS)).unwrap()).unwrap();
        assert!(read.tap && !read.vhost_net);
        assert_eq!(read.kvm, Some(kvm));
    }

    #[test]
    fn a_kvm_that_came_after_it_was_looked_for_is_not_called_missing() {
        let missing = measured(KvmState::Missing);
        assert_eq!(facts(|_| Health::Unhealthy, Some(&missing)).kvm, Some(missing.clone()));
        assert_eq!(facts(|_| Health::Healthy, Some(&missing)).kvm, None);
    }

    #[test]
    fn what_an_older_agent_wrote_is_read() {
        let read: NodeFacts = serde_json::from_str(r#"{"version": 1, "tap": true, "vhostNet": true}"#).unwrap();
        assert_eq!(read.kvm, None);
    }

    fn measured(state: KvmState) -> KvmFacts {
        KvmFacts { state, qemu: None, cpu_features: ["sse2".to_owned()].into(), max_vcpus: Some(288), nested: None }
    }
}
