//! The feature gates that KubeVirt 1.9 has (`pkg/virt-config/featuregate/`), and what is behind each here.
//!
//! KubeVirt takes every name, so every name is taken; a gate that is switched on with nothing behind it is warned of.

/// What is behind a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// It switches something here.
    Switch,
    /// What it switches on is always on here.
    Always,
    /// Nothing, and why, without a full stop.
    Nothing(&'static str),
}

const NO_FIELD: &str = "this gate has no effect: the fields it permits are refused by this version of Garboard";
const NO_KIND: &str = "this gate has no effect: its kinds and subresources are not in this version of Garboard";
const NOT_MOVED: &str = "this gate has no effect: guests are not moved and nothing is plugged in while they run";
const NOT_HERE: &str = "this gate has no effect: what it changes in KubeVirt is not in this version of Garboard";
const NO_LIBVIRT: &str = "this gate has no effect: it hooks into libvirt, and Garboard runs QEMU without it";
const NO_PASST: &str = "the binding it permits works on a bare host only: the image of launcher pods has no passt";

/// Names, separated by blanks, and what is behind them.
const GATES: &[(&str, Behind)] = &[
    ("DeclarativeHotplugVolumes HostDisk ImageVolume RebootPolicy ReservedOverheadMemlock", Behind::Switch),
    (
        "InstancetypeReferencePolicy NonRoot PSA PanicDevices VMPersistentState VideoConfig VmiMemoryOverheadReport",
        Behind::Always,
    ),
    ("PasstBinding PasstIPStackMigration Passt", Behind::Nothing(NO_PASST)),
    (
        "CPUManager ContainerPathVolumes DownwardMetrics EnableVirtioFsConfigVolumes EnableVirtioFsStorageVolumes \
         ExperimentalIgnitionSupport ExperimentalVirtiofsSupport GPU GPUsWithDRA HostDevices HostDevicesWithDRA Macvtap \
         NUMA NetworkBindingPlugins NetworkDevicesWithDRA PersistentReservation PortRangesSpec SecureExecution \
         UtilityVolumes VSOCK WorkloadEncryptionSEV WorkloadEncryptionTDX",
        Behind::Nothing(NO_FIELD),
    ),
    ("IncrementalBackup OCIExport ObjectGraph Plugins Snapshot Template VMExport", Behind::Nothing(NO_KIND)),
    (
        "DecentralizedLiveMigration HotplugNICs HotplugVolumes LiveMigration LiveUpdateNADRef MigrationDowntimeTuning \
         MigrationPriorityQueue MigrationStallDetection SRIOVLiveMigration VGPULiveMigration VMLiveUpdateFeatures \
         VolumeMigration VolumesUpdateStrategy",
        Behind::Nothing(NOT_MOVED),
    ),
    ("LibvirtHooksServerAndClient Sidecar", Behind::Nothing(NO_LIBVIRT)),
    (
        "AlignCPUs AutoResourceLimitsGate BochsDisplayForEFIGuests CPUNodeDiscovery ClusterProfiler \
         CommonInstancetypesDeploymentGate ConfigurableHypervisor CrossArchitectureVirtualization DataVolumes \
         DisableCustomSELinuxPolicy DisableMDEVConfiguration DockerSELinuxMCSWorkaround DynamicPodInterfaceNaming \
         ExpandDisks ExternalNetResourceInjection FirmwareAutoSelection GraceIOVirtualization HypervStrictCheck \
         IOMMUFD KubevirtSeccompProfile MultiArchitecture NodeRestriction OptOutRoleAggregation PCINUMAAwareTopology \
         PodSecondaryInterfaceNamingUpgrade Root SRIOV VMStatsCollector",
        Behind::Nothing(NOT_HERE),
    ),
];

/// What is behind a gate of this name, if KubeVirt has one.
#[must_use]
pub fn gate(name: &str) -> Option<Behind> {
    gates().find(|(known, _)| *known == name).map(|(_, behind)| behind)
}

/// Every gate, with what is behind it.
pub fn gates() -> impl Iterator<Item = (&'static str, Behind)> {
    GATES.iter().flat_map(|(names, behind)| names.split_whitespace().map(|name| (name, *behind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Gate;
    use crate::fields::{ANNOTATIONS, Fate, INSTANCE, lines_at};
    use crate::metadata::annotation;

    /// What the gates of [`NO_FIELD`] permit.
    const PERMITTED: &[(&str, &str)] = &[
        ("CPUManager", "domain.cpu.dedicatedCpuPlacement"),
        ("ContainerPathVolumes", "volumes[].containerPath"),
        ("DownwardMetrics", "domain.devices.downwardMetrics"),
        ("DownwardMetrics", "volumes[].downwardMetrics"),
        ("EnableVirtioFsConfigVolumes", "domain.devices.filesystems"),
        ("EnableVirtioFsStorageVolumes", "domain.devices.filesystems"),
        ("ExperimentalVirtiofsSupport", "domain.devices.filesystems"),
        ("ExperimentalIgnitionSupport", annotation::IGNITION),
        ("GPU", "domain.devices.gpus"),
        ("GPUsWithDRA", "domain.devices.gpus"),
        ("HostDevices", "domain.devices.hostDevices"),
        ("HostDevicesWithDRA", "domain.devices.hostDevices"),
        ("Macvtap", "domain.devices.interfaces[].macvtap"),
        ("NUMA", "domain.cpu.numa"),
        ("NetworkBindingPlugins", "domain.devices.interfaces[].binding"),
        ("NetworkDevicesWithDRA", "networks[].resourceClaim"),
        ("PersistentReservation", "domain.devices.disks[].lun.reservation"),
        ("PortRangesSpec", "domain.devices.interfaces[].portRanges"),
        ("SecureExecution", "domain.launchSecurity"),
        ("UtilityVolumes", "utilityVolumes"),
        ("VSOCK", "domain.devices.autoattachVSOCK"),
        ("WorkloadEncryptionSEV", "domain.launchSecurity"),
        ("WorkloadEncryptionTDX", "domain.launchSecurity"),
    ];

    fn is_refused(place: &str) -> bool {
        let refuses = |fate: Fate| matches!(fate, Fate::Refused { .. });
        let mut annotations = ANNOTATIONS.iter().filter(|each| each.key == place);
        let lines = lines_at(&INSTANCE, place);
        annotations.any(|each| refuses(each.fate)) || lines.iter().any(|(_, line)| refuses(line.cluster))
    }

    /// A field that is not refused any more has something behind its gate, or needs none.
    #[test]
    fn fields_of_a_gate_without_effect_are_refused() {
        for (name, _) in gates().filter(|(_, behind)| *behind == Behind::Nothing(NO_FIELD)) {
            let fields: Vec<&str> =
                PERMITTED.iter().filter(|(gate, _)| *gate == name).map(|(_, field)| *field).collect();
            assert!(!fields.is_empty(), "which fields does {name} permit?");
            assert!(fields.iter().any(|field| is_refused(field)), "{name}: none of {fields:?} is refused");
        }
        for (name, _) in PERMITTED {
            assert_eq!(gate(name), Some(Behind::Nothing(NO_FIELD)), "{name}");
        }
    }

    #[test]
    fn no_gate_is_there_twice_and_every_switch_has_a_code() {
        let mut names: Vec<&str> = gates().map(|(name, _)| name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for (name, behind) in gates() {
            assert!(behind != Behind::Switch || Gate::named(name).is_some(), "{name} switches nothing");
        }
    }
}
