//! Reasons of conditions and of events. Many are both: a condition is also reported in an event, with the same reason.

use crate::name_enum::name_enum;

name_enum! {
    /// The reason of a condition or of an event. How a run ended is another list (`ExitCause` of `garboard-protocol`).
    Reason {
        // `Ready` of an instance.
        /// There is no launcher pod.
        PodNotExists = "PodNotExists",
        /// The launcher pod is being removed.
        PodTerminating = "PodTerminating",
        /// The guest does not run.
        GuestNotRunning = "GuestNotRunning",
        /// The launcher pod does not have the condition yet.
        PodConditionMissing = "PodConditionMissing",

        // `Ready` of a machine.
        /// There is no VirtualMachineInstance.
        VmiNotExists = "VMINotExists",
        /// The VirtualMachineInstance does not have the condition yet.
        VmiConditionMissing = "VMIConditionMissing",
        /// The template of a machine has changed (`RestartRequired`).
        TemplateChanged = "TemplateChanged",

        // `DataVolumesReady`.
        /// At least one of the DataVolumes is not filled.
        NotAllDataVolumesReady = "NotAllDVsReady",
        /// All DataVolumes are filled.
        AllDataVolumesReady = "AllDVsReady",

        // `Synchronized` of an instance, `Failure` of a machine, and their events.
        /// A pod, or an instance, could not be created.
        FailedCreate = "FailedCreate",
        /// Something could not be removed.
        FailedDelete = "FailedDelete",
        /// A PersistentVolumeClaim does not exist.
        FailedPvcNotFound = "FailedPvcNotFound",
        /// A DataVolume cannot be filled.
        FailedDataVolumeImport = "FailedDataVolumeImport",
        /// A DataVolume could not be created.
        FailedDataVolumeCreate = "FailedDataVolumeCreate",
        /// The claim for the firmware's variables cannot be used yet.
        BackendStorageNotReady = "BackendStorageNotReady",
        /// The claim for the firmware's variables could not be created.
        FailedBackendStorageCreate = "FailedBackendStorageCreate",
        /// An image could not be pulled.
        ErrImagePull = "ErrImagePull",
        /// An image could not be pulled several times.
        ImagePullBackOff = "ImagePullBackOff",
        /// An image is not on the node, and is not to be pulled.
        ErrImageNeverPull = "ErrImageNeverPull",
        /// No node can take the pod.
        Unschedulable = "Unschedulable",
        /// An instance could not be adopted.
        FailedAdopt = "FailedAdopt",
        /// The instancetype that a machine names does not exist.
        FailedFindInstancetype = "FailedFindInstancetype",
        /// The preference that a machine names does not exist.
        FailedFindPreference = "FailedFindPreference",
        /// An object could not be changed.
        FailedUpdate = "FailedUpdate",
        /// Not KubeVirt's: the object cannot be read by this release.
        Unreadable = "Unreadable",

        // `ReplicaFailure` of a pool.
        /// Machines are missing, and one could not be created.
        FailedScaleOut = "FailedScaleOut",
        /// A machine is too many, or does not start, and could not be deleted.
        FailedScaleIn = "FailedScaleIn",

        // `Paused`, the readiness gate of the pod, and an event.
        /// A user paused the guest.
        PausedByUser = "PausedByUser",
        /// QEMU paused the guest because of a failed read or write.
        PausedIoError = "PausedIOError",
        /// The guest is paused.
        Paused = "Paused",
        /// The guest is not paused.
        NotPaused = "NotPaused",
        /// The launcher has reported.
        Reported = "Reported",

        // `LiveMigratable`.
        /// A disk belongs to its node.
        DisksNotLiveMigratable = "DisksNotLiveMigratable",
        /// An interface belongs to its pod.
        InterfaceNotLiveMigratable = "InterfaceNotLiveMigratable",
        /// Nothing can be moved.
        NotMigratable = "NotMigratable",

        // `SoftwareEmulation`, `garboard.dev/Unresponsive`, `garboard.dev/NetworkLost`. Not KubeVirt's.
        /// The node has no KVM.
        NoKvm = "NoKVM",
        /// KVM of the node is slower than emulation.
        KvmInterpretsGuestCode = "KVMInterpretsGuestCode",
        /// QEMU does not answer on its monitor.
        MonitorTimeout = "MonitorTimeout",
        /// A program beside QEMU has ended.
        HelperEnded = "HelperEnded",

        // Conditions of a KubeVirt object.
        /// `Available`.
        AllComponentsReady = "AllComponentsReady",
        /// Not `Available`. Not KubeVirt's.
        NotServing = "NotServing",
        /// Not `Available`: another KubeVirt object is the one that is read.
        ExistingDeployment = "ExistingDeployment",
        /// `Created`.
        AllResourcesCreated = "AllResourcesCreated",
        /// `Degraded`. Not KubeVirt's.
        PartsMissing = "PartsMissing",
        /// `Progressing`; also of `garboard.dev/LaunchersUpdated`: supervisors are being replaced.
        UpdateInProgress = "UpdateInProgress",

        // `garboard.dev/OutdatedLauncher` of an instance and `garboard.dev/LaunchersUpdated` of a KubeVirt object, with their events. Not KubeVirt's.
        /// The supervisor is replaced when its turn comes.
        OtherImage = "OtherImage",
        /// The new supervisor did not come up, and the image before it was put back.
        LauncherUpdateFailed = "LauncherUpdateFailed",
        /// The supervisor is the new one.
        LauncherUpdated = "LauncherUpdated",
        /// Node agents are being replaced first.
        WaitingForNodeAgents = "WaitingForNodeAgents",
        /// The KubeVirt object requires that supervisors stay as they are.
        UpdateDisabled = "UpdateDisabled",
        /// One supervisor failed, and no other is touched.
        UpdateStopped = "UpdateStopped",

        // Of a DataVolume.
        /// Filling it failed.
        Error = "Error",
        /// The image to fill it with could not be pulled.
        ImagePullFailed = "ImagePullFailed",

        // Events.
        /// An object was created.
        SuccessfulCreate = "SuccessfulCreate",
        /// An object was deleted.
        SuccessfulDelete = "SuccessfulDelete",
        /// A set of instances, or a pool, was paused.
        SuccessfulPaused = "SuccessfulPaused",
        /// A set of instances goes on after a pause.
        SuccessfulResumed = "SuccessfulResumed",
        /// A pool goes on after a pause. KubeVirt's spelling.
        SuccessfulResume = "SuccessfulResume",
        /// A machine was changed, or restarted, after a change of its pool.
        SuccessfulUpdate = "SuccessfulUpdate",
        /// An instance has parts of its own, and did not get those of a preset.
        Override = "Override",
        /// A DataVolume was created.
        SuccessfulDataVolumeCreate = "SuccessfulDataVolumeCreate",
        /// QEMU was started.
        Created = "Created",
        /// The guest was started.
        Started = "Started",
        /// The guest goes on after a pause.
        Unpaused = "Unpaused",
        /// A user reset the guest.
        Reset = "Reset",
        /// A user had the guest shut down and start again.
        SoftRebooted = "SoftRebooted",
        /// The guest's file systems could not be frozen.
        FreezeError = "FreezeError",
        /// The guest was asked to shut down.
        ShuttingDown = "ShuttingDown",
        /// The machine of an instance that is deleted has ended.
        Deleted = "Deleted",
        /// The guest's run is over.
        Stopped = "Stopped",
        /// QEMU could not be started with the machine.
        SyncFailed = "SyncFailed",
        /// A DataVolume that copies a claim could not be created: its namespace does not give the right to.
        UnauthorizedDataVolumeCreate = "UnauthorizedDataVolumeCreate",
        /// The claim that a DataVolume copies does not exist. KubeVirt's spelling.
        SourcePvcNotAvailable = "SourcePVCNotAvailabe",
        /// The guest has the keys and passwords of `spec.accessCredentials`.
        AccessCredentialsSyncSuccess = "AccessCredentialsSyncSuccess",
        /// The guest does not have all of them.
        AccessCredentialsSyncFailed = "AccessCredentialsSyncFailed",
    }
}

