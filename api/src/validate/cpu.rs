//! vCPUs: model, features, topology, and the CPU time asked of the host.
//!
//! What vCPUs with host CPUs of their own need is in `dedicated_cpu`.

use super::report::{Report, invalid, unsupported};
use super::subject::{Subject, text};
use crate::suggest::one_of;

const POLICIES: &[&str] = &["force", "require", "optional", "disable", "forbid"];

/// Judges the vCPUs of a guest.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    model_and_features(subject, report);
    sockets(subject, report);
    time(subject, report);
}

fn model_and_features(subject: &Subject<'_>, report: &mut Report) {
    let Some(cpu) = &subject.spec.domain.cpu else { return };
    let model = text(&cpu.model);
    if !model.is_empty() && !is_name(model) {
        report.push(
            invalid(
                subject.path("domain.cpu.model"),
                format!("`{}` is not the name of a CPU model", model.escape_debug()),
            )
            .instead("write `host-model`, `host-passthrough` or a name from `qemu-system-x86_64 -cpu help`"),
        );
    }
    let list = subject.path("domain.cpu.features");
    for (index, feature) in cpu.features.iter().enumerate() {
        if !is_name(&feature.name) {
            report.push(
                invalid(
                    list.index(index).child("name"),
                    format!("`{}` is not the name of a CPU feature", feature.name.escape_debug()),
                )
                .instead("write a name as QEMU spells it, such as `vmx`"),
            );
        }
        let policy = text(&feature.policy);
        if !policy.is_empty() && !POLICIES.contains(&policy) {
            report.push(
                unsupported(list.index(index).child("policy"), format!("there is no policy `{policy}`"))
                    .instead(one_of(policy, POLICIES)),
            );
        }
    }
}

/// QEMU's names of models and features: without a character that could mean something on its command line.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|each| each.is_ascii_alphanumeric() || "-_.".contains(each))
}

fn sockets(subject: &Subject<'_>, report: &mut Report) {
    let Some(cpu) = &subject.spec.domain.cpu else { return };
    let (sockets, most) = (cpu.sockets.unwrap_or(0), cpu.max_sockets.unwrap_or(0));
    if most != 0 && sockets > most {
        report.push(
            invalid(
                subject.path("domain.cpu.sockets"),
                format!("{sockets} sockets are more than `maxSockets`, {most}"),
            )
            .instead(format!("write at most {most}, or raise `maxSockets`")),
        );
    }
}

fn time(subject: &Subject<'_>, report: &mut Report) {
    for (list, given) in [("requests", subject.request("cpu")), ("limits", subject.limit("cpu"))] {
        if let Some(time) = given
            && time.is_negative()
        {
            report.push(
                invalid(subject.path("domain.resources").child(list).child("cpu"), format!("`{time}` is negative"))
                    .instead("write an amount such as `500m` or `2`"),
            );
        }
    }
    if let (Some(request), Some(limit)) = (subject.request("cpu"), subject.limit("cpu"))
        && limit.is_positive()
        && request > limit
    {
        report.push(
            invalid(
                subject.path("domain.resources.requests.cpu"),
                format!("the request `{request}` is greater than the limit `{limit}`"),
            )
            .instead("write a request that is at most the limit"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    #[test]
    fn models_features_and_sockets() {
        accepted(&[
            &[("spec.domain.cpu.model", json!("Haswell-noTSX"))],
            &[("spec.domain.cpu.features", json!([{"name": "vmx"}, {"name": "sse4.2", "policy": "disable"}]))],
            &[("spec.domain.cpu", json!({"sockets": 2, "maxSockets": 4}))],
        ]);
        refused(&[
            (&[("spec.domain.cpu.model", json!("none such"))], "spec.domain.cpu.model", "CPU model"),
            (&[("spec.domain.cpu.model", json!("host,kvm=off"))], "spec.domain.cpu.model", "CPU model"),
            (&[("spec.domain.cpu.features", json!([{"name": ""}]))], "spec.domain.cpu.features[0].name", "CPU feature"),
            (
                &[("spec.domain.cpu.features", json!([{"name": "vmx", "policy": "requir"}]))],
                "spec.domain.cpu.features[0].policy",
                "did you mean `require`?",
            ),
            (&[("spec.domain.cpu", json!({"sockets": 4, "maxSockets": 2}))], "spec.domain.cpu.sockets", "at most 2"),
        ]);
    }

    #[test]
    fn cpu_time_is_positive_and_below_its_limit() {
        refused(&[
            (
                &[("spec.domain.resources", json!({"limits": {"cpu": "-1"}}))],
                "spec.domain.resources.limits.cpu",
                "negative",
            ),
            (
                &[("spec.domain.resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}))],
                "spec.domain.resources.requests.cpu",
                "greater than the limit",
            ),
        ]);
    }
}
