//! The schema of each kind, made once.

use std::sync::OnceLock;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use serde_json::Value;

use super::shape::Shape;
use super::structural::{Descriptions, structural};
use crate::instancetype::{VirtualMachineInstancetype, VirtualMachinePreference};
use crate::kind::Kind;
use crate::v1::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePreset, VirtualMachineInstanceReplicaSet,
    VirtualMachinePool,
};

pub(super) fn structural_of(kind: Kind, descriptions: Descriptions) -> Option<Value> {
    Some(match kind {
        Kind::VirtualMachine => structural::<VirtualMachine>(descriptions),
        Kind::VirtualMachineInstance => structural::<VirtualMachineInstance>(descriptions),
        Kind::ReplicaSet => structural::<VirtualMachineInstanceReplicaSet>(descriptions),
        Kind::Preset => structural::<VirtualMachineInstancePreset>(descriptions),
        Kind::Pool => structural::<VirtualMachinePool>(descriptions),
        Kind::KubeVirt => structural::<KubeVirt>(descriptions),
        Kind::VirtualMachineInstancetype | Kind::VirtualMachineClusterInstancetype => {
            structural::<VirtualMachineInstancetype>(descriptions)
        }
        Kind::VirtualMachinePreference | Kind::VirtualMachineClusterPreference => {
            structural::<VirtualMachinePreference>(descriptions)
        }
        Kind::Secret => structural::<Secret>(descriptions),
        Kind::ConfigMap => structural::<ConfigMap>(descriptions),
        Kind::PersistentVolumeClaim => structural::<PersistentVolumeClaim>(descriptions),
        Kind::Other => return None,
    })
}

/// The shape of a kind. The first call for a kind takes a few milliseconds.
pub(super) fn shape_of(kind: Kind) -> Option<&'static Shape> {
    static SHAPES: [OnceLock<Option<Shape>>; 11] = [const { OnceLock::new() }; 11];
    let slot = match kind {
        Kind::VirtualMachine => 0,
        Kind::VirtualMachineInstance => 1,
        Kind::Secret => 2,
        Kind::ConfigMap => 3,
        Kind::PersistentVolumeClaim => 4,
        Kind::KubeVirt => 5,
        Kind::VirtualMachineInstancetype | Kind::VirtualMachineClusterInstancetype => 6,
        Kind::VirtualMachinePreference | Kind::VirtualMachineClusterPreference => 7,
        Kind::ReplicaSet => 8,
        Kind::Preset => 9,
        Kind::Pool => 10,
        Kind::Other => return None,
    };
    SHAPES[slot].get_or_init(|| structural_of(kind, Descriptions::LeftOut).map(|schema| Shape::of(&schema))).as_ref()
}
