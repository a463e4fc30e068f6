//! A pool beside the template of its machines. Without a cluster there is no controller, and so no pool.

use super::{Fate, Line, When, both, not_yet, read};

const POOL: &str = "api/src/pool.rs";
const DECIDE: &str = "controller/src/pool/decide.rs";
const HEAL: &str = "controller/src/pool/heal.rs";
const ORDER: &str = "controller/src/pool/order.rs";
const UPDATE: &str = "controller/src/pool/update.rs";
const STATUS_OF: &str = "controller/src/pool/status.rs";
const CONDITIONS: &str = "api/src/conditions/mod.rs";

/// Fields of `spec` of a VirtualMachinePool.
pub(super) const SPEC: &[Line] = &[
    read("", "paused", DECIDE),
    read("", "maxUnavailable replicas", POOL),
    both("", "selector", Fate::Handed(DECIDE)),
    both("", "virtualMachineTemplate.metadata virtualMachineTemplate.spec", Fate::Handed(POOL)),
    read("nameGeneration", "appendIndexToConfigMapRefs appendIndexToSecretRefs", POOL),
    read("autohealing", "minFailingToStartDuration startUpFailureThreshold", HEAL),
    read("updateStrategy", "opportunistic unmanaged", UPDATE),
    read("updateStrategy.proactive.selectionPolicy", "sortPolicy", ORDER),
    both(
        "updateStrategy.proactive.selectionPolicy.selectors",
        "labelSelector nodeSelectorRequirementMatcher[]",
        Fate::Handed(ORDER),
    ),
    read("scaleInStrategy", "unmanaged", DECIDE),
    read("scaleInStrategy.proactive.selectionPolicy", "sortPolicy", ORDER),
    both(
        "scaleInStrategy.proactive.selectionPolicy.selectors",
        "labelSelector nodeSelectorRequirementMatcher[]",
        Fate::Handed(ORDER),
    ),
    not_yet(
        "scaleInStrategy.proactive",
        "statePreservation",
        When::Is("Online"),
        "write `Offline`, which keeps the volumes: memory of guests is not saved",
    ),
    not_yet(
        "scaleInStrategy.opportunistic",
        "statePreservation",
        When::OtherThan("Disabled"),
        "write `proactive: {statePreservation: Offline}`, or keep volumes that no `dataVolumeTemplates` make",
    ),
];

/// `status` of a VirtualMachinePool.
pub(super) const STATUS: &[Line] = &[
    read("conditions[]", "lastTransitionTime message reason status type", CONDITIONS),
    both("conditions[]", "lastProbeTime", Fate::NeverWritten),
    read("", "labelSelector readyReplicas replicas", STATUS_OF),
];
