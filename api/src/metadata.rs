//! The labels, annotations and finalizers that other programs look for, as KubeVirt spells them.

/// The namespace of an object that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// How the devices begin that the node agent offers. They carry rights, so no manifest asks for them by name.
pub const OWN_DEVICES: &str = "devices.kubevirt.io/";

/// The devices that the node agent offers, by KubeVirt's names.
pub mod device {
    /// The node's `/dev/kvm`.
    pub const KVM: &str = "devices.kubevirt.io/kvm";
    /// The node agent, which makes taps.
    pub const TUN: &str = "devices.kubevirt.io/tun";
    /// The node agent, which hands out vhost-net descriptors.
    pub const VHOST_NET: &str = "devices.kubevirt.io/vhost-net";
}

/// Labels.
pub mod label {
    /// On a pod: which component it is (`virt-launcher`).
    pub const COMPONENT: &str = "kubevirt.io";
    /// On a pod: the UID of the instance it was made for.
    pub const CREATED_BY: &str = "kubevirt.io/created-by";
    /// On an instance: how much its supervisor logs, in place of the cluster's `logVerbosity.virtLauncher`.
    pub const LOG_VERBOSITY: &str = "logVerbosity";
    /// On a claim: the machine whose firmware keeps its variables there; also how its name begins.
    pub const PERSISTENT_STATE_FOR: &str = "persistent-state-for";
    /// On a machine of a pool and its instance: the name of the ControllerRevision that has what it was made of.
    pub const POOL_REVISION: &str = "kubevirt.io/vm-pool-revision-name";
    /// On a ControllerRevision: the UID of the VirtualMachine, or of the pool, that it is of. Not KubeVirt's.
    pub const REVISION_OF: &str = "garboard.dev/revision-of";
    /// On the ControllerRevision that is the copy of an instancetype or a preference: the UID of the machine that it is kept for.
    pub const COPY_FOR: &str = "garboard.dev/copy-for";
    /// On a claim, a DataVolume and a DataSource: the instancetype of machines that boot from it.
    pub const DEFAULT_INSTANCETYPE: &str = "instancetype.kubevirt.io/default-instancetype";
    /// Beside it: the kind of that.
    pub const DEFAULT_INSTANCETYPE_KIND: &str = "instancetype.kubevirt.io/default-instancetype-kind";
    /// On a claim, a DataVolume and a DataSource: the preference of machines that boot from it.
    pub const DEFAULT_PREFERENCE: &str = "instancetype.kubevirt.io/default-preference";
    /// Beside it: the kind of that.
    pub const DEFAULT_PREFERENCE_KIND: &str = "instancetype.kubevirt.io/default-preference-kind";
    /// On a ControllerRevision of an instancetype or a preference: the generation of the object that it is a copy of.
    pub const OBJECT_GENERATION: &str = "instancetype.kubevirt.io/object-generation";
    /// Beside it: the object's kind.
    pub const OBJECT_KIND: &str = "instancetype.kubevirt.io/object-kind";
    /// Beside it: the object's name.
    pub const OBJECT_NAME: &str = "instancetype.kubevirt.io/object-name";
    /// Beside it: the object's UID.
    pub const OBJECT_UID: &str = "instancetype.kubevirt.io/object-uid";
    /// Beside it: the version that the copy is written in.
    pub const OBJECT_VERSION: &str = "instancetype.kubevirt.io/object-version";
    /// On a pod and an instance: the node it runs on.
    pub const NODE_NAME: &str = "kubevirt.io/nodeName";
    /// On an instance, empty: the supervisor in its launcher pod is of another image than the controller gives to new pods.
    pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
    /// On a pod and an instance: the name of the VirtualMachine, for selectors of services.
    pub const VM_NAME: &str = "vm.kubevirt.io/name";
}

/// Labels of nodes: beginnings, what follows names what a node offers, and the value is `true`.
pub mod node_label {
    use crate::names::label_value_problem;

    /// Whether machines may be scheduled there; whole.
    pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
    /// A CPU model of which guests get every feature.
    pub const CPU_MODEL: &str = "cpu-model.node.kubevirt.io/";
    /// A CPU feature that guests can have.
    pub const CPU_FEATURE: &str = "cpu-feature.node.kubevirt.io/";
    /// A machine type, or an alias of one.
    pub const MACHINE_TYPE: &str = "machine-type.node.kubevirt.io/";
    /// The vendor of the processor.
    pub const VENDOR: &str = "cpu-vendor.node.kubevirt.io/";
    /// Frequency of the time stamp counter, and whether it can be scaled.
    pub const TIMER: &str = "cpu-timer.node.kubevirt.io/";
    /// The same frequency, to ask for.
    pub const FREQUENCY: &str = "scheduling.node.kubevirt.io/tsc-frequency-";
    /// An enlightenment of Hyper-V that guests can have.
    pub const HYPERV: &str = "hyperv.node.kubevirt.io/";
    /// The architecture of guests.
    pub const ARCHITECTURE: &str = "kubevirt.io/vm-arch-";
    /// Whether the kernel merges equal pages of memory; whole.
    pub const KSM: &str = "kubevirt.io/ksm-enabled";

