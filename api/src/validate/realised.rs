//! What this version of Garboard does not realise yet, refused by path.
//!
//! The table is the whole truth: when a field is realised, its line goes. Rules judge whether a value makes sense;
//! here it makes sense, and is refused so that nothing is accepted and then ignored. Where a rule has refused a field
//! already, nothing is added. Looks at the manifest as it was
//! written, since no default adds any of these.

use serde_json::Value;

use super::report::Report;
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::quantity::Quantity;

/// When a line of the table speaks.
#[derive(Clone, Copy)]
enum When {
    /// The field is there, whatever it says. An empty list is not there.
    Written,
    /// The field says `true`.
    True,
    /// The field is an object that does not say `enabled: false`.
    Enabled,
    /// The field is there and says something else.
    OtherThan(&'static str),
}

/// One thing that is not realised.
struct Line {
    /// The path below the specification of an instance; `[]` stands for every element of a list.
    path: &'static str,
    when: When,
    /// What to do about it.
    instead: &'static str,
}

const fn line(path: &'static str, when: When, instead: &'static str) -> Line {
    Line { path, when, instead }
}

const REMOVE: &str = "remove it";

/// What an instance, or the template of one, cannot have yet.
const INSTANCE: &[Line] = &[
    line("architecture", When::OtherThan("amd64"), "write `amd64`, or leave it out"),
    line("accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent", When::Written, "write `noCloud: {}`"),
    line("accessCredentials[].userPassword.propagationMethod.qemuGuestAgent", When::Written, "set it by cloud-init"),
    line("domain.cpu.dedicatedCpuPlacement", When::True, REMOVE),
    line("domain.cpu.isolateEmulatorThread", When::True, REMOVE),
    line("domain.cpu.numa", When::Written, REMOVE),
    line("domain.cpu.realtime", When::Written, REMOVE),
    line("domain.devices.autoattachVSOCK", When::True, REMOVE),
    line("domain.devices.clientPassthrough", When::Written, REMOVE),
    line("domain.devices.disks[].changedBlockTracking", When::True, REMOVE),
    line("domain.devices.disks[].lun.reservation", When::True, REMOVE),
    line("domain.devices.downwardMetrics", When::Written, REMOVE),
    line("domain.devices.filesystems", When::Written, "use the volume as a disk"),
    line("domain.devices.gpus", When::Written, REMOVE),
    line("domain.devices.hostDevices", When::Written, REMOVE),
    line("domain.devices.interfaces[].binding", When::Written, "write `masquerade: {}` or `passtBinding: {}`"),
    line("domain.devices.interfaces[].portRanges", When::Written, "list the ports under `ports`"),
    line("domain.devices.interfaces[].sriov", When::Written, "write `masquerade: {}` or `passtBinding: {}`"),
    line("domain.devices.tpm", When::Enabled, REMOVE),
    line("domain.firmware.acpi", When::Written, REMOVE),
    line("domain.launchSecurity", When::Written, REMOVE),
    line("domain.memory.reservedOverhead", When::Written, REMOVE),
    line("networks[].multus", When::Written, "write `pod: {}`"),
    line("networks[].resourceClaim", When::Written, "write `pod: {}`"),
    line("resourceClaims", When::Written, REMOVE),
    line("utilityVolumes", When::Written, REMOVE),
    line("volumes[].containerPath", When::Written, "use a `persistentVolumeClaim`"),
    line("volumes[].downwardMetrics", When::Written, REMOVE),
    line("volumes[].memoryDump", When::Written, REMOVE),
];

/// What a machine cannot have yet, beside its template.
const MACHINE: &[Line] = &[
    line("instancetype", When::Written, "write what it says into the template"),
    line("preference", When::Written, "write what it says into the template"),
];

/// What the metadata of an instance cannot have yet.
const METADATA: &[Line] =
    &[line("annotations.[kubevirt.io/ignitiondata]", When::Written, "hand the data over by cloud-init")];

/// Refuses what an instance has that is not realised yet. `spec` is its specification as it was written.
pub(crate) fn instance(spec: &Value, at: &FieldPath, report: &mut Report) {
    judge(INSTANCE, spec, at, report);
    growing_memory(&spec["domain"]["memory"], &at.child("domain.memory"), report);
}

/// Refuses what a machine has beside its template that is not realised yet.
pub(crate) fn machine(spec: &Value, at: &FieldPath, report: &mut Report) {
    judge(MACHINE, spec, at, report);
    if spec["runStrategy"] == "WaitAsReceiver" {
        report.push_unless_known(refusal(at.child("runStrategy"), "write `Always`"));
    }
}

/// Refuses what the metadata of an instance has that is not realised yet.
pub(crate) fn metadata(metadata: &Value, at: &FieldPath, report: &mut Report) {
    judge(METADATA, metadata, at, report);
}

fn judge(table: &[Line], value: &Value, at: &FieldPath, report: &mut Report) {
    for line in table {
        let steps: Vec<&str> = line.path.split('.').collect();
        find(value, &joined(&steps), at, line, report);
    }
}

/// A key in brackets may hold dots: its parts are joined again.
fn joined(steps: &[&str]) -> Vec<String> {
    let mut whole: Vec<String> = Vec::new();
    for step in steps {
        match whole.last_mut() {
            Some(open) if open.starts_with('[') && !open.ends_with(']') => {
                open.push('.');
                open.push_str(step);
            }
            _ => whole.push((*step).to_owned()),
        }
    }
    whole
}

fn find(value: &Value, steps: &[String], at: &FieldPath, line: &Line, report: &mut Report) {
    let Some((step, rest)) = steps.split_first() else {
        if speaks(line.when, value) {
            report.push_unless_known(refusal(at.clone(), line.instead));
        }
        return;
    };
    if let Some(list) = step.strip_suffix("[]") {
        for (index, element) in value[list].as_array().into_iter().flatten().enumerate() {
            find(element, rest, &at.child(list).index(index), line, report);
        }
    } else if let Some(key) = step.strip_prefix('[').and_then(|key| key.strip_suffix(']')) {
        find(&value[key], rest, &at.key(key), line, report);
    } else {
        find(&value[step.as_str()], rest, &at.child(step), line, report);
    }
}

fn speaks(when: When, value: &Value) -> bool {
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        return false;
    }
    match when {
        When::Written => true,
        When::True => value == &Value::Bool(true),
        When::Enabled => value["enabled"] != Value::Bool(false),
        When::OtherThan(word) => value.as_str().is_some_and(|text| !text.is_empty() && text != word),
    }
}

