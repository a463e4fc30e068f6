//! Which kind a manifest is of.

use serde_json::Value;

/// The kinds Garboard reads from manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kubevirt.io/v1` VirtualMachine.
    VirtualMachine,
    /// `kubevirt.io/v1` VirtualMachineInstance.
    VirtualMachineInstance,
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
            Self::KubeVirt => "KubeVirt",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Other => "",
        }
    }
}

/// Says which kind an object is of, by its `apiVersion` and `kind`.
///
/// Other versions of the group `kubevirt.io` are [`Kind::Other`]: their fields are others.
pub fn kind_of(object: &Value) -> Kind {
    let written = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    match (written("apiVersion"), written("kind")) {
        (crate::v1::API_VERSION, "VirtualMachine") => Kind::VirtualMachine,
        (crate::v1::API_VERSION, "VirtualMachineInstance") => Kind::VirtualMachineInstance,
        (crate::v1::API_VERSION, "KubeVirt") => Kind::KubeVirt,
        ("v1", "Secret") => Kind::Secret,
        ("v1", "ConfigMap") => Kind::ConfigMap,
        ("v1", "PersistentVolumeClaim") => Kind::PersistentVolumeClaim,
        _ => Kind::Other,
    }
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
        assert_eq!(kind_of(&json!({"apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachine"})), Kind::Other);
        assert_eq!(kind_of(&json!(["kind"])), Kind::Other);
    }

    #[test]
    fn the_name_of_a_kind_is_recognised() {
        for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::KubeVirt] {
            assert_eq!(kind_of(&json!({"apiVersion": "kubevirt.io/v1", "kind": kind.name()})), kind);
        }
        for kind in [Kind::Secret, Kind::ConfigMap, Kind::PersistentVolumeClaim] {
            assert_eq!(kind_of(&json!({"apiVersion": "v1", "kind": kind.name()})), kind);
        }
    }
}
