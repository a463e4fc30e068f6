//! The types of conditions, by the object that has them. KubeVirt's and Kubernetes' names; those that neither has begin with
//! `garboard.dev/`, so that no later one of theirs can mean something else.

use crate::name_enum::name_enum;

name_enum! {
    /// Of a VirtualMachineInstance.
    VmiConditionType {
        /// The pod is ready, and its guest runs.
        Ready = "Ready",
        /// The pod's own, mirrored while it is false.
        PodScheduled = "PodScheduled",
        /// False while something keeps the instance from its pod, or the pod from running.
        Synchronized = "Synchronized",
        /// The DataVolumes that the instance names are filled.
        DataVolumesReady = "DataVolumesReady",
        /// The guest's processors are stopped.
        Paused = "Paused",
        /// The guest agent is connected.
        AgentConnected = "AgentConnected",
        /// The guest agent lacks a command that the instance needs of it.
        UnsupportedAgent = "AgentVersionNotSupported",
        /// The guest agent has set the keys and passwords of `spec.accessCredentials`.
        AccessCredentialsSynchronized = "AccessCredentialsSynchronized",
        /// The guest can be moved to another node while it runs.
        LiveMigratable = "LiveMigratable",
        /// The guest's volumes can be moved to other storage while it runs.
        StorageLiveMigratable = "StorageLiveMigratable",
        /// DataVolumes that the instance names are being filled.
        Provisioning = "Provisioning",
        /// The cluster has the machine leave its node.
        EvictionRequested = "EvictionRequested",
        /// The guest is many times slower than its node's processor.
        SoftwareEmulation = "SoftwareEmulation",
        /// QEMU does not answer, so that nothing new is known of the guest.
        Unresponsive = "garboard.dev/Unresponsive",
        /// A program that the guest's network needs has ended.
        NetworkLost = "garboard.dev/NetworkLost",
        /// How the run ended, as reason and message, for `kubectl describe`.
        Ended = "garboard.dev/Ended",
        /// The supervisor is of another image than new launcher pods get. KubeVirt has the label
        /// [`crate::metadata::label::OUTDATED_LAUNCHER_IMAGE`] for it.
        OutdatedLauncher = "garboard.dev/OutdatedLauncher",
    }
}

/// Who sets and removes a condition of an instance. Each writes those of its own alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionWriter {
    /// The controller (`controller/src/vmi`).
    Controller,
    /// The node agent, by the report of the launcher pod (`cluster/src/report`).
    Agent,
    /// The part of the controller that replaces supervisors (`controller/src/upgrade`).
    Upgrade,
}

impl VmiConditionType {
    /// Who writes it.
    #[must_use]
    pub const fn writer(self) -> ConditionWriter {
        match self {
            Self::Ready
            | Self::PodScheduled
            | Self::Synchronized
            | Self::DataVolumesReady
            | Self::LiveMigratable
            | Self::StorageLiveMigratable
            | Self::Provisioning
            | Self::EvictionRequested => ConditionWriter::Controller,
            Self::Paused
            | Self::AgentConnected
            | Self::UnsupportedAgent
            | Self::AccessCredentialsSynchronized
            | Self::SoftwareEmulation
            | Self::Unresponsive
            | Self::NetworkLost
            | Self::Ended => ConditionWriter::Agent,
            Self::OutdatedLauncher => ConditionWriter::Upgrade,
        }
    }
}

name_enum! {
    /// Of a VirtualMachine, beside those of its instance, which are mirrored.
    VmConditionType {
        /// Its instance is ready.
        Ready = "Ready",
        /// Something could not be done.
        Failure = "Failure",
        /// The DataVolumes that the machine names are filled.
        DataVolumesReady = "DataVolumesReady",
        /// The template has changed since the machine was started.
        RestartRequired = "RestartRequired",
    }
}

name_enum! {
    /// Of a VirtualMachineInstanceReplicaSet. Each is there only while it holds.
    ReplicaSetConditionType {
        /// An instance could not be created or deleted.
        ReplicaFailure = "ReplicaFailure",
        /// Instances are neither created nor deleted.
        ReplicaPaused = "ReplicaPaused",
    }
}

name_enum! {
    /// Of a VirtualMachinePool. Each is there only while it holds.
    PoolConditionType {
        /// A machine could not be created, changed or deleted.
        ReplicaFailure = "ReplicaFailure",
        /// Machines are neither created nor deleted nor changed.
        ReplicaPaused = "ReplicaPaused",
    }
}

name_enum! {
    /// Of a KubeVirt object.
    KubeVirtConditionType {
        /// The installation serves.
        Available = "Available",
        /// Everything that the installation consists of was created.
        Created = "Created",
        /// Something of the installation is missing.
        Degraded = "Degraded",
        /// The installation changes its version.
        Progressing = "Progressing",
        /// `False` while there are instances with `OutdatedLauncher`, and else not there.
        LaunchersUpdated = "garboard.dev/LaunchersUpdated",
    }
}

name_enum! {
    /// Of a launcher pod.
    PodConditionType {
        /// Every container is ready, and every readiness gate is open.
        Ready = "Ready",
        /// It has a node.
        PodScheduled = "PodScheduled",
        /// It has its network.
        PodReadyToStartContainers = "PodReadyToStartContainers",
        /// Its init containers have run, or run beside the others.
        Initialized = "Initialized",
        /// Every container is ready.
        ContainersReady = "ContainersReady",
        /// It goes because of the cluster, not because of its user: drained, preempted, or ended with its node.
        DisruptionTarget = "DisruptionTarget",
        /// The readiness gate of launcher pods: the guest's processors run.
        Unpaused = "kubevirt.io/virtual-machine-unpaused",
        /// the launcher's first report, as JSON in the condition's message.
        LauncherReport = "garboard.dev/launcher-report",
    }
}

name_enum! {
    /// Of a node.
    NodeConditionType {
        /// Its kubelet takes pods.
        Ready = "Ready",
    }
}

name_enum! {
    /// Of a DataVolume of the Containerized Data Importer.
    DataVolumeConditionType {
        /// The pod that fills it runs.
        Running = "Running",
    }
}
