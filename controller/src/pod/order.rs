//! The order for the launcher: the annotation that reaches it through the downward API.

use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::pod::PodOrder;

use super::PodInput;
use super::contribution::Mounted;

/// The instance as it is now, where its volumes are, and what the cluster decided.
pub(super) fn render(input: &PodInput<'_>, mounted: &Mounted) -> Result<String, serde_json::Error> {
    let mut vmi = input.vmi.clone();
    let stored = vmi.status.take().and_then(|status| status.stored_machine);
    vmi.metadata.managed_fields = None;
    vmi.metadata.finalizers = None;
    vmi.metadata.owner_references = None;
    // What kubectl remembers of the manifest is the whole instance again, and all annotations together have a limit.
    vmi.metadata.annotations.iter_mut().for_each(|all| all.retain(|key, _| !key.starts_with("kubectl.kubernetes.io/")));
    let order = PodOrder {
        version: PROTOCOL_VERSION,
        vmi: serde_json::to_value(vmi)?,
        volumes: mounted.table.clone(),
        images: mounted.images.clone(),
        emulation: input.is_emulated(),
        overhead_permille: Some(input.config.overhead_permille),
        stored,
    };
    serde_json::to_string(&order)
}
