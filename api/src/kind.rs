//! Which kind a manifest is of.

use serde_json::Value;

/// The kinds Garboard reads from manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kubevirt.io/v1` VirtualMachine.
    VirtualMachine,
    /// `kubevirt.io/v1` VirtualMachineInstance.
    VirtualMachineInstance,
    /// `kubevirt.io/v1` VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// `kubevirt.io/v1` VirtualMachineInstancePreset.
    Preset,
    /// `kubevirt.io/v1` KubeVirt.
    KubeVirt,
    /// `v1` Secret.
    Secret,
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// Any other kind, and what is no manifest.
    Other,
}

impl Kind {
    /// The name of the kind as a manifest has it, or nothing for [`Kind::Other`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::VirtualMachine => "VirtualMachine",
            Self::VirtualMachineInstance => "VirtualMachineInstance",
            Self::ReplicaSet => "VirtualMachineInstanceReplicaSet",
            Self::Preset => "VirtualMachineInstancePreset",
            Self::KubeVirt => "KubeVirt",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Other => "",
        }
    }
}

/// The kind of an object, by its `apiVersion` and `kind`.
///
/// Of the group `kubevirt.io` these are the versions that the definitions serve, with the same fields. Others are
/// [`Kind::Other`].
pub fn kind_of(object: &Value) -> Kind {
    let written = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    match (written("apiVersion"), written("kind")) {
        (version, "VirtualMachine") if is_served(version) => Kind::VirtualMachine,
        (version, "VirtualMachineInstance") if is_served(version) => Kind::VirtualMachineInstance,
        (version, "VirtualMachineInstanceReplicaSet") if is_served(version) => Kind::ReplicaSet,
        (version, "VirtualMachineInstancePreset") if is_served(version) => Kind::Preset,
        (version, "KubeVirt") if is_served(version) => Kind::KubeVirt,
        ("v1", "Secret") => Kind::Secret,
        ("v1", "ConfigMap") => Kind::ConfigMap,
        ("v1", "PersistentVolumeClaim") => Kind::PersistentVolumeClaim,
        _ => Kind::Other,
    }
}

/// Whether an `apiVersion` is one of those that the definitions serve.
fn is_served(version: &str) -> bool {
    let of_group = version.strip_prefix(crate::crd::GROUP).and_then(|rest| rest.strip_prefix('/'));
    matches!(of_group, Some(crate::crd::STORED_VERSION | crate::crd::OLD_VERSION))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn group_and_name_decide_together() {
        assert_eq!(kind_of(&json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"})), Kind::VirtualMachine);
        assert_eq!(kind_of(&json!({"apiVersion": "v1", "kind": "Secret"})), Kind::Secret);
        assert_eq!(kind_of(&json!({"apiVersion": "v1", "kind": "VirtualMachine"})), Kind::Other);
        let of = |version: &str| kind_of(&json!({"apiVersion": version, "kind": "VirtualMachine"}));
        assert_eq!(of("kubevirt.io/v1alpha3"), Kind::VirtualMachine);
        for other in [
            "kubevirt.io/v1alpha2",
            "kubevirt.io/v2",
            "kubevirt.io/",
            "kubevirt.iov1",
            "kubevirt.io/v1/v1",
            "kubevirt.io",
        ] {
            assert_eq!(of(other), Kind::Other, "{other}");
        }
        assert_eq!(kind_of(&json!(["kind"])), Kind::Other);
    }

    #[test]
    fn the_name_of_a_kind_is_recognised() {
        for kind in crate::crd::KINDS {
            assert_eq!(kind_of(&json!({"apiVersion": "kubevirt.io/v1", "kind": kind.name()})), kind);
        }
        for kind in [Kind::Secret, Kind::ConfigMap, Kind::PersistentVolumeClaim] {
            assert_eq!(kind_of(&json!({"apiVersion": "v1", "kind": kind.name()})), kind);
        }
    }
}
