//! Liveness and readiness probes.

use super::networks;
use super::report::{Report, invalid, required};
use super::subject::Subject;
use crate::fault::FieldPath;
use crate::v1::Probe;

/// Judges both probes.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    for (name, probe) in
        [("readinessProbe", &subject.spec.readiness_probe), ("livenessProbe", &subject.spec.liveness_probe)]
    {
        let Some(probe) = probe else { continue };
        let at = subject.path(name);
        one_handler(probe, &at, report);
        if !networks::has_pod_network(subject) {
            reaches_the_guest(probe, &at, report);
        }
        numbers(probe, &at, report);
    }
}

fn one_handler(probe: &Probe, at: &FieldPath, report: &mut Report) {
    let handlers =
        [probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.exec.is_some(), probe.guest_agent_ping.is_some()];
    match handlers.into_iter().filter(|set| *set).count() {
        1 => {}
        0 => report.push(
            required(at.clone(), "nothing is probed")
                .instead("write one of `httpGet`, `tcpSocket`, `exec` and `guestAgentPing`"),
        ),
        _ => report.push(
            invalid(at.clone(), "several things are probed at once")
                .instead("keep one of `httpGet`, `tcpSocket`, `exec` and `guestAgentPing`"),
        ),
    }
}

fn reaches_the_guest(probe: &Probe, at: &FieldPath, report: &mut Report) {
    for (field, set) in [("httpGet", probe.http_get.is_some()), ("tcpSocket", probe.tcp_socket.is_some())] {
        if set {
            report.push(
                invalid(at.child(field), "a guest without the pod network cannot be reached from outside")
                    .instead("add a network with `pod: {}`, or probe by `guestAgentPing` or `exec`"),
            );
        }
    }
}

fn numbers(probe: &Probe, at: &FieldPath, report: &mut Report) {
    let given = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, number) in given {
        if let Some(number) = number
            && number < 0
        {
            report.push(
                invalid(at.child(field), format!("{number} is negative")).instead("write 1 or more, or leave it out"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    const READY: &str = "spec.readinessProbe";
    const ALIVE: &str = "spec.livenessProbe";

    #[test]
    fn a_probe_looks_at_one_thing_it_can_reach() {
        accepted(&[
            &[(READY, json!({"httpGet": {"port": 80}}))],
            &[(READY, json!({"guestAgentPing": {}}))],
            &[(ALIVE, json!({"exec": {"command": ["true"]}, "periodSeconds": 10}))],
        ]);
        refused(&[
            (&[(READY, json!({"periodSeconds": 10}))], READY, "nothing is probed"),
            (&[(ALIVE, json!({"tcpSocket": {"port": 22}, "httpGet": {"port": 80}}))], ALIVE, "several things"),
            (
                &[(ALIVE, json!({"tcpSocket": {"port": 22}, "periodSeconds": -1}))],
                "spec.livenessProbe.periodSeconds",
                "negative",
            ),
            (
                &[
                    (READY, json!({"tcpSocket": {"port": 22}})),
                    ("spec.networks", json!([])),
                    ("spec.domain.devices.interfaces", json!([])),
                ],
                "spec.readinessProbe.tcpSocket",
                "without the pod network",
            ),
        ]);
    }
}
