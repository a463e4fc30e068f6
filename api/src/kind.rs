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
    /// `pool.kubevirt.io/v1beta1` VirtualMachinePool.
    Pool,
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
            Self::Pool => "VirtualMachinePool",
            Self::KubeVirt => "KubeVirt",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Other => "",
        }
    }

    /// Group and version of its objects as a manifest has them: the stored version. Nothing for [`Kind::Other`].
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::VirtualMachine | Self::VirtualMachineInstance | Self::ReplicaSet | Self::Preset | Self::KubeVirt => {
                crate::v1::API_VERSION
            }
            Self::Pool => crate::pool::API_VERSION,
            Self::Secret | Self::ConfigMap | Self::PersistentVolumeClaim => "v1",
            Self::Other => "",
        }
    }
}

/// The kind of an object, by its `apiVersion` and `kind`.
///
/// Of the groups `kubevirt.io` and `pool.kubevirt.io` these are the versions that the definitions serve, with the same fields.
/// Others are [`Kind::Other`].
pub fn kind_of(object: &Value) -> Kind {
    let written = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    match (written("apiVersion"), written("kind")) {
        (version, "VirtualMachine") if is_served(version) => Kind::VirtualMachine,
        (version, "VirtualMachineInstance") if is_served(version) => Kind::VirtualMachineInstance,
        (version, "VirtualMachineInstanceReplicaSet") if is_served(version) => Kind::ReplicaSet,
        (version, "VirtualMachineInstancePreset") if is_served(version) => Kind::Preset,
        (version, "KubeVirt") if is_served(version) => Kind::KubeVirt,
        (version, "VirtualMachinePool") if crate::crd::POOL_GROUP.serves(version) => Kind::Pool,
        ("v1", "Secret") => Kind::Secret,
        ("v1", "ConfigMap") => Kind::ConfigMap,
        ("v1", "PersistentVolumeClaim") => Kind::PersistentVolumeClaim,
        _ => Kind::Other,
    }
}

/// Whether an `apiVersion` is one of those that the definitions of `kubevirt.io` serve.
fn is_served(version: &str) -> bool {
    crate::crd::GROUP.serves(version)
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
            assert_eq!(kind_of(&json!({"apiVersion": kind.api_version(), "kind": kind.name()})), kind);
        }
        for kind in [Kind::Secret, Kind::ConfigMap, Kind::PersistentVolumeClaim] {
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
