//! Annotations of instances, templates and machines that KubeVirt 1.9 or Garboard reads, and what becomes of each.

use super::{Fate, REMOVE, When, warned};
use crate::metadata::annotation;

/// An annotation that tunes a guest.
#[derive(Clone, Copy, Debug)]
pub struct Annotation {
    /// Its key.
    pub key: &'static str,
    /// What becomes of it, in every setting.
    pub fate: Fate,
}

const fn read(key: &'static str, file: &'static str) -> Annotation {
    Annotation { key, fate: Fate::Read(file) }
}

const fn warns(key: &'static str, when: When, what: &'static str, instead: &'static str) -> Annotation {
    Annotation { key, fate: warned(when, what, instead) }
}

/// Every annotation.
pub const ANNOTATIONS: &[Annotation] = &[
    // Another value than `kvm` and `tcg` is refused (`api/src/validate/metadata.rs`).
    read(annotation::ACCELERATOR, "api/src/accelerator.rs"),
    read(annotation::PCI_DEVICES_ON_ROOT_COMPLEX, "launcher/plan/src/draft.rs"),
    read(annotation::DISABLE_PCI_HOLE_64, "launcher/plan/src/assemble.rs"),
    read(annotation::VGA_DISPLAY_EFI, "launcher/plan/src/screen.rs"),
    read(annotation::FREE_PAGE_REPORTING_DISABLED, "launcher/plan/src/devices.rs"),
    read(annotation::SKIP_BACKUP_HOOKS, "controller/src/pod/metadata.rs"),
    read(annotation::EXCLUDE_PRESETS, "api/src/preset.rs"),
    // Written by the webhook alone.
    read(annotation::PRESETS_OVERRIDDEN, "controller/src/vmi/apply.rs"),
    // Written by Garboard's own parts, where spans are sent.
    read(annotation::TRACE, "controller/src/pod/metadata.rs"),
    read(annotation::FAIL_FAST, "launcher/src/supervisor/prepare/order.rs"),
    Annotation {
        key: annotation::IGNITION,
        fate: Fate::Refused { when: When::Filled, why: super::NOT_YET, instead: "hand the data over by cloud-init" },
    },
    warns(
        annotation::HOOK_SIDECARS,
        When::Filled,
        "hook sidecars change a libvirt domain, and there is none: they are not started",
        "remove the annotation, and write what the hooks changed into the specification",
    ),
    warns(
        "kubevirt.io/libvirt-log-filters",
        When::Filled,
        "there is no libvirt whose log could be filtered",
        "remove it; `kubectl logs -c launcher` has every QMP command and event",
    ),
    warns("kubevirt.io/memfd", When::Is("false"), "memory of huge pages always comes from a memfd", REMOVE),
    warns(
        annotation::PCI_TOPOLOGY_VERSION,
        When::OtherThan("v3"),
        "PCI devices are placed as in version 3: a guest that ran with an older one finds them elsewhere",
        "write `v3`, and look whether the guest names devices by their PCI addresses",
    ),
    warns(
        "kubevirt.io/pci-interface-slot-count",
        When::Filled,
        "how many places network cards have is decided by Garboard",
        REMOVE,
    ),
    warns(
        "kubevirt.io/keep-launcher-alive-after-failure",
        When::Is("true"),
        "the launcher of a guest that failed is not kept; its log and its last output are",
        "remove it; `kubectl garboard why` shows how the guest ended",
    ),
    warns(
        "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity",
        When::Filled,
        "no CPU is set aside for the emulator",
        REMOVE,
    ),
];

/// Annotations of a VirtualMachine itself.
pub const OF_MACHINES: &[Annotation] = &[
    read(annotation::STORED_MACHINE, "controller/src/vm/kept.rs"),
    // Written by the controller alone.
    read(annotation::LEAVES_POOL, "controller/src/pool/member.rs"),
    read(annotation::TRACE, "controller/src/reconciler.rs"),
    warns(
        "kubevirt.io/immediate-data-volume-creation",
        When::Is("false"),
        "DataVolumes of a machine are made at once, although it does not run yet",
        "make the machine when its volumes are wanted",
    ),
];
