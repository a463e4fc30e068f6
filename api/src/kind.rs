//! Which kind a manifest is of.

use serde_json::Value;

use crate::crd::KINDS;
use crate::group::{self, Group};

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
    /// `pool.kubevirt.io/v1beta1` VirtualMachinePool.
    Pool,
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
            Self::Pool => "VirtualMachinePool",
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

    /// The group of its objects, or nothing for kinds that are not defined here.
    #[must_use]
    pub const fn group(self) -> Option<Group> {
        match self {
            Self::VirtualMachine | Self::VirtualMachineInstance | Self::ReplicaSet | Self::Preset | Self::KubeVirt => {
                Some(group::MACHINES)
            }
            Self::Pool => Some(group::POOLS),
            Self::VirtualMachineInstancetype
            | Self::VirtualMachineClusterInstancetype
            | Self::VirtualMachinePreference
            | Self::VirtualMachineClusterPreference => Some(group::SIZES),
            Self::Secret | Self::ConfigMap | Self::PersistentVolumeClaim | Self::Other => None,
        }
    }

    /// Group and version of its objects as a manifest has them: the stored version. Empty for [`Kind::Other`].
    #[must_use]
    pub fn api_version(self) -> String {
        match self.group() {
            Some(group) => group.api_version(),
            None if self == Self::Other => String::new(),
            None => CORE.to_owned(),
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
            | Self::Pool
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

/// The group of Kubernetes' own kinds, which has no name, in its version.
const CORE: &str = "v1";
/// Kinds of that group.
const OF_CORE: [Kind; 3] = [Kind::Secret, Kind::ConfigMap, Kind::PersistentVolumeClaim];

/// The kind of an object, by its `apiVersion` and `kind`.
///
/// Of the groups of KubeVirt these are the versions that the definitions serve with the same fields. Others are [`Kind::Other`].
pub fn kind_of(object: &Value) -> Kind {
    let written = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, name) = (written("apiVersion"), written("kind"));
    let is_it = |kind: &Kind| {
        kind.name() == name && kind.group().map_or_else(|| version == CORE, |group| group.serves(version))
    };
    KINDS.into_iter().chain(OF_CORE).find(is_it).unwrap_or(Kind::Other)
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
        for kind in KINDS {
            assert_eq!(kind_of(&json!({"apiVersion": kind.api_version(), "kind": kind.name()})), kind);
        }
        for kind in OF_CORE {
            assert_eq!(kind_of(&json!({"apiVersion": kind.api_version(), "kind": kind.name()})), kind);
        }
    }

    #[test]
    fn pools_are_of_a_group_of_their_own() {
        let of = |version: &str| kind_of(&json!({"apiVersion": version, "kind": "VirtualMachinePool"}));
        assert_eq!([of("pool.kubevirt.io/v1beta1"), of("pool.kubevirt.io/v1alpha1")], [Kind::Pool; 2]);
        for other in ["kubevirt.io/v1", "pool.kubevirt.io/v1", "pool.kubevirt.io/v1alpha3", "pool.kubevirt.io"] {
            assert_eq!(of(other), Kind::Other, "{other}");
        }
        assert_eq!(kind_of(&json!({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachine"})), Kind::Other);
    }
}
