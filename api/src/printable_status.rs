//! The values of a VirtualMachine's `status.printableStatus` that this version writes.

use crate::name_enum::name_enum;

name_enum! {
    /// What `kubectl get vm` shows (KubeVirt's values; where several fit, the first one).
    PrintableStatus {
        /// It is being deleted.
        Terminating = "Terminating",
        /// Its guest is being shut down.
        Stopping = "Stopping",
        /// Its vCPUs are stopped.
        Paused = "Paused",
        /// Its guest runs.
        Running = "Running",
        /// Its instance is in a phase that this version does not know.
        Unknown = "Unknown",
        /// A claim it names does not exist.
        ErrorPvcNotFound = "ErrorPvcNotFound",
        /// A DataVolume cannot be filled.
        DataVolumeError = "DataVolumeError",
        /// A DataVolume is being filled.
        Provisioning = "Provisioning",
        /// A DataVolume waits for a first consumer.
        WaitingForVolumeBinding = "WaitingForVolumeBinding",
        /// An image cannot be pulled.
        ErrImagePull = "ErrImagePull",
        /// An image could not be pulled several times.
        ImagePullBackOff = "ImagePullBackOff",
        /// No node can take it.
        ErrorUnschedulable = "ErrorUnschedulable",
        /// It is on its way.
        Starting = "Starting",
        /// It failed to start and is tried again.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// It does not run and is not meant to.
        Stopped = "Stopped",
    }
}

impl PrintableStatus {
    /// Whether a person has to look at the machine: it does not recover by itself.
    #[must_use]
    pub fn needs_attention(self) -> bool {
        match self {
            Self::Unknown
            | Self::ErrorPvcNotFound
            | Self::DataVolumeError
            | Self::ErrImagePull
            | Self::ImagePullBackOff
            | Self::ErrorUnschedulable
            | Self::CrashLoopBackOff => true,
            Self::Terminating
            | Self::Stopping
            | Self::Paused
            | Self::Running
            | Self::Provisioning
            | Self::WaitingForVolumeBinding
            | Self::Starting
            | Self::Stopped => false,
        }
    }
}
