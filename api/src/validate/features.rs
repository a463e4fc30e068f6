//! Hypervisor features: what excludes what, and what needs what.

use super::report::{Report, invalid, required};
use super::subject::{Subject, text};
use crate::v1::{FeatureHyperv, FeatureState};

/// The CPU feature that nested paging of Hyper-V needs.
const VMX: &str = "vmx";
/// The longest vendor name, in bytes: it fills three registers of CPUID.
const VENDOR_MAX: usize = 12;

/// Judges the features of a guest. Defaults have added what a feature needs, unless it was switched off on purpose.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(features) = &subject.spec.domain.features else { return };
    let Some(hyperv) = &features.hyperv else { return };
    let at = subject.path("domain.features.hyperv");
    if features.hyperv_passthrough.as_ref().is_some_and(|passthrough| passthrough.enabled == Some(true)) {
        report.push(
            invalid(at.clone(), "single features are written, and all the host has are passed through")
                .instead("keep one of `hyperv` and `hypervPassthrough`"),
        );
    }
    if let Some(vendor) = &hyperv.vendorid {
        let name = text(&vendor.vendorid);
        if name.len() > VENDOR_MAX || !name.chars().all(|each| each.is_ascii_graphic()) {
            report.push(
                invalid(at.child("vendorid").child("vendorid"), format!("`{}` does not fit", name.escape_debug()))
                    .instead(format!("write at most {VENDOR_MAX} ASCII characters without blanks")),
            );
        }
    }
}

/// Judges what features need from each other, as an instance must fulfil it.
pub(crate) fn dependencies(subject: &Subject<'_>, report: &mut Report) {
    let Some(hyperv) = subject.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref()) else {
        return;
    };
    let at = subject.path("domain.features.hyperv");
    for (feature, on, needed, state) in needs(hyperv) {
        if on && state.is_none_or(|state| state.enabled != Some(true)) {
            report.push(
                invalid(at.child(feature), format!("`{feature}` needs `{needed}`, which is switched off"))
                    .instead(format!("write `{needed}: {{}}` too, or remove `{feature}`")),
            );
        }
    }
    if hyperv.evmcs.as_ref().is_some_and(|evmcs| evmcs.enabled != Some(false)) {
        nested_paging(subject, report);
    }
}

/// Each feature that needs another: its name, whether it is on, and the one it needs.
fn needs(hyperv: &FeatureHyperv) -> [(&'static str, bool, &'static str, Option<&FeatureState>); 5] {
    let on = |state: &Option<FeatureState>| state.as_ref().is_some_and(|state| state.enabled == Some(true));
    let tlb_flush = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled == Some(true));
    let timer = hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled == Some(true));
    [
        ("evmcs", on(&hyperv.evmcs), "vapic", hyperv.vapic.as_ref()),
        ("ipi", on(&hyperv.ipi), "vpindex", hyperv.vpindex.as_ref()),
        ("tlbflush", tlb_flush, "vpindex", hyperv.vpindex.as_ref()),
        ("synictimer", timer, "synic", hyperv.synic.as_ref()),
        ("synic", on(&hyperv.synic), "vpindex", hyperv.vpindex.as_ref()),
    ]
}

fn nested_paging(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("domain.cpu.features");
    let features = subject.spec.domain.cpu.as_ref().map(|cpu| cpu.features.as_slice()).unwrap_or_default();
    if features.is_empty() {
        report.push(
            required(list, format!("`evmcs` needs the CPU feature `{VMX}`"))
                .instead(format!("write `{{name: {VMX}, policy: require}}`")),
        );
        return;
    }
    for (index, feature) in features.iter().enumerate() {
        if feature.name == VMX && text(&feature.policy) != "require" {
            report.push(
                invalid(list.index(index).child("policy"), format!("`evmcs` needs the CPU feature `{VMX}`"))
                    .instead("write `require`"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    const FEATURES: &str = "spec.domain.features";

    #[test]
    fn features_and_what_they_need() {
        accepted(&[
            &[(FEATURES, json!({"hyperv": {"spinlocks": {"spinlocks": 1000}, "relaxed": {}}}))],
            &[(FEATURES, json!({"hyperv": {"ipi": {"enabled": true}, "vpindex": {"enabled": true}}}))],
            &[(FEATURES, json!({"hypervPassthrough": {"enabled": true}}))],
        ]);
        refused(&[
            (
                &[(FEATURES, json!({"hypervPassthrough": {"enabled": true}, "hyperv": {"relaxed": {}}}))],
                "spec.domain.features.hyperv",
                "keep one",
            ),
            (
                &[(FEATURES, json!({"hyperv": {"ipi": {"enabled": true}, "vpindex": {"enabled": false}}}))],
                "spec.domain.features.hyperv.ipi",
                "`vpindex`",
            ),
            (
                &[(FEATURES, json!({"hyperv": {"evmcs": {"enabled": true}, "vapic": {"enabled": true}}}))],
                "spec.domain.cpu.features",
                "`vmx`",
            ),
            (
                &[
                    (FEATURES, json!({"hyperv": {"evmcs": {"enabled": true}, "vapic": {"enabled": true}}})),
                    ("spec.domain.cpu.features", json!([{"name": "vmx", "policy": "disable"}])),
                ],
                "spec.domain.cpu.features[0].policy",
                "require",
            ),
            (
                &[(FEATURES, json!({"hyperv": {"vendorid": {"vendorid": "much too long a name"}}}))],
                "spec.domain.features.hyperv.vendorid.vendorid",
                "at most 12",
            ),
        ]);
    }
}
