//! Fields that Garboard has and KubeVirt does not.
//!
//! Prefer an annotation (`annotations.rs`): objects with one are valid under KubeVirt too, and a later version of KubeVirt
//! may give a field of the same name another meaning.

/// Kind and path of each field. Fields below it are not listed. As every other field it has a line in the table of its kind.
pub const OURS: &[(&str, &str)] = &[
    // What the first start decided: KubeVirt keeps it in files of libvirt.
    ("VirtualMachine", "status.storedMachine"),
    // The disk of the first objects, which QEMU opens over the network.
    ("VirtualMachineInstance", "spec.volumes[].iscsi"),
    ("VirtualMachineInstance", "status.storedMachine"),
    ("VirtualMachineInstance", "status.supervisor"),
];
