//! `spec` of the KubeVirt object: the settings of a cluster.
//!
//! An object that was written for KubeVirt is accepted, with a warning for each setting that only tunes what is not here.
//! Refused are settings that keep workloads apart or in their places, because these are relied upon.

use super::{Fate, Line, REMOVE, When, both, read, warned};

/// `api/` reads the configuration that admission and plans ask for.
const CONFIG: &str = "api/src/cluster/kubevirt.rs";
const VERBOSITY: &str = "api/src/cluster/verbosity.rs";
const CERTIFICATES: &str = "controller/src/certificates/decide.rs";
const POLICY: &str = "controller/src/settings.rs";

const NOTHING: &str = "KubeVirt has this setting, and this version of Garboard does not follow it";
const NOT_MOVED: &str = "guests are not moved while they run, so that this setting has nothing to tune";
const NO_DEVICES: &str = "no guest is given a device of its node yet, so that this setting has nothing to permit";
const IMAGES: &str = "images and versions are those of the manifests that Garboard was installed with";
const OWN_PARTS: &str =
    "the parts of Garboard are set by their own manifests, in the directory `deploy` of its sources";
const RELIED_UPON: &str = "this setting keeps workloads apart or in their places, and Garboard does not follow it yet";

/// A setting that has a value and is not followed.
const fn unfollowed(under: &'static str, fields: &'static str, what: &'static str) -> Line {
    both(under, fields, warned(When::Filled, what, REMOVE))
}

const fn relied_upon(under: &'static str, fields: &'static str, instead: &'static str) -> Line {
    both(under, fields, Fate::Refused { when: When::Filled, why: RELIED_UPON, instead })
}

/// How an installation is made.
pub(super) const INSTALLATION: &[Line] = &[
    read("certificateRotateStrategy.selfSigned", "ca.duration ca.renewBefore", CERTIFICATES),
    read("certificateRotateStrategy.selfSigned", "server.duration server.renewBefore", CERTIFICATES),
    unfollowed(
        "certificateRotateStrategy.selfSigned",
        "caOverlapInterval caRotateInterval certRotateInterval",
        "this old setting of certificates is not followed; `ca` and `server` are",
    ),
    read("", "imagePullPolicy", POLICY),
    unfollowed("", "imageRegistry imageTag productComponent productName productVersion", IMAGES),
    unfollowed("", "imagePullSecrets", "the pods of Garboard pull images with the Secrets of their service accounts"),
    unfollowed("", "customizeComponents infra", OWN_PARTS),
    unfollowed(
        "",
        "monitorAccount monitorNamespace serviceMonitorNamespace",
        "what Prometheus needs is installed in the namespace of Garboard",
    ),
    unfollowed("", "synchronizationPort workloadUpdateStrategy", NOT_MOVED),
    unfollowed("", "uninstallStrategy", "`garboard cluster uninstall` decides what goes"),
    relied_upon("", "workloads", "write a `nodeSelector` into the machines, or taint the other nodes"),
];

/// What machines get by default, and what they may request.
pub(super) const CONFIGURATION: &[Line] = &[
    read(
        "configuration",
        "additionalGuestMemoryOverheadRatio cpuModel cpuRequest vmStateStorageClass \
         architectureConfiguration.amd64.machineType architectureConfiguration.defaultArchitecture \
         developerConfiguration.cpuAllocationRatio developerConfiguration.disabledFeatureGates[] \
         developerConfiguration.featureGates[] developerConfiguration.memoryOvercommit \
         developerConfiguration.useEmulation instancetype.referencePolicy network.defaultNetworkInterface \
         network.permitBridgeInterfaceOnPodNetwork",
        CONFIG,
    ),
    read("configuration", "imagePullPolicy", POLICY),
    read(
        "configuration.developerConfiguration.logVerbosity",
        "nodeVerbosity virtAPI virtController virtHandler virtLauncher",
        VERBOSITY,
    ),
    both(
        "configuration",
        "evictionStrategy",
        warned(
            When::OtherThan("None"),
            "no guest is moved while it runs: with `LiveMigrate` a drain of a node waits until its machines are stopped",
            "write `None` for guests that a drain may power down",
        ),
    ),
    both(
        "configuration",
        "vmRolloutStrategy",
        warned(
            When::Is("LiveUpdate"),
            "changes of a machine always reach its guest at the next start",
            "write `Stage`",
        ),
    ),
    unfollowed(
        "configuration.liveUpdateConfiguration",
        "maxCpuSockets maxGuest maxHotplugRatio",
        "guests are laid out with room to grow, but nothing is plugged in while they run",
    ),
    unfollowed(
        "configuration",
        "apiConfiguration controllerConfiguration handlerConfiguration webhookConfiguration \
         developerConfiguration.clusterProfiler",
        OWN_PARTS,
    ),
    unfollowed(
        "configuration.developerConfiguration.logVerbosity",
        "virtOperator virtSynchronizationController",
        "Garboard has no such part: its controller does the work of KubeVirt's operator, and guests are not moved between clusters",
    ),
    unfollowed(
        "configuration",
        "architectureConfiguration.arm64 architectureConfiguration.ppc64le architectureConfiguration.s390x",
        "there are guests of amd64 only",
    ),
    unfollowed(
        "configuration",
        "architectureConfiguration.amd64.emulatedMachines architectureConfiguration.amd64.ovmfPath emulatedMachines \
         machineType ovmfPath",
        "machine types and firmware are those of the launcher's image; the default machine type is \
         `architectureConfiguration.amd64.machineType`",
    ),
    both(
        "configuration",
        "commonInstancetypesDeployment",
        warned(
            When::Written,
            "the controller installs nothing: `enabled` counts when Garboard is installed the next time",
            "run `kubectl garboard cluster install`, or set it in the values of the chart",
        ),
    ),
    unfollowed("configuration", "migrations developerConfiguration.minimumClusterTSCFrequency", NOT_MOVED),
    unfollowed("configuration", "mediatedDevicesConfiguration permittedHostDevices", NO_DEVICES),
    unfollowed(
        "configuration",
        "changedBlockTrackingLabelSelectors confidentialCompute \
         developerConfiguration.diskVerification developerConfiguration.minimumReservePVCBytes \
         developerConfiguration.pvcTolerateLessSpaceUpToPercent hypervisors ksmConfiguration \
         memBalloonStatsPeriod minCPUModel obsoleteCPUModels persistentReservationConfiguration \
         roleAggregationStrategy selinuxLauncherType smbios supportContainerResources supportedGuestAgentVersions \
         virtTemplateDeployment virtualMachineInstancesPerNode virtualMachineOptions network.binding \
         network.permitSlirpInterface",
        NOTHING,
    ),
    relied_upon(
        "configuration",
        "autoCPULimitNamespaceLabelSelector",
        "write `resources.limits.cpu` into the machines of these namespaces",
    ),
    relied_upon("configuration", "defaultRuntimeClass", REMOVE),
    relied_upon("configuration", "developerConfiguration.nodeSelectors", "write a `nodeSelector` into the machines"),
    relied_upon("configuration", "seccompConfiguration", "remove it: launcher pods have the profile `RuntimeDefault`"),
    relied_upon("configuration", "tlsConfiguration", "remove it: webhooks use TLS 1.2 and 1.3"),
];
