//! The ports of an interface that are forwarded to the guest.

use std::collections::BTreeSet;

use super::names::port_name_problem;
use super::networks;
use super::report::{Report, duplicate, invalid, required, unsupported};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::FieldPath;
use crate::suggest::one_of;
use crate::v1::{Interface, Port, PortRange};

const PROTOCOLS: &[&str] = &["TCP", "UDP"];
const LAST_PORT: i64 = 65_535;
/// The most port ranges of one interface.
const RANGES_MAX: usize = 10;

/// Judges the forwarded ports of one interface. Only the pod network forwards, so only there do they mean anything.
pub(crate) fn check(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    if networks::of_interface(subject, &interface.name).is_some_and(|network| network.pod.is_some()) {
        let mut names = BTreeSet::new();
        for (index, port) in interface.ports.iter().enumerate() {
            one(port, &at.child("ports").index(index), &mut names, report);
        }
    }
    if !interface.port_ranges.is_empty() {
        ranges(subject, interface, at, report);
    }
}

fn one<'a>(port: &'a Port, at: &FieldPath, names: &mut BTreeSet<&'a str>, report: &mut Report) {
    let name = text(&port.name);
    if !name.is_empty() {
        if !names.insert(name) {
            report.push(
                duplicate(at.child("name"), format!("another port is named `{name}` too"))
                    .instead("give every port a name of its own, or none"),
            );
        }
        if let Some(problem) = port_name_problem(name) {
            report.push(
                invalid(at.child("name"), format!("the name `{}` {problem}", name.escape_debug()))
                    .instead("write up to 15 lower-case letters, digits and dashes, with one letter at least"),
            );
        }
    }
    number(i64::from(port.port), &at.child("port"), report);
    protocol(text(&port.protocol), &at.child("protocol"), report);
}

fn number(port: i64, at: &FieldPath, report: &mut Report) {
    if port == 0 {
        report.push(required(at.clone(), "no port is written").instead(format!("write 1 to {LAST_PORT}")));
    } else if !(1..=LAST_PORT).contains(&port) {
        report.push(invalid(at.clone(), format!("{port} is not a port")).instead(format!("write 1 to {LAST_PORT}")));
    }
}

fn protocol(protocol: &str, at: &FieldPath, report: &mut Report) {
    if !protocol.is_empty() && !PROTOCOLS.contains(&protocol) {
        report.push(
            unsupported(at.clone(), format!("ports of the protocol `{protocol}` are not forwarded"))
                .instead(one_of(protocol, PROTOCOLS)),
        );
    }
}

fn ranges(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let list = at.child("portRanges");
    let whole = at.to_string();
    if !subject.config.has(Gate::PortRanges) {
        report.push(
            unsupported(list.clone(), format!("port ranges need the feature gate {}", Gate::PortRanges))
                .instead("switch the gate on, or list the ports under `ports`"),
        );
    }
    if !interface.ports.is_empty() {
        report.push(
            invalid(list.clone(), "`ports` and `portRanges` exclude each other")
                .instead("keep one of them")
                .field(whole.clone()),
        );
    }
    if interface.masquerade.is_none() {
        report.push(
            invalid(list.clone(), "port ranges exist for masquerade only")
                .instead("write `masquerade: {}`, or remove the ranges")
                .field(whole),
        );
    }
    if interface.port_ranges.len() > RANGES_MAX {
        report.push(
            invalid(list.clone(), format!("there are {} ranges", interface.port_ranges.len()))
                .instead(format!("write at most {RANGES_MAX}")),
        );
    }
    for (index, range) in interface.port_ranges.iter().enumerate() {
        one_range(range, &list.index(index), report);
    }
}

fn one_range(range: &PortRange, at: &FieldPath, report: &mut Report) {
    let (start, end) = (i64::from(range.start), i64::from(range.end));
    number(start, &at.child("start"), report);
    number(end, &at.child("end"), report);
    if start > end {
        report.push(
            invalid(at.child("start"), format!("the range begins at {start} and ends at {end}"))
                .instead("write the lower port as `start`")
                .field(at.to_string()),
        );
    }
    protocol(&range.protocol, &at.child("protocol"), report);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults_in, refused};

    const PORTS: &str = "spec.domain.devices.interfaces[0].ports";
    const RANGES: &str = "spec.domain.devices.interfaces[0].portRanges";

    #[test]
    fn ports_have_a_number_a_protocol_and_perhaps_a_name() {
        accepted(&[
            &[(
                PORTS,
                json!([{"port": 22}, {"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "name": "dns"}]),
            )],
            &[(PORTS, json!([{"port": 80}, {"port": 80}]))],
            &[(RANGES, json!([{"start": 1000, "end": 2000, "protocol": "TCP"}]))],
        ]);
        refused(&[
            (&[(PORTS, json!([{"port": 0}]))], "spec.domain.devices.interfaces[0].ports[0].port", "no port"),
            (&[(PORTS, json!([{"port": 65_536}]))], "spec.domain.devices.interfaces[0].ports[0].port", "65536"),
            (
                &[(PORTS, json!([{"port": 1, "protocol": "tcp"}]))],
                "spec.domain.devices.interfaces[0].ports[0].protocol",
                "`TCP`?",
            ),
            (
                &[(PORTS, json!([{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]))],
                "spec.domain.devices.interfaces[0].ports[1].name",
                "another port",
            ),
            (
                &[(PORTS, json!([{"port": 1, "name": "Bad_Name"}]))],
                "spec.domain.devices.interfaces[0].ports[0].name",
                "lower-case",
            ),
            (
                &[(RANGES, json!([{"start": 2, "end": 1, "protocol": "TCP"}]))],
                "spec.domain.devices.interfaces[0].portRanges[0].start",
                "begins at 2",
            ),
            (
                &[(RANGES, json!([{"start": 1, "end": 2, "protocol": "TCP"}])), (PORTS, json!([{"port": 22}]))],
                RANGES,
                "exclude each other",
            ),
        ]);
    }

    #[test]
    fn ranges_need_their_gate() {
        let changes = [(RANGES, json!([{"start": 1, "end": 2, "protocol": "TCP"}]))];
        let faults = faults_in(&changes, &ClusterConfig::offline().without(Gate::PortRanges));
        assert_eq!(faults.len(), 1);
        assert!(faults[0].message.contains("PortRangesSpec"));
    }
}
