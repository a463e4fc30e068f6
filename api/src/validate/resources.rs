//! Resources that a machine asks for beside CPU time and memory: other rules judge those two.

use super::names::label_key_problem;
use super::report::{Report, invalid, unsupported};
use super::subject::Subject;
use crate::metadata::OWN_DEVICES;

/// Judges the names and amounts of other resources.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(resources) = &subject.spec.domain.resources else { return };
    for (list, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        let list = subject.path("domain.resources").child(list);
        for (name, amount) in amounts.iter().filter(|(name, _)| !["cpu", "memory"].contains(&name.as_str())) {
            if name.starts_with(OWN_DEVICES) {
                report.push(
                    unsupported(list.key(name), "machines are given this device by the plan, never by its name")
                        .instead("remove it"),
                );
            } else if let Some(problem) = label_key_problem(name) {
                report.push(
                    invalid(list.key(name), format!("the name {problem}"))
                        .instead("write a resource as nodes have it, such as `example.com/fpga`"),
                );
            } else if amount.is_negative() {
                report.push(
                    invalid(list.key(name), format!("`{amount}` is negative"))
                        .instead("write an amount such as `1` or `2Gi`"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    #[test]
    fn resources_of_others_are_taken_and_our_own_devices_are_not() {
        accepted(&[&[(
            "spec.domain.resources",
            json!({
                "requests": {"ephemeral-storage": "1Gi", "hugepages-2Mi": "64Mi", "example.com/fpga": "1"},
                "limits": {"example.com/fpga": "1"},
            }),
        )]]);
        let limits = |name: &str, amount: &str| [("spec.domain.resources.limits", json!({name: amount}))];
        let at = |name: &str| format!("spec.domain.resources.limits[{name}]");
        for (name, amount, part) in [
            ("devices.kubevirt.io/tun", "1", "never by its name"),
            ("bad key!", "1", "the name"),
            ("example.com/fpga", "-1", "negative"),
        ] {
            refused(&[(&limits(name, amount), &at(name), part)]);
        }
    }
}
