//! How an interface is joined to its network.

use super::addresses::parse_mac;
use super::networks;
use super::report::{Report, invalid, unsupported};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::FieldPath;
use crate::suggest::listed;
use crate::v1::Interface;

/// The bindings a manifest may name, apart from a plugin's.
pub(crate) const BINDINGS: &[&str] = &["masquerade", "bridge", "passtBinding", "sriov"];
/// Bindings of older manifests that no longer exist, each with what to write instead.
const DISCONTINUED: &[(&str, &str)] = &[
    ("slirp", "write `masquerade: {}` or `passtBinding: {}`"),
    ("passt", "write `passtBinding: {}`"),
    ("macvtap", "write `bridge: {}`"),
];
/// The address the masquerade's bridge has itself.
const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Judges the binding of one interface.
pub(crate) fn check(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let old = [interface.slirp.is_some(), interface.passt.is_some(), interface.macvtap.is_some()];
    for ((name, instead), _) in DISCONTINUED.iter().zip(old).filter(|(_, set)| *set) {
        report.push(
            unsupported(at.child(name), format!("the binding `{name}` does not exist any more")).instead(*instead),
        );
    }
    exactly_one(interface, at, report);
    fits_its_network(subject, interface, at, report);
}

fn exactly_one(interface: &Interface, at: &FieldPath, report: &mut Report) {
    let set = [
        interface.masquerade.is_some(),
        interface.bridge.is_some(),
        interface.passt_binding.is_some(),
        interface.sriov.is_some(),
    ];
    let mut written: Vec<&str> = BINDINGS.iter().zip(set).filter_map(|(name, set)| set.then_some(*name)).collect();
    if interface.binding.is_some() {
        written.push("binding");
    }
    match written.as_slice() {
        [_] => {}
        [] => report.push(
            invalid(at.clone(), format!("the interface `{}` has no binding", interface.name))
                .instead(format!("write one of {}, for example `masquerade: {{}}`", listed(BINDINGS))),
        ),
        several => report.push(
            invalid(
                at.clone(),
                format!("the interface `{}` has several bindings: {}", interface.name, several.join(", ")),
            )
            .instead("keep one of them"),
        ),
    }
}

fn fits_its_network(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let on_pod_network = networks::of_interface(subject, &interface.name).is_some_and(|network| network.pod.is_some());
    let name = at.child("name").to_string();
    let mut misfit = |binding: &str, message: String, instead: &str| {
        report.push(invalid(at.child(binding), message).instead(instead).field(name.clone()));
    };
    if interface.masquerade.is_some() && !on_pod_network {
        misfit(
            "masquerade",
            "masquerade works on the pod network only".to_owned(),
            "write `bridge: {}`, or give the network of this name the source `pod: {}`",
        );
    }
    if interface.bridge.is_some() && on_pod_network && !subject.config.bridge_on_pod_network {
        misfit(
            "bridge",
            "this cluster does not permit a bridge on the pod network".to_owned(),
            "write `masquerade: {}`",
        );
    }
    if interface.passt_binding.is_some() {
        if !subject.config.has(Gate::PasstBinding) {
            misfit(
                "passtBinding",
                format!("this binding needs the feature gate {}", Gate::PasstBinding),
                "write `masquerade: {}`, or switch the gate on",
            );
        }
        if !on_pod_network {
            misfit("passtBinding", "passt works on the pod network only".to_owned(), "write `bridge: {}`");
        }
    }
    if interface.masquerade.is_some() && parse_mac(text(&interface.mac_address)) == Some(BRIDGE_MAC) {
        report.push(
            invalid(at.child("macAddress"), "the masquerade's own bridge has this address")
                .instead("write another one, or leave it out"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    const NIC: &str = "spec.domain.devices.interfaces[0]";

    fn nic(binding: &str) -> (&'static str, serde_json::Value) {
        (NIC, json!({"name": "default", binding: {}}))
    }

    #[test]
    fn the_pod_network_takes_four_bindings() {
        for binding in super::BINDINGS {
            accepted(&[&[nic(binding)]]);
        }
    }

    #[test]
    fn an_interface_has_exactly_one_binding() {
        refused(&[
            (&[(NIC, json!({"name": "default"}))], NIC, "masquerade: {}"),
            (&[(NIC, json!({"name": "default", "bridge": {}, "masquerade": {}}))], NIC, "masquerade, bridge"),
            (&[(NIC, json!({"name": "default", "bridge": {}, "binding": {"name": "x"}}))], NIC, "bridge, binding"),
        ]);
    }

    #[test]
    fn old_bindings_are_refused_by_name() {
        for old in ["slirp", "passt", "macvtap"] {
            let fields: Vec<String> = faults(&[nic(old)]).into_iter().map(|fault| fault.field).collect();
            assert_eq!(fields, [format!("{NIC}.{old}"), NIC.to_owned()]);
        }
    }

    #[test]
    fn bindings_fit_their_network() {
        let multus = ("spec.networks[0]", json!({"name": "default", "multus": {"networkName": "lan"}}));
        refused(&[
            (std::slice::from_ref(&multus), "spec.domain.devices.interfaces[0].masquerade", "pod network only"),
            (
                &[multus.clone(), nic("passtBinding")],
                "spec.domain.devices.interfaces[0].passtBinding",
                "pod network only",
            ),
            (
                &[("spec.domain.devices.interfaces[0].macAddress", json!("02:00:00:00:00:00"))],
                "spec.domain.devices.interfaces[0].macAddress",
                "own bridge",
            ),
        ]);
    }

    #[test]
    fn a_cluster_may_forbid_a_binding() {
        let config = ClusterConfig { bridge_on_pod_network: false, ..ClusterConfig::offline() };
        assert_eq!(faults_in(&[nic("bridge")], &config)[0].field, format!("{NIC}.name"));
        let config = ClusterConfig::offline().without(Gate::PasstBinding);
        assert_eq!(faults_in(&[nic("passtBinding")], &config)[0].field, format!("{NIC}.name"));
    }
}
