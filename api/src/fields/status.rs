//! What is written into a status, and what never is. A status asks for nothing, so nothing in it is refused or warned of;
//! `docs/compatibility.md` lists what a client finds there.

use super::{Fate, Line, both, read};

/// The only place that sets a condition.
const CONDITIONS: &str = "api/src/conditions/mod.rs";
const REPORT: &str = "cluster/src/report/mod.rs";
const POD: &str = "controller/src/vmi/status.rs";
const VM: &str = "controller/src/vm/status.rs";
const DECIDE: &str = "controller/src/vm/decide.rs";
const SIZES: &str = "controller/src/vm/sizes/mod.rs";
const KUBEVIRT: &str = "controller/src/kubevirt/decide.rs";
const UPGRADE: &str = "controller/src/upgrade/apply.rs";

const fn never(under: &'static str, fields: &'static str) -> Line {
    both(under, fields, Fate::NeverWritten)
}

/// `status` of a VirtualMachineInstance.
pub(super) const INSTANCE: &[Line] = &[
    read("", "activePods launcherContainerImageVersion nodeName qosClass", POD),
    read("", "virtualMachineRevisionName", DECIDE),
    read("", "conditions[].message conditions[].reason conditions[].status conditions[].type", CONDITIONS),
    read("", "conditions[].lastTransitionTime", CONDITIONS),
    never("conditions[]", "lastProbeTime"),
    read("currentCPUTopology", "cores sockets threads", REPORT),
    read("guestOSInfo", "id kernelRelease kernelVersion machine name prettyName version versionId", REPORT),
    read(
        "interfaces[]",
        "infoSource interfaceName ipAddress ipAddresses linkState mac name podInterfaceName queueCount",
        REPORT,
    ),
    read("", "machine.type memory.guestAtBoot memory.guestCurrent memory.guestRequested memory.memoryOverhead", REPORT),
    read("", "fsFreezeStatus phase reason runtimeUser", REPORT),
    read("", "evacuationNodeName", "controller/src/webhook/eviction/mod.rs"),
    read("phaseTransitionTimestamps[]", "phase phaseTransitionTimestamp", REPORT),
    read("volumeStatus[]", "name target", REPORT),
    both("volumeStatus[]", "persistentVolumeClaimInfo", Fate::Handed(REPORT)),
    both("", "storedMachine supervisor", Fate::Handed(REPORT)),
    never("volumeStatus[]", "containerDiskVolume hotplugVolume memoryDumpVolume message phase reason size"),
    never(
        "",
        "VSOCKCID changedBlockTracking kernelBootStatus migratedVolumes migrationMethod migrationState \
         migrationTransport selinuxContext topologyHints",
    ),
];

/// `status` of a VirtualMachine.
pub(super) const MACHINE: &[Line] = &[
    read("conditions[]", "lastTransitionTime message reason status type", CONDITIONS),
    never("conditions[]", "lastProbeTime"),
    read("", "created desiredGeneration observedGeneration printableStatus ready", VM),
    read("", "runStrategy", DECIDE),
    both("", "startFailure stateChangeRequests", Fate::Handed(DECIDE)),
    both("", "storedMachine volumeSnapshotStatuses", Fate::Handed(VM)),
    both("", "instancetypeRef preferenceRef", Fate::Handed(SIZES)),
    never(
        "",
        "changedBlockTracking memoryDumpRequest restoreInProgress snapshotInProgress volumeRequests volumeUpdateState",
    ),
];

/// `status` of a KubeVirt object.
pub(super) const SETTINGS: &[Line] = &[
    read("conditions[]", "lastTransitionTime message reason status type", CONDITIONS),
    read("", "defaultArchitecture observedGeneration observedKubeVirtVersion operatorVersion phase", KUBEVIRT),
    read("", "outdatedVirtualMachineInstanceWorkloads", UPGRADE),
    never("conditions[]", "lastProbeTime"),
    never(
        "",
        "generations observedDeploymentConfig observedDeploymentID observedKubeVirtRegistry \
         synchronizationAddresses targetDeploymentConfig targetDeploymentID \
         targetKubeVirtRegistry targetKubeVirtVersion",
    ),
];