    /// Beginnings of labels that the node agent sets.
    pub const SET_FAMILIES: [&str; 8] =
        [CPU_MODEL, CPU_FEATURE, MACHINE_TYPE, VENDOR, TIMER, FREQUENCY, HYPERV, ARCHITECTURE];
    /// The same, whole.
    pub const SET_SINGLE: [&str; 2] = [SCHEDULABLE, KSM];
    /// Beginnings of labels that KubeVirt sets; the node agent takes them away.
    pub const FOREIGN_FAMILIES: [&str; 3] = [
        "host-model-cpu.node.kubevirt.io/",
        "host-model-required-features.node.kubevirt.io/",
        "cpu-model-migration.node.kubevirt.io/",
    ];
    /// The same, whole.
    pub const FOREIGN_SINGLE: [&str; 6] = [
        "kubevirt.io/cpumanager",
        "kubevirt.io/realtime",
        "kubevirt.io/sev",
        "kubevirt.io/sev-es",
        "kubevirt.io/sev-snp",
        "kubevirt.io/tdx",
    ];

    /// Whether the node agent decides about it.
    #[must_use]
    pub fn is_of_agent(label: &str) -> bool {
        SET_SINGLE.contains(&label)
            || FOREIGN_SINGLE.contains(&label)
            || SET_FAMILIES.iter().chain(&FOREIGN_FAMILIES).any(|family| label.starts_with(family))
    }

    /// Whether Kubernetes takes it as what follows: a node cannot be labelled with anything else, nor asked for it.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        // After its slash a key has what a value has, and is not empty.
        !name.is_empty() && label_value_problem(name).is_none()
    }
}

/// Annotations that Garboard reads or writes. What becomes of every other one is in `crate::fields`.
pub mod annotation {
    /// On an instance: the layout of its PCI devices (`v3`), which must not change while the guest exists.
    pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
    /// On an instance: an Ignition configuration for the guest.
    pub const IGNITION: &str = "kubevirt.io/ignitiondata";
    /// On an instance: the generation of the VirtualMachine it was made from.
    pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
    /// On an instance: a list of hook sidecars.
    pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
    /// On an instance, `true`: its pod has no annotations by which Velero would have it frozen before a copy, and thawed after it.
    pub const SKIP_BACKUP_HOOKS: &str = "kubevirt.io/skip-backup-hooks";
    /// On an instance, with any value: its start fails before QEMU is executed. KubeVirt's functional tests use it to see what follows
    /// upon failed starts.
    pub const FAIL_FAST: &str = "kubevirt.io/func-test-virt-launcher-fail-fast";
    /// On an instance, `true`: PCI devices are put on the root complex, and not behind ports.
    pub const PCI_DEVICES_ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
    /// On an instance, `true`: no 64-bit PCI hole, for guests that do not start with one.
    pub const DISABLE_PCI_HOLE_64: &str = "kubevirt.io/disablePCIHole64";
    /// On an instance, `true`: a UEFI guest has a VGA display, and not the plain frame buffer.
    pub const VGA_DISPLAY_EFI: &str = "kubevirt.io/vga-display-efi-x86";
    /// On an instance, `true`: the guest does not give pages back that it does not use.
    pub const FREE_PAGE_REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
    /// On an instance: what executes the guest's instructions, `kvm` or `tcg`, whatever the cluster's `useEmulation` is
    /// ([`crate::accelerator`]).
    pub const ACCELERATOR: &str = "garboard.dev/accelerator";
    /// On an instance and its pod: what a descheduler looks for, which evicts the pod, or rather another one. They follow the template of the
    /// machine while it runs.
    pub const OF_DESCHEDULER: [&str; 2] =
        ["descheduler.alpha.kubernetes.io/evict", "descheduler.alpha.kubernetes.io/prefer-no-eviction"];
    /// On a VirtualMachine and an instance: the newest version of the API, and the stored one, that the controller knew which wrote to the
    /// object; [`OBSERVED_API_VERSION`].
    pub const OBSERVED_API_VERSIONS: [&str; 2] =
        ["kubevirt.io/latest-observed-api-version", "kubevirt.io/storage-observed-api-version"];
    /// The version that is served, and that is stored.
    pub const OBSERVED_API_VERSION: &str = "v1";
    /// On an instance: the instancetype of its namespace that it was sized by.
    pub const INSTANCETYPE_NAME: &str = "kubevirt.io/instancetype-name";
    /// On an instance: the instancetype of the cluster that it was sized by.
    pub const CLUSTER_INSTANCETYPE_NAME: &str = "kubevirt.io/cluster-instancetype-name";
    /// On an instance: the preference of its namespace that filled it in.
    pub const PREFERENCE_NAME: &str = "kubevirt.io/preference-name";
    /// On an instance: the preference of the cluster that filled it in.
    pub const CLUSTER_PREFERENCE_NAME: &str = "kubevirt.io/cluster-preference-name";

