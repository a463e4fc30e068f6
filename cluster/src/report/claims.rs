//! What a machine's pod says of the claims it was made with: written by the controller, which looked them up anyway, read
//! by whoever writes the machine's status. A launcher is not asked: it knows only what is mounted.

use std::collections::BTreeMap;

use garboard_api::v1::PersistentVolumeClaimInfo;
use k8s_openapi::api::core::v1::Pod;

/// The annotation of a launcher pod that holds [`Claims`] as JSON; there is none without claims.
pub const ANNOTATION: &str = "garboard.dev/claims";

/// By the claim's name.
pub type Claims = BTreeMap<String, PersistentVolumeClaimInfo>;

/// What a pod says of them; nothing if somebody wrote something else there.
#[must_use]
pub fn of(pod: &Pod) -> Claims {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
