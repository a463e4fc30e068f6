//! The kinds of group `kubevirt.io`, version `v1`, as they travel: every field of KubeVirt 1.9 (main of August 2026). Pools, which
//! are of the group `pool.kubevirt.io`, are beside them: they are made of the same types.
//!
//! A type here defines what a manifest may contain, never whether it makes sense: unknown values of a string field are
//! kept as they were written, and the rules (`crate::validate`) judge them. What KubeVirt calls an optional field is an
//! `Option`; an empty list and a missing list are the same, as they are for KubeVirt. So are an empty text and a missing
//! one, but a text is kept as it was written: read it with [`non_empty`].
//!
//! Names are KubeVirt's, so that its documentation can be read beside them.

mod access;
pub mod cdi;
mod cloud_init;
mod domain;
mod kubevirt;
mod network;
mod pool;
mod present;
mod preset;
mod replica_set;
mod status;
mod text;
mod vm;
mod vm_status;
mod vmi;
mod volume;

pub use access::{
    AccessCredential, AccessCredentialSecretSource, QemuGuestAgentSSHPublicKeyAccessCredentialPropagation,
    SSHPublicKeyAccessCredential, SSHPublicKeyAccessCredentialPropagationMethod, SSHPublicKeyAccessCredentialSource,
    UserPasswordAccessCredential, UserPasswordAccessCredentialPropagationMethod, UserPasswordAccessCredentialSource,
};
pub use cloud_init::{CloudInitConfigDriveSource, CloudInitNoCloudSource};
pub use domain::{
    ACPI, BIOS, BlockSize, Bootloader, CDRomTarget, CPU, CPUFeature, Chassis, Clock, ClockOffsetUTC, CustomBlockSize,
    DHCPOptions, DHCPPrivateOptions, Devices, Diag288Watchdog, Disk, DiskIOThreads, DiskTarget, DomainSpec, EFI,
    FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureSpinlocks, FeatureState, FeatureVendorID, Features, Filesystem,
    Firmware, GPU, HPETTimer, HostDevice, Hugepages, HyperVPassthrough, HypervTimer, I6300ESBWatchdog, Input,
    Interface, KVMTimer, KernelBoot, KernelBootContainer, LaunchSecurity, LunTarget, Machine, Memory, NUMA, PITTimer,
    PanicDevice, PluginBinding, Port, PortRange, RTCTimer, Realtime, ReservedOverhead, ResourceRequirements, SEV,
    SEVPolicy, SoundDevice, SyNICTimer, TLBFlush, TPMDevice, Timer, VGPUDisplayOptions, VGPUOptions, VideoDevice,
    Watchdog,
};
pub use kubevirt::{
    ArchConfiguration, ArchSpecificConfiguration, CertConfig, DeveloperConfiguration, InstancetypeConfiguration,
    KubeVirt, KubeVirtCertificateRotateStrategy, KubeVirtCondition, KubeVirtConfiguration,
    KubeVirtSelfSignConfiguration, KubeVirtSpec, KubeVirtStatus, LiveUpdateConfiguration, LogVerbosity,
    NetworkConfiguration,
};
pub use network::{ClaimRequest, MultusNetwork, Network, PodNetwork};
pub use pool::{
    VirtualMachinePool, VirtualMachinePoolAutohealingStrategy, VirtualMachinePoolCondition,
    VirtualMachinePoolNameGeneration, VirtualMachinePoolOpportunisticScaleInStrategy,
    VirtualMachinePoolProactiveScaleInStrategy, VirtualMachinePoolProactiveUpdateStrategy,
    VirtualMachinePoolScaleInStrategy, VirtualMachinePoolSelectionPolicy, VirtualMachinePoolSelectors,
    VirtualMachinePoolSpec, VirtualMachinePoolStatus, VirtualMachinePoolUpdateStrategy, VirtualMachineTemplateSpec,
};
pub use present::Present;
pub use preset::{VirtualMachineInstancePreset, VirtualMachineInstancePresetSpec};
pub use replica_set::{
    VirtualMachineInstanceReplicaSet, VirtualMachineInstanceReplicaSetCondition, VirtualMachineInstanceReplicaSetSpec,
    VirtualMachineInstanceReplicaSetStatus,
};
pub use status::{
    CPUTopology, ChangedBlockTrackingStatus, ContainerDiskInfo, DomainMemoryDumpInfo, DowntimeTuningOptions,
    ExperimentalMigrationOptions, HotplugVolumeStatus, InitrdInfo, KernelBootStatus, KernelInfo, MemoryStatus,
    PersistentVolumeClaimInfo, StallDetectorOptions, StorageMigratedVolumeInfo, SupervisorStatus, TopologyHints,
    VMIMConfigurationOptions, VirtualMachineInstanceBackupStatus, VirtualMachineInstanceBackupVolumeInfo,
    VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOSInfo, VirtualMachineInstanceMigrationSourceState,
    VirtualMachineInstanceMigrationState, VirtualMachineInstanceMigrationTargetState,
    VirtualMachineInstanceNetworkInterface, VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus, VolumeStatus,
};
pub use text::non_empty;
pub use vm::{
    InstancetypeMatcher, PreferenceMatcher, VirtualMachine, VirtualMachineInstanceTemplateSpec, VirtualMachineSpec,
};
pub use vm_status::{
    AddVolumeOptions, ControllerRevisionRef, HotplugVolumeSource, InstancetypeStatusRef, RemoveVolumeOptions,
    VirtualMachineCondition, VirtualMachineMemoryDumpRequest, VirtualMachineStartFailure,
    VirtualMachineStateChangeRequest, VirtualMachineStatus, VirtualMachineVolumeRequest, VolumeMigrationState,
    VolumeSnapshotStatus, VolumeUpdateState,
};
pub use vmi::{Probe, VirtualMachineInstance, VirtualMachineInstanceResourceClaim, VirtualMachineInstanceSpec};
pub use volume::{
    ConfigMapVolumeSource, ContainerDiskSource, ContainerPathVolumeSource, DataVolumeSource, DownwardAPIVolumeSource,
    EmptyDiskSource, EphemeralVolumeSource, HostDisk, IscsiSource, MemoryDumpVolumeSource,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, ServiceAccountVolumeSource, SysprepSource, UtilityVolume,
    Volume, VolumeSource,
};

/// The group and version of these kinds, as a manifest's `apiVersion` has it.
pub const API_VERSION: &str = "kubevirt.io/v1";
