//! A set of instances beside its template. Without a cluster there is no controller, and so no set.

use super::{Fate, Line, both, read};

const DECIDE: &str = "controller/src/replica_set/decide.rs";
const STATUS_OF: &str = "controller/src/replica_set/status.rs";
const CONDITIONS: &str = "api/src/conditions/mod.rs";

/// Fields of `spec` of a VirtualMachineInstanceReplicaSet.
pub(super) const SPEC: &[Line] = &[
    read("", "paused", DECIDE),
    read("", "replicas", "api/src/set.rs"),
    both("", "selector", Fate::Handed(DECIDE)),
    both("", "template.metadata template.spec", Fate::Handed("api/src/set.rs")),
];

/// `status` of a VirtualMachineInstanceReplicaSet.
pub(super) const STATUS: &[Line] = &[
    read("conditions[]", "lastTransitionTime message reason status type", CONDITIONS),
    both("conditions[]", "lastProbeTime", Fate::NeverWritten),
    read("", "labelSelector readyReplicas replicas", STATUS_OF),
];
