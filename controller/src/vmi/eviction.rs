//! What an instance reports about leaving its node: whether its guest could be moved, and whether its pod was evicted. Pure.

use garboard_api::VirtualMachineInstance;
use garboard_api::conditions::{
    ConditionChange, ConditionStatus, NewCondition, PodConditionType, Reason, VmiConditionType,
};
use k8s_openapi::api::core::v1::PodCondition;

use super::pod_status::condition;
use super::situation::Case;

/// Brings both conditions up to date. An eviction is reported until the instance is gone: its guest ends in order, and what ended it
/// is seen nowhere else.
pub(super) fn conditions(case: &Case<'_>) -> impl Iterator<Item = ConditionChange<'static, VmiConditionType>> + use<> {
    let migratable = (!case.before.is_final()).then(|| obstacle(&case.world.vmi));
    let disruption = case.world.pod.as_ref().and_then(|pod| condition(pod, PodConditionType::DisruptionTarget));
    let evicted = disruption.filter(|each| each.status == ConditionStatus::True.name()).map(evicted);
    migratable.into_iter().chain(evicted).map(ConditionChange::Set)
}

/// Kubernetes' reason why a pod goes.
fn evicted(disruption: &PodCondition) -> NewCondition<'static, VmiConditionType> {
    NewCondition {
        kind: VmiConditionType::EvictionRequested,
        status: ConditionStatus::True,
        reason: disruption.reason.clone().unwrap_or_default().into(),
        message: disruption.message.clone().unwrap_or_default().into(),
    }
}

/// Why the guest cannot be moved: what would keep KubeVirt from it, or else that nothing here moves guests.
fn obstacle(vmi: &VirtualMachineInstance) -> NewCondition<'static, VmiConditionType> {
    let spec = &vmi.spec;
    let is_of_pod = |name: &str| spec.networks.iter().any(|network| network.name == name && network.pod.is_some());
    let is_bridged = spec.domain.devices.interfaces.iter().any(|each| each.bridge.is_some() && is_of_pod(&each.name));
    let (reason, message) = if spec.volumes.iter().any(|volume| volume.host_disk.is_some()) {
        let message = "one of its disks is a file of its node (hostDisk), which no other node has";
        (Reason::DisksNotLiveMigratable, message)
    } else if is_bridged {
        let message = "its interface has the binding `bridge`, which ties the guest to the network of this pod";
        (Reason::InterfaceNotLiveMigratable, message)
    } else {
        (Reason::NotMigratable, "this version of Garboard does not support live migration")
    };
    NewCondition::new(VmiConditionType::LiveMigratable, false, reason, message)
}
