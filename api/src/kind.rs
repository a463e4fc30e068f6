//! Which kind a manifest is of.

use serde_json::Value;

use crate::instancetype;

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
    /// `instancetype.kubevirt.io` VirtualMachineInstancetype.
    VirtualMachineInstancetype,
    /// `instancetype.kubevirt.io` VirtualMachineClusterInstancetype.
    VirtualMachineClusterInstancetype,
    /// `instancetype.kubevirt.io` VirtualMachinePreference.
    VirtualMachinePreference,
    /// `instancetype.kubevirt.io` VirtualMachineClusterPreference.
    VirtualMachineClusterPreference,
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
            Self::VirtualMachineInstancetype => "VirtualMachineInstancetype",
            Self::VirtualMachineClusterInstancetype => "VirtualMachineClusterInstancetype",
            Self::VirtualMachinePreference => "VirtualMachinePreference",
            Self::VirtualMachineClusterPreference => "VirtualMachineClusterPreference",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Other => "",
        }
    }

    /// Whether its objects belong to the cluster, and not to a namespace.
    #[must_use]
    pub const fn is_of_cluster(self) -> bool {
        match self {
            Self::VirtualMachineClusterInstancetype | Self::VirtualMachineClusterPreference => true,
            Self::VirtualMachine
            | Self::VirtualMachineInstance
            | Self::ReplicaSet
            | Self::Preset
            | Self::KubeVirt
            | Self::VirtualMachineInstancetype
            | Self::VirtualMachinePreference
            | Self::Secret
            | Self::ConfigMap
            | Self::PersistentVolumeClaim
            | Self::Other => false,
        }
    }
}

/// The kinds of the group `instancetype.kubevirt.io`.
pub const SIZES: [Kind; 4] = [
    Kind::VirtualMachineInstancetype,
    Kind::VirtualMachineClusterInstancetype,
    Kind::VirtualMachinePreference,
    Kind::VirtualMachineClusterPreference,
];

/// The kind of an object, by its `apiVersion` and `kind`.
///
/// Of the groups `kubevirt.io` and `instancetype.kubevirt.io` these are the versions that the definitions serve, with the same
/// fields. Others are [`Kind::Other`].
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
        (version, name) if is_size(version) => {
            SIZES.into_iter().find(|kind| kind.name() == name).unwrap_or(Kind::Other)
        }
        _ => Kind::Other,
    }
}

/// Whether an `apiVersion` is one of those of instancetypes and preferences that are served.
fn is_size(version: &str) -> bool {
    let of_group = version.strip_prefix(instancetype::GROUP).and_then(|rest| rest.strip_prefix('/'));
    matches!(of_group, Some(instancetype::STORED_VERSION | instancetype::NEW_VERSION))
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
    fn sizes_are_of_their_own_group_in_both_versions() {
        for kind in SIZES {
            for version in ["instancetype.kubevirt.io/v1beta1", "instancetype.kubevirt.io/v1"] {
                assert_eq!(kind_of(&json!({"apiVersion": version, "kind": kind.name()})), kind);
            }
            for version in ["kubevirt.io/v1", "instancetype.kubevirt.io/v1alpha2", "instancetype.kubevirt.io"] {
                assert_eq!(kind_of(&json!({"apiVersion": version, "kind": kind.name()})), Kind::Other, "{version}");
            }
        }
        let other = json!({"apiVersion": "instancetype.kubevirt.io/v1", "kind": "VirtualMachine"});
        assert_eq!(kind_of(&other), Kind::Other);
        assert!(
            Kind::VirtualMachineClusterPreference.is_of_cluster() && !Kind::VirtualMachinePreference.is_of_cluster()
        );
    }

    #[test]
    fn the_name_of_a_kind_is_recognised() {
        for kind in crate::crd::KINDS.into_iter().filter(|kind| !SIZES.contains(kind)) {
            assert_eq!(kind_of(&json!({"apiVersion": "kubevirt.io/v1", "kind": kind.name()})), kind);
        }
        for kind in [Kind::Secret, Kind::ConfigMap, Kind::PersistentVolumeClaim] {
            assert_eq!(kind_of(&json!({"apiVersion": "v1", "kind": kind.name()})), kind);
        }
    }
}