    /// The annotation that names an object of this kind on an instance.
    #[must_use]
    pub const fn sized_by(kind: crate::kind::Kind) -> Option<&'static str> {
        use crate::kind::Kind;
        match kind {
            Kind::VirtualMachineInstancetype => Some(INSTANCETYPE_NAME),
            Kind::VirtualMachineClusterInstancetype => Some(CLUSTER_INSTANCETYPE_NAME),
            Kind::VirtualMachinePreference => Some(PREFERENCE_NAME),
            Kind::VirtualMachineClusterPreference => Some(CLUSTER_PREFERENCE_NAME),
            Kind::VirtualMachine
            | Kind::VirtualMachineInstance
            | Kind::ReplicaSet
            | Kind::Preset
            | Kind::Pool
            | Kind::KubeVirt
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::PersistentVolumeClaim
            | Kind::Other => None,
        }
    }
    /// On an instance: the beginning; what follows is the name of a preset that it has something of, and the value the version of the API.
    pub const PRESET: &str = "virtualmachinepreset.kubevirt.io/";
    /// On an instance, `true`: it gets nothing of presets.
    pub const EXCLUDE_PRESETS: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
    /// On an instance: presets of which it did not get everything, and what it has of its own instead, for an event.
    pub const PRESETS_OVERRIDDEN: &str = "garboard.dev/presets-overridden";
    /// On a VirtualMachine, an instance and its pod, where spans are sent to a collector: which trace what follows from its last change belongs
    /// to, and since when.
    pub const TRACE: &str = "garboard.dev/trace";
    /// On a VirtualMachine: its pool lets it go without its volumes, once it is stopped.
    pub const LEAVES_POOL: &str = "garboard.dev/leaves-pool";
    /// On a VirtualMachine: what is stored of the machine (`status.storedMachine`), for backups that leave the status out.
    pub const STORED_MACHINE: &str = "garboard.dev/stored-machine";
}

/// Annotations of the DataVolumes that the controller makes, which their importer repeats on the claims.
pub mod volume_annotation {
    /// The name of the pool for whose machine it was made. Without an owner it is left for the machines of this pool, and no other's.
    pub const POOL: &str = "garboard.dev/pool";
}

/// Annotations of the KubeVirt object.
pub mod installation_annotation {
    /// What becomes of supervisors in running pods when the launcher's image is another one: with [`DISABLED`] they stay as they are.
    pub const LAUNCHER_UPDATE: &str = "garboard.dev/launcher-update";
    /// The image of libguestfs tools that the subresource `guestfs` answers with, as a whole reference.
    pub const GUESTFS_IMAGE: &str = "garboard.dev/guestfs-image";
    /// The value that switches a feature off.
    pub const DISABLED: &str = "Disabled";
}

/// Annotations of nodes.
pub mod node_annotation {
    /// When the node's agent gave its last sign of life, RFC 3339. A living one gives the next within [`HEARTBEAT_SECONDS`].
    pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
    /// The longest time from one sign of a living agent to the next, seconds.
    pub const HEARTBEAT_SECONDS: u64 = 300;
    /// An agent whose last sign of life is as old as this does not live, seconds.
    pub const SILENT_SECONDS: u64 = 2 * HEARTBEAT_SECONDS;
    /// To how many controllers the node's agent was connected at its last sign of life: `COUNT TIME`, with the time of [`HEARTBEAT`]. Of
    /// another time it is that of an agent of another version, and means nothing.
    pub const CONTROLLERS: &str = "garboard.dev/connected-controllers";
}

/// Finalizers.
pub mod finalizer {
    /// On an instance: its guest is stopped before it goes.
    pub const FOREGROUND_DELETE: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
    /// On a VirtualMachine and its instance: the controller has looked at its end.
    pub const CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
}
