//! What is reported of the claims of a machine, in `status.volumeStatus`. Pure.

use std::collections::BTreeMap;

use garboard_api::Quantity;
use garboard_api::v1::PersistentVolumeClaimInfo;
use garboard_cluster::report::claims::Claims;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::PodInput;
use super::volumes::{FILESYSTEM_OVERHEAD_PERMILLE, is_block};
use crate::stores::PREALLOCATED;

/// Of every claim that the instance names.
pub(super) fn of(input: &PodInput<'_>) -> Claims {
    let names = input.vmi.spec.volumes.iter().filter_map(|volume| volume.claim());
    names.filter_map(|name| Some((name.to_owned(), info(name, input.claims.get(name)?)))).collect()
}

fn info(name: &str, claim: &PersistentVolumeClaim) -> PersistentVolumeClaimInfo {
    let spec = claim.spec.clone().unwrap_or_default();
    let annotations = claim.metadata.annotations.as_ref();
    let preallocated = annotations.and_then(|all| all.get(PREALLOCATED)).is_some_and(|value| value == "true");
    let overhead = format!("0.{FILESYSTEM_OVERHEAD_PERMILLE:03}");
    PersistentVolumeClaimInfo {
        access_modes: spec.access_modes.unwrap_or_default(),
        capacity: amounts(claim.status.as_ref().and_then(|status| status.capacity.as_ref())),
        claim_name: Some(name.to_owned()),
        filesystem_overhead: Some(overhead).filter(|_| !is_block(claim)),
        preallocated: preallocated.then_some(true),
        requests: amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())),
        volume_mode: Some(spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned())),
    }
}

/// Those that can be read.
fn amounts(written: Option<&BTreeMap<String, Amount>>) -> BTreeMap<String, Quantity> {
    let read = |(name, amount): (&String, &Amount)| Some((name.clone(), amount.0.parse().ok()?));
    written.into_iter().flatten().filter_map(read).collect()
}
