//! MAC addresses.

use garboard_api::MacAddr;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::v1::Interface;
use garboard_machine::id::fnv1a_64;

use super::draft::{Input, invalid, text};
use super::error::PlanError;
use super::interface::BindingPlan;

/// The address of an interface: the manifest's, else the pod's if the guest takes its place (KubeVirt's rule: networks may
/// let no other one through), else the one it had, else one that follows from its names. The last is locally administered,
/// so it meets no real card; two VMs meet only if namespace, name and interface are equal.
pub(super) fn of(
    input: Input<'_>,
    interface: &Interface,
    binding: &BindingPlan,
    field: &str,
) -> Result<String, PlanError> {
    if let Some(asked) = asked(interface, field)? {
        return Ok(asked);
    }
    let pods = input.options.link_mac.as_deref().and_then(normalise);
    if let Some(pods) = pods.filter(|_| matches!(binding, BindingPlan::Bridge { .. })) {
        return Ok(pods);
    }
    if let Some(stored) = input.stored.and_then(|stored| normalise(stored.macs.get(&interface.name)?)) {
        return Ok(stored);
    }
    let metadata = &input.vmi.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let name = metadata.name.as_deref().unwrap_or_default();
    let [.., a, b, c, d, e] = fnv1a_64(format!("{namespace}/{name}/{}", interface.name).as_bytes()).to_be_bytes();
    Ok(format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}"))
}

/// The manifest's.
pub(super) fn asked(interface: &Interface, field: &str) -> Result<Option<String>, PlanError> {
    let Some(asked) = text(&interface.mac_address) else { return Ok(None) };
    let invalid = || {
        let field = format!("{field}.macAddress");
        invalid(field, format!("`{asked}` is no MAC address"), "write six pairs like 02:00:00:aa:bb:01")
    };
    normalise(asked).ok_or_else(invalid).map(Some)
}

/// In lower case with colons, whichever of the notations that admission takes it was written in.
fn normalise(text: &str) -> Option<String> {
    text.parse::<MacAddr>().ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_one_way() {
        for good in ["02:00:00:aa:bb:01", "02-00-00-AA-BB-01", "0200.00aa.bb01"] {
            assert_eq!(normalise(good).as_deref(), Some("02:00:00:aa:bb:01"), "{good}");
        }
        for bad in ["", "02:00:00-aa-bb-01", "02:00:00:aa:bb", "02:00:00:aa:bb:1", "02:00:00:aa:bb:zz", "020000aabb01"]
        {
            assert_eq!(normalise(bad), None, "{bad}");
        }
    }
}
