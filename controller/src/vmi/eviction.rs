//! What an instance reports about leaving its node: whether its guest and its volumes could be moved, and whether its pod was
//! evicted. Pure.

use garboard_api::conditions::{
    ConditionChange, ConditionStatus, NewCondition, PodConditionType, Reason, VmiConditionType,
};
use garboard_cluster::report::claims;
use k8s_openapi::api::core::v1::PodCondition;

use super::pod_status::condition;
use super::situation::Case;

/// This version moves nothing.
const NO_MIGRATION: &str = "this version of Garboard does not support live migration";

/// Brings the conditions up to date. An eviction is reported until the instance is gone: its guest ends in order, and what ended it
/// is seen nowhere else.
pub(super) fn conditions(case: &Case<'_>) -> impl Iterator<Item = ConditionChange<'static, VmiConditionType>> + use<> {
    let migratable = (!case.before.is_final()).then(|| [obstacle(case), storage()]);
    let disruption = case.world.pod.as_ref().and_then(|pod| condition(pod, PodConditionType::DisruptionTarget));
    let evicted = disruption.filter(|each| each.status == ConditionStatus::True.name()).map(evicted);
    migratable.into_iter().flatten().chain(evicted).map(ConditionChange::Set)
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

/// Why the guest's volumes cannot be moved.
fn storage() -> NewCondition<'static, VmiConditionType> {
    NewCondition::new(VmiConditionType::StorageLiveMigratable, false, Reason::NotMigratable, NO_MIGRATION)
}

/// Why the guest cannot be moved: what would keep KubeVirt from it, or else that nothing here moves guests.
fn obstacle(case: &Case<'_>) -> NewCondition<'static, VmiConditionType> {
    let spec = &case.world.vmi.spec;
    let new =
        |reason, message: &str| NewCondition::new(VmiConditionType::LiveMigratable, false, reason, message.to_owned());
    let is_of_pod = |name: &str| spec.networks.iter().any(|network| network.name == name && network.pod.is_some());
    let is_bridged = spec.domain.devices.interfaces.iter().any(|each| each.bridge.is_some() && is_of_pod(&each.name));
    let claims = spec.volumes.iter().filter_map(|volume| volume.claim());
    if spec.volumes.iter().any(|volume| volume.host_disk.is_some()) {
        let message = "one of its disks is a file of its node (hostDisk), which no other node has";
        new(Reason::DisksNotLiveMigratable, message)
    } else if let Some(claim) = claims.into_iter().find(|claim| is_shared(case, claim) == Some(false)) {
        let message = format!("the claim {claim} is not ReadWriteMany: only one node at a time can use it");
        new(Reason::DisksNotLiveMigratable, &message)
    } else if is_bridged {
        let message = "its interface has the binding `bridge`, which ties the guest to the network of this pod";
        new(Reason::InterfaceNotLiveMigratable, message)
    } else {
        new(Reason::NotMigratable, NO_MIGRATION)
    }
}

/// Whether several nodes may use a claim at a time, by what is known of it: in the status, on the pod, or before there is one.
fn is_shared(case: &Case<'_>, claim: &str) -> Option<bool> {
    let world = case.world;
    let written = world.vmi.status.iter().flat_map(|status| &status.volume_status);
    let mut written = written.filter_map(|volume| volume.persistent_volume_claim_info.as_ref());
    let reported = written.find(|info| info.claim_name.as_deref() == Some(claim)).map(|info| info.access_modes.clone());
    let of_pod = || Some(claims::of(world.pod.as_ref()?).remove(claim)?.access_modes);
    let asked = || world.claims.get(claim)?.spec.as_ref()?.access_modes.clone();
    let modes = reported.filter(|modes| !modes.is_empty()).or_else(of_pod).or_else(asked)?;
    Some(modes.iter().any(|mode| mode == "ReadWriteMany"))
}