impl Reason {
    /// Whether there are events with it; `docs/states.md` has a row for each.
    #[must_use]
    pub const fn is_of_event(self) -> bool {
        match self {
            Self::FailedCreate
            | Self::FailedDelete
            | Self::FailedPvcNotFound
            | Self::FailedDataVolumeImport
            | Self::FailedDataVolumeCreate
            | Self::BackendStorageNotReady
            | Self::FailedBackendStorageCreate
            | Self::FailedAdopt
            | Self::FailedUpdate
            | Self::Unreadable
            | Self::KvmInterpretsGuestCode
            | Self::LauncherUpdateFailed
            | Self::LauncherUpdated
            | Self::UpdateStopped
            | Self::SuccessfulCreate
            | Self::SuccessfulDelete
            | Self::SuccessfulPaused
            | Self::SuccessfulResumed
            | Self::SuccessfulResume
            | Self::SuccessfulUpdate
            | Self::Override
            | Self::SuccessfulDataVolumeCreate
            | Self::Created
            | Self::Started
            | Self::Paused
            | Self::Unpaused
            | Self::Reset
            | Self::SoftRebooted
            | Self::FreezeError
            | Self::ShuttingDown
            | Self::Deleted
            | Self::Stopped
            | Self::SyncFailed
            | Self::UnauthorizedDataVolumeCreate
            | Self::SourcePvcNotAvailable
            | Self::AccessCredentialsSyncSuccess
            | Self::AccessCredentialsSyncFailed => true,
            Self::PodNotExists
            | Self::PodTerminating
            | Self::GuestNotRunning
            | Self::PodConditionMissing
            | Self::VmiNotExists
            | Self::VmiConditionMissing
            | Self::TemplateChanged
            | Self::NotAllDataVolumesReady
            | Self::AllDataVolumesReady
            | Self::ErrImagePull
            | Self::ImagePullBackOff
            | Self::ErrImageNeverPull
            | Self::Unschedulable
            | Self::FailedScaleOut
            | Self::FailedScaleIn
            | Self::PausedByUser
            | Self::PausedIoError
            | Self::NotPaused
            | Self::Reported
            | Self::DisksNotLiveMigratable
            | Self::InterfaceNotLiveMigratable
            | Self::NotMigratable
            | Self::NoKvm
            | Self::MonitorTimeout
            | Self::HelperEnded
            | Self::AllComponentsReady
            | Self::NotServing
            | Self::ExistingDeployment
            | Self::AllResourcesCreated
            | Self::PartsMissing
            | Self::UpdateInProgress
            | Self::OtherImage
            | Self::WaitingForNodeAgents
            | Self::UpdateDisabled
            | Self::FailedFindInstancetype
            | Self::FailedFindPreference
            | Self::Error
            | Self::ImagePullFailed => false,
        }
    }
}
