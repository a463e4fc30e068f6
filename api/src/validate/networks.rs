//! Networks: their names, their one source, and that each has its interface.

use ipnet::{Ipv4Net, Ipv6Net};

use super::report::{Report, duplicate, invalid, required, unsupported};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::FieldPath;
use crate::v1::{Network, PodNetwork};

/// The smallest IPv4 network with room for a gateway and a guest, as a prefix length.
const NARROWEST_V4: u8 = 30;
/// The same for IPv6.
const NARROWEST_V6: u8 = 126;

/// The network an interface of this name belongs to. The last of a name counts, as in KubeVirt.
pub(crate) fn of_interface<'a>(subject: &Subject<'a>, name: &str) -> Option<&'a Network> {
    subject.spec.networks.iter().rev().find(|network| network.name == name)
}

/// Whether the guest is on the pod's own network.
pub(crate) fn has_pod_network(subject: &Subject<'_>) -> bool {
    subject.spec.networks.iter().any(|network| network.pod.is_some())
}

/// Judges the list of networks.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    the_default_one(subject, report);
    let list = subject.path("networks");
    for (index, network) in subject.spec.networks.iter().enumerate() {
        let at = list.index(index);
        source(network, &at, report);
        if subject.spec.networks.iter().take(index).any(|other| other.name == network.name) {
            report.push(
                duplicate(at.child("name"), format!("another network is named `{}` too", network.name))
                    .instead("give every network a name of its own"),
            );
        }
        let interfaces = &subject.spec.domain.devices.interfaces;
        if !interfaces.iter().any(|interface| interface.name == network.name) {
            report.push(
                required(at.child("name"), format!("no interface is named `{}`", network.name))
                    .instead("add an entry of that name to `domain.devices.interfaces`, or remove the network"),
            );
        }
        if let Some(pod) = &network.pod {
            ranges(pod, &at.child("pod"), report);
        }
    }
    resource_claims(subject, report);
}

fn the_default_one(subject: &Subject<'_>, report: &mut Report) {
    let networks = &subject.spec.networks;
    let pods = networks.iter().filter(|network| network.pod.is_some()).count();
    let is_default = |network: &&Network| network.multus.as_ref().is_some_and(|multus| multus.default == Some(true));
    let defaults = networks.iter().filter(is_default).count();
    let at = subject.path("networks");
    if pods > 1 {
        report.push(
            duplicate(at.clone(), format!("{pods} networks are the pod network, and a guest is on it once"))
                .instead("keep one `pod: {}`, and remove the other networks with their interfaces")
                .field(subject.path("interfaces").to_string()),
        );
    }
    if defaults > 1 {
        report.push(
            invalid(at.clone(), format!("{defaults} networks are the default one")).instead("keep one `default: true`"),
        );
    }
    if pods > 0 && defaults > 0 {
        report.push(
            invalid(at, "both the pod network and a Multus network are the default one")
                .instead("remove `default: true`, or the network with `pod: {}`"),
        );
    }
}

fn source(network: &Network, at: &FieldPath, report: &mut Report) {
    let sources = [network.pod.is_some(), network.multus.is_some(), network.resource_claim.is_some()];
    match sources.into_iter().filter(|set| *set).count() {
        1 => {}
        0 => report.push(
            required(at.clone(), format!("the network `{}` has no source", network.name)).instead("write `pod: {}`"),
        ),
        _ => report.push(
            required(at.clone(), format!("the network `{}` has several sources", network.name))
                .instead("keep one of `pod`, `multus` and `resourceClaim`"),
        ),
    }
    if network.multus.as_ref().is_some_and(|multus| multus.network_name.is_empty()) {
        report.push(
            required(at.child("multus").child("networkName"), "the network attachment is not named")
                .instead("write its name, or namespace/name")
                .field(at.to_string()),
        );
    }
}

fn ranges(pod: &PodNetwork, at: &FieldPath, report: &mut Report) {
    let v4 = text(&pod.vm_network_cidr);
    if !v4.is_empty() && !v4.parse::<Ipv4Net>().is_ok_and(|net| net.prefix_len() <= NARROWEST_V4) {
        report.push(
            invalid(at.child("vmNetworkCIDR"), format!("`{v4}` is not an IPv4 network with room for a guest"))
                .instead(format!("write a network of /{NARROWEST_V4} or wider, such as `10.0.2.0/24`")),
        );
    }
    let v6 = text(&pod.vm_ipv6_network_cidr);
    if !v6.is_empty() && !v6.parse::<Ipv6Net>().is_ok_and(|net| net.prefix_len() <= NARROWEST_V6) {
        report.push(
            invalid(at.child("vmIPv6NetworkCIDR"), format!("`{v6}` is not an IPv6 network with room for a guest"))
                .instead(format!("write a network of /{NARROWEST_V6} or wider, such as `fd10:0:2::/120`")),
        );
    }
}