/// The most memory a guest may grow to is written down for later, and so only KubeVirt's own choice can be kept.
fn growing_memory(memory: &Value, at: &FieldPath, report: &mut Report) {
    /// How far KubeVirt lets a guest grow by default.
    const FACTOR: i64 = 4;
    let read = |field: &str| serde_json::from_value::<Quantity>(memory[field].clone()).ok().map(|size| size.value());
    if let Some(most) = read("maxGuest")
        && read("guest").and_then(|guest| guest.checked_mul(FACTOR)) != Some(most)
    {
        report.push_unless_known(refusal(
            at.child("maxGuest"),
            "remove it, and write the memory the guest needs as `guest`",
        ));
    }
}

fn refusal(at: FieldPath, instead: &str) -> Fault {
    Fault::new(at, FaultCode::NotRealised, "this is valid, but this version of Garboard does not realise it yet")
        .instead(instead)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(spec: &Value) -> Vec<String> {
        let mut report = Report::default();
        instance(spec, &FieldPath::from("spec"), &mut report);
        report.into_faults().into_iter().map(|fault| fault.path.to_string()).collect()
    }

    #[test]
    fn what_is_not_realised_is_refused_by_its_path() {
        let spec = json!({
            "architecture": "arm64",
            "domain": {
                "cpu": {"dedicatedCpuPlacement": true},
                "devices": {
                    "tpm": {},
                    "interfaces": [{"name": "a", "masquerade": {}}, {"name": "b", "sriov": {}}],
                    "filesystems": [{"name": "x", "virtiofs": {}}],
                },
            },
            "volumes": [{"name": "x", "memoryDump": {"claimName": "c"}}],
        });
        assert_eq!(
            paths(&spec),
            [
                "spec.architecture",
                "spec.domain.cpu.dedicatedCpuPlacement",
                "spec.domain.devices.filesystems",
                "spec.domain.devices.interfaces[1].sriov",
                "spec.domain.devices.tpm",
                "spec.volumes[0].memoryDump",
            ]
        );
    }

    #[test]
    fn what_is_switched_off_is_not_refused() {
        let spec = json!({
            "architecture": "",
            "domain": {
                "cpu": {"dedicatedCpuPlacement": false, "isolateEmulatorThread": false},
                "devices": {"tpm": {"enabled": false}, "autoattachVSOCK": false, "gpus": [], "filesystems": []},
            },
            "resourceClaims": [],
        });
        assert_eq!(paths(&spec), Vec::<String>::new());
    }

    #[test]
    fn only_kubevirt_s_own_choice_of_growing_memory_can_be_kept() {
        let spec = |most: &str| json!({"domain": {"memory": {"guest": "1Gi", "maxGuest": most}}});
        assert_eq!(paths(&spec("4Gi")), Vec::<String>::new());
        assert_eq!(paths(&spec("8Gi")), ["spec.domain.memory.maxGuest"]);
    }

    #[test]
    fn every_line_can_be_reached_and_says_what_to_do() {
        for line in INSTANCE.iter().chain(MACHINE).chain(METADATA) {
            let written = match line.when {
                When::Written => json!({"some": "thing"}),
                When::True => json!(true),
                When::Enabled => json!({}),
                When::OtherThan(_) => json!("other"),
            };
            let mut value = written;
            for step in joined(&line.path.split('.').collect::<Vec<_>>()).iter().rev() {
                let key = step.trim_start_matches('[').trim_end_matches(']').trim_end_matches('[');
                value = if step.ends_with("[]") { json!({key: [value]}) } else { json!({key: value}) };
            }
            let mut report = Report::default();
            judge(std::slice::from_ref(line), &value, &FieldPath::from("spec"), &mut report);
            let faults = report.into_faults();
            assert_eq!(faults.len(), 1, "{}", line.path);
            assert!(faults[0].instead.is_some());
            assert_eq!(faults[0].code, FaultCode::NotRealised);
        }
    }

    #[test]
    fn an_annotation_is_found_although_its_key_has_dots() {
        let mut report = Report::default();
        let written = json!({"annotations": {"kubevirt.io/ignitiondata": "{}"}});
        metadata(&written, &FieldPath::from("metadata"), &mut report);
        assert_eq!(report.into_faults()[0].path.as_str(), "metadata.annotations[kubevirt.io/ignitiondata]");
    }

    #[test]
    fn a_machine_is_expanded_by_whoever_writes_it() {
        let mut report = Report::default();
        let spec = json!({"instancetype": {"name": "u1.small"}, "runStrategy": "WaitAsReceiver"});
        machine(&spec, &FieldPath::from("spec"), &mut report);
        let paths: Vec<String> = report.into_faults().into_iter().map(|fault| fault.path.to_string()).collect();
        assert_eq!(paths, ["spec.instancetype", "spec.runStrategy"]);
    }
}
