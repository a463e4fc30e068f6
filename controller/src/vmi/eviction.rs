//! What an instance says about leaving its node: whether its guest could be moved, and whether its pod was evicted. Pure.

use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{Phase, VirtualMachineInstance};
use garboard_cluster::report::condition;

use super::decide::World;
use super::readiness::set;

/// KubeVirt's condition: whether the guest can be moved to another node while it runs.
pub(super) const LIVE_MIGRATABLE: &str = "LiveMigratable";
/// KubeVirt's condition: the cluster has the machine leave its node.
pub(crate) const EVICTION_REQUESTED: &str = "EvictionRequested";
/// Kubernetes' condition of a pod that goes because of the cluster, not because of its user: drained, preempted, or ended with
/// its node.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Brings both conditions up to date. An eviction is said until the instance is gone: its guest ends in order, and what ended it
/// is seen nowhere else.
pub(super) fn conditions(world: &World, status: &mut VirtualMachineInstanceStatus) {
    if !Phase::of(&world.vmi).is_final() {
        set(world.now, status, (LIVE_MIGRATABLE, "False"), obstacle(&world.vmi));
    }
    let disruption = world.pod.as_ref().and_then(|pod| condition::condition(pod, DISRUPTION_TARGET));
    if let Some(disruption) = disruption.filter(|each| each.status == "True") {
        let told = |text: &Option<String>| text.clone().unwrap_or_default();
        let why = (&*told(&disruption.reason), &*told(&disruption.message));
        set(world.now, status, (EVICTION_REQUESTED, "True"), why);
    }
}

/// Why the guest cannot be moved: what would keep KubeVirt from it, or else that nothing here moves guests.
fn obstacle(vmi: &VirtualMachineInstance) -> (&'static str, &'static str) {
    let spec = &vmi.spec;
    let is_of_pod = |name: &str| spec.networks.iter().any(|network| network.name == name && network.pod.is_some());
    let is_bridged = spec.domain.devices.interfaces.iter().any(|each| each.bridge.is_some() && is_of_pod(&each.name));
    if spec.volumes.iter().any(|volume| volume.host_disk.is_some()) {
        ("DisksNotLiveMigratable", "one of its disks is a file of its node (hostDisk), which no other node has")
    } else if is_bridged {
        (
            "InterfaceNotLiveMigratable",
            "its interface has the binding `bridge`, which ties the guest to the network of this pod",
        )
    } else {
        ("NotMigratable", "this version of Garboard does not support live migration")
    }
}