fn resource_claims(subject: &Subject<'_>, report: &mut Report) {
    let networks = &subject.spec.networks;
    if networks.iter().all(|network| network.resource_claim.is_none()) {
        return;
    }
    let list = subject.path("networks");
    if !subject.config.has(Gate::NetworkDevicesWithDra) {
        report.push(
            unsupported(
                list,
                format!("networks from resource claims need the feature gate {}", Gate::NetworkDevicesWithDra),
            )
            .instead("switch the gate on, or use `pod` or `multus`"),
        );
        return;
    }
    if networks.iter().any(|network| network.multus.is_some()) {
        report.push(
            invalid(list.clone(), "Multus networks and networks from resource claims do not mix")
                .instead("use one of the two"),
        );
    }
    let interfaces = &subject.spec.domain.devices.interfaces;
    let mut seen = std::collections::BTreeSet::new();
    for (index, network) in networks.iter().enumerate() {
        let Some(claim) = &network.resource_claim else { continue };
        if interfaces.iter().any(|interface| interface.name == network.name && interface.sriov.is_none()) {
            report.push(
                invalid(
                    subject.path("domain.devices.interfaces"),
                    format!("`{}` is not bound by SR-IOV", network.name),
                )
                .instead("write `sriov: {}` for the interface of a network from a resource claim"),
            );
        }
        let at = list.index(index);
        let (name, request) = (text(&claim.claim_name), text(&claim.request_name));
        for (value, field) in [(name, "claimName"), (request, "requestName")] {
            if value.is_empty() {
                report.push(
                    required(at.child("resourceClaim").child(field), format!("`{field}` is missing"))
                        .instead("name both the claim and the request in it"),
                );
            }
        }
        if name.is_empty() || request.is_empty() {
            continue;
        }
        if !subject.spec.resource_claims.iter().any(|listed| listed.name == name) {
            report.push(
                super::report::not_found(
                    at.child("resourceClaim").child("claimName"),
                    format!("`{name}` is not in `resourceClaims`"),
                )
                .instead("list the claim there"),
            );
        }
        if !seen.insert((name, request)) {
            report.push(
                duplicate(at, format!("another network uses the request `{request}` of `{name}`"))
                    .instead("use each request once"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const FIRST: &str = "spec.networks[0]";

    #[test]
    fn a_network_has_one_source_and_an_interface() {
        refused(&[
            (&[(FIRST, json!({"name": "default"}))], FIRST, "no source"),
            (&[("spec.networks[0].multus", json!({"networkName": "x"}))], FIRST, "several sources"),
            (
                &[
                    (FIRST, json!({"name": "default", "multus": {"networkName": ""}})),
                    ("spec.domain.devices.interfaces[0]", json!({"name": "default", "bridge": {}})),
                ],
                "spec.networks[0].multus.networkName",
                "not named",
            ),
            (
                &[("spec.networks[1]", json!({"name": "extra", "multus": {"networkName": "lan"}}))],
                "spec.networks[1].name",
                "no interface is named `extra`",
            ),
            (
                &[("spec.networks[1]", json!({"name": "default", "pod": {}}))],
                "spec.networks[1].name",
                "another network is named `default`",
            ),
        ]);
    }

    #[test]
    fn there_is_one_default_network() {
        let second = ("spec.domain.devices.interfaces[1]", json!({"name": "b", "masquerade": {}}));
        let twice = [second.clone(), ("spec.networks[1]", json!({"name": "b", "pod": {}}))];
        refused(&[(&twice, "spec.networks", "2 networks are the pod network")]);
        assert!(faults(&twice).iter().any(|fault| fault.field == "spec.interfaces"));
        let other =
            [second, ("spec.networks[1]", json!({"name": "b", "multus": {"networkName": "x", "default": true}}))];
        refused(&[(&other, "spec.networks", "default")]);
    }

    #[test]
    fn the_range_of_the_pod_network_has_room_for_a_guest() {
        accepted(&[
            &[("spec.networks[0].pod.vmNetworkCIDR", json!("10.11.12.0/24"))],
            &[("spec.networks[0].pod.vmIPv6NetworkCIDR", json!("fd10::/120"))],
        ]);
        refused(&[
            (&[("spec.networks[0].pod.vmNetworkCIDR", json!("junk"))], "spec.networks[0].pod.vmNetworkCIDR", "IPv4"),
            (
                &[("spec.networks[0].pod.vmNetworkCIDR", json!("fd00::/64"))],
                "spec.networks[0].pod.vmNetworkCIDR",
                "IPv4",
            ),
            (
                &[("spec.networks[0].pod.vmNetworkCIDR", json!("10.0.0.0/31"))],
                "spec.networks[0].pod.vmNetworkCIDR",
                "room",
            ),
            (
                &[("spec.networks[0].pod.vmIPv6NetworkCIDR", json!("10.0.0.0/8"))],
                "spec.networks[0].pod.vmIPv6NetworkCIDR",
                "IPv6",
            ),
        ]);
    }
}
