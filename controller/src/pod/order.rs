//! What the launcher is told: the annotation that reaches it through the downward API.

use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::pod::PodOrder;

use super::volumes::Mounted;
use super::{PodInput, is_emulated};

/// The instance as it is now, where its volumes are, and what the cluster decided.
pub(super) fn render(input: &PodInput<'_>, mounted: &Mounted) -> Result<String, serde_json::Error> {
    let mut vmi = input.vmi.clone();
    let stored = vmi.status.take().and_then(|status| status.stored_machine);
    vmi.metadata.managed_fields = None;
    vmi.metadata.finalizers = None;
    vmi.metadata.owner_references = None;
    let order = PodOrder {
        version: PROTOCOL_VERSION,
        vmi: serde_json::to_value(vmi)?,
        volumes: mounted.table.clone(),
        images: mounted.images.clone(),
        emulation: is_emulated(input.config),
        stored,
    };
    serde_json::to_string(&order)
}
