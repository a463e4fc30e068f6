//! The claims of a machine's pod, in an annotation: written by the controller, which looked them up anyway, read
//! by the writer of the machine's status. A launcher is not asked: it sees only what is mounted.

use std::collections::BTreeMap;

use garboard_api::v1::PersistentVolumeClaimInfo;
use k8s_openapi::api::core::v1::Pod;

/// The annotation of a launcher pod that holds [`Claims`] as JSON; there is none without claims.
pub const ANNOTATION: &str = "garboard.dev/claims";

/// By the claim's name.
pub type Claims = BTreeMap<String, PersistentVolumeClaimInfo>;

/// The claims in a pod's annotation; nothing if it has something else.
#[must_use]
pub fn of(pod: &Pod) -> Claims {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
