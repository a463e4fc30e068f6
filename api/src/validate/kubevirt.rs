//! The settings of a cluster: their permitted values.
//!
//! KubeVirt's object has some hundred fields. Those that mean something here are in `crate::v1`; what becomes of the others
//! is in `crate::fields`, so that an object written for KubeVirt gets an answer that names them.

use std::time::Duration;

use serde_json::Value;

use super::report::{Report, duplicate, invalid, unsupported};
use crate::cluster::permille;
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::fields::{self, Behind, Judgement, Setting};
use crate::suggest::{closest, listed, one_of};
use crate::v1::{CertConfig, KubeVirt, KubeVirtConfiguration, non_empty};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// The shortest life of a certificate: it has to reach every API server before it is used.
pub const SHORTEST_CERTIFICATE: Duration = Duration::from_secs(60);
/// The longest life of a certificate, a hundred years: X.509 names no time after the year 9999.
pub const LONGEST_CERTIFICATE: Duration = Duration::from_secs(876_000 * 3600);

/// Settings that mean less here than under KubeVirt, or are refused. `spec` is as it was written.
pub(super) fn judge(spec: &Value) -> Judgement {
    let at = FieldPath::from("spec");
    let mut found = fields::judge(&fields::SETTINGS, spec, &at, Setting::Cluster);
    let at = at.child("configuration.developerConfiguration.featureGates");
    let gates = spec["configuration"]["developerConfiguration"]["featureGates"].as_array();
    for (index, name) in gates.into_iter().flatten().enumerate() {
        found.warned.extend(name.as_str().and_then(|name| switched_on(name, at.index(index))));
    }
    found
}

/// The warning of a gate that is switched on, if there is one. KubeVirt takes every name, so that none is refused.
fn switched_on(name: &str, at: FieldPath) -> Option<Fault> {
    match fields::gate(name) {
        Some(Behind::Switch | Behind::Always) => None,
        Some(Behind::Nothing(why)) => Some(Fault::new(at, FaultCode::NotInThisVersion, why).instead("remove it")),
        None => {
            let fault = unsupported(at, format!("KubeVirt 1.9 has no feature gate `{name}`, and it switches nothing"));
            let known: Vec<&str> = fields::gates().map(|(name, _)| name).collect();
            Some(match closest(name, &known) {
                Some(name) => fault.instead(format!("write `{name}`, or remove it")),
                None => fault.instead("remove it"),
            })
        }
    }
}

/// Whether a field that our own types do not have is KubeVirt's: the table has what becomes of it.
pub(super) fn is_kubevirts(path: &FieldPath) -> bool {
    path.as_str().strip_prefix("spec.").is_some_and(|path| {
        // A field above a line (`infra` above `infra.replicas`) is KubeVirt's as well.
        let above = |line: String| line.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        !fields::lines_at(&fields::SETTINGS, path).is_empty()
            || fields::SETTINGS.all().flat_map(fields::Line::paths).any(above)
    })
}

/// Judges the settings.
pub(super) fn check(object: &KubeVirt, report: &mut Report) {
    let spec = FieldPath::from("spec");
    one_of_known(&object.spec.image_pull_policy, &PULL_POLICIES, spec.child("imagePullPolicy"), report);
    let rotate = object.spec.certificate_rotate_strategy.as_ref().and_then(|rotate| rotate.self_signed.as_ref());
    for (name, config) in [
        ("ca", rotate.and_then(|rotate| rotate.ca.as_ref())),
        ("server", rotate.and_then(|rotate| rotate.server.as_ref())),
    ] {
        if let Some(config) = config {
            certificate(config, &spec.child("certificateRotateStrategy.selfSigned").child(name), report);
        }
    }
    if let Some(configuration) = &object.spec.configuration {
        configured(configuration, &spec.child("configuration"), report);
    }
}

fn configured(configuration: &KubeVirtConfiguration, at: &FieldPath, report: &mut Report) {
    one_of_known(&configuration.image_pull_policy, &PULL_POLICIES, at.child("imagePullPolicy"), report);
    let policies = ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"];
    one_of_known(&configuration.eviction_strategy, &policies, at.child("evictionStrategy"), report);
    one_of_known(&configuration.vm_rollout_strategy, &["LiveUpdate", "Stage"], at.child("vmRolloutStrategy"), report);
    if let Some(instancetype) = &configuration.instancetype {
        let at = at.child("instancetype.referencePolicy");
        one_of_known(&instancetype.reference_policy, &["reference", "expand", "expandAll"], at, report);
    }
    if let Some(ratio) = non_empty(&configuration.additional_guest_memory_overhead_ratio)
        && permille(ratio).is_none()
    {
        let at = at.child("additionalGuestMemoryOverheadRatio");
        let fault = invalid(at, format!("`{ratio}` is no number from 1 to 100"));
        report
            .push(fault.instead("write one such as `1.5`: what a machine needs beside its guest is multiplied by it"));
    }
    if let Some(network) = &configuration.network {
        let at = at.child("network.defaultNetworkInterface");
        one_of_known(&network.default_network_interface, &["bridge", "masquerade"], at, report);
    }
    if let Some(arch) = &configuration.architecture_configuration {
        let at = at.child("architectureConfiguration");
        one_of_known(&arch.default_architecture, &["amd64"], at.child("defaultArchitecture"), report);
        let machine = arch.amd64.as_ref().and_then(|arch| non_empty(&arch.machine_type));
        if let Some(machine) = machine.filter(|name| !name.starts_with("q35") && !name.starts_with("pc-q35")) {
            let fault =
                unsupported(at.child("amd64.machineType"), format!("there is no machine type `{machine}` on amd64"));
            report.push(fault.instead("write `q35` or `pc-q35`, alone or with a version"));
        }
    }
    let developer = configuration.developer_configuration.as_ref();
    if let Some(developer) = developer {
        let at = at.child("developerConfiguration");
        positive(developer.cpu_allocation_ratio, at.child("cpuAllocationRatio"), report);
        positive(developer.memory_overcommit, at.child("memoryOvercommit"), report);
        for (index, name) in developer.disabled_feature_gates.iter().enumerate() {
            if developer.feature_gates.contains(name) {
                let at = at.child("disabledFeatureGates").index(index);
                report.push(
                    duplicate(at, format!("the gate `{name}` is switched on as well"))
                        .instead("name it in one of the lists"),
                );
            }
        }
    }
}

fn one_of_known(given: &Option<String>, known: &[&str], at: FieldPath, report: &mut Report) {
    if let Some(given) = non_empty(given)
        && !known.contains(&given)
    {
        let advice = if known.len() == 1 { format!("write {}", listed(known)) } else { one_of(given, known) };
        report.push(unsupported(at, format!("there is no `{given}`")).instead(advice));
    }
}

fn positive(given: Option<u32>, at: FieldPath, report: &mut Report) {
    if given == Some(0) {
        report.push(invalid(at, "0 would leave nothing").instead("write a number greater than 0"));
    }
}

fn certificate(config: &CertConfig, at: &FieldPath, report: &mut Report) {
    let mut read = |name: &str, text: &Option<String>| {
        let text = non_empty(text)?;
        let parsed = duration(text);
        if parsed.is_none() {
            let fault = invalid(at.child(name), format!("`{text}` is no duration"));
            report.push(fault.instead("write hours, minutes and seconds, such as `48h` or `1h30m`"));
        }
        parsed
    };
    let (whole, before) = (read("duration", &config.duration), read("renewBefore", &config.renew_before));
    if whole.is_some_and(|whole| whole < SHORTEST_CERTIFICATE) {
        report.push(invalid(at.child("duration"), "a certificate has to live for a minute").instead("write more"));
    }
    if whole.is_some_and(|whole| whole > LONGEST_CERTIFICATE) {
        let fault = invalid(at.child("duration"), "a certificate lives for a hundred years at most");
        report.push(fault.instead("write `876000h` or less"));
    }
    if let (Some(whole), Some(before)) = (whole, before)
        && before >= whole
    {
        let fault = invalid(at.child("renewBefore"), "the certificate would be renewed before it is made");
        report.push(fault.instead("write less than `duration`"));
    }
}

/// A duration in Go's notation, if it is one and not negative.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let parsed: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(parsed).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::ClusterConfig;
    use crate::validate::admit;

    fn faults(spec: &serde_json::Value) -> Vec<String> {
        let object =
            json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "k"}, "spec": spec});
        admit(&object, &ClusterConfig::offline()).faults.iter().map(ToString::to_string).collect()
    }

    fn warnings(spec: &serde_json::Value) -> String {
        let object =
            json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "k"}, "spec": spec});
        let admission = admit(&object, &ClusterConfig::offline());
        assert_eq!(admission.faults, []);
        assert!(admission.object.is_some());
        admission.warnings.iter().map(|fault| format!("{fault}\n")).collect()
    }

    #[test]
    fn the_object_that_kubevirts_own_installation_ships_is_admitted() {
        // `kubevirt-cr.yaml` of 1.9 (its fields, with the variables of its template filled in).
        let spec = json!({
            "certificateRotateStrategy": {},
            "configuration": {"developerConfiguration": {"featureGates": []}, "imagePullPolicy": "IfNotPresent"},
            "customizeComponents": {}, "imagePullPolicy": "IfNotPresent", "workloadUpdateStrategy": {},
        });
        assert_eq!(warnings(&spec), "");
    }

    #[test]
    fn what_only_tunes_what_is_not_here_is_a_warning() {
        let spec = json!({
            "imageTag": "v1.9", "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
            "infra": {"replicas": 2},
            "configuration": {
                "migrations": {"parallelMigrationsPerCluster": 5}, "evictionStrategy": "LiveMigrate",
                "permittedHostDevices": {"usb": [{"resourceName": "x/y"}]},
                "developerConfiguration": {"logVerbosity": {"virtOperator": 6, "virtLauncher": 6}, "clusterProfiler": false},
                "virtualMachineOptions": {"disableSerialConsoleLog": {}},
            },
        });
        let found = warnings(&spec);
        for path in [
            "spec.imageTag: ",
            "spec.workloadUpdateStrategy: ",
            "spec.infra: ",
            "spec.configuration.migrations: ",
            "spec.configuration.evictionStrategy: ",
            "spec.configuration.permittedHostDevices: ",
            "spec.configuration.developerConfiguration.logVerbosity.virtOperator: ",
        ] {
            assert!(found.contains(path), "{path} is not in\n{found}");
        }
        assert!(!found.contains("clusterProfiler") && !found.contains("virtLauncher"), "{found}");
    }

    #[test]
    fn every_gate_that_kubevirt_has_is_taken_and_an_empty_one_warned_of() {
        let spec = |gates: &[&str]| json!({"configuration": {"developerConfiguration": {"featureGates": gates}}});
        let all: Vec<&str> = crate::fields::gates().map(|(name, _)| name).collect();
        let found = warnings(&spec(&all));
        assert!(found.contains("guests are not moved") && found.contains("no passt"), "{found}");
        assert_eq!(warnings(&spec(&["HostDisk", "ImageVolume", "NonRoot"])), "");
        assert!(warnings(&spec(&["HostDsk"])).contains("featureGates[0]: KubeVirt 1.9 has no feature gate `HostDsk`"));
        assert!(warnings(&spec(&["HostDsk"])).contains("write `HostDisk`"));
        assert!(warnings(&spec(&["DataVolumes"])).ends_with("; remove it\n"));
    }

    #[test]
    fn every_setting_is_followed_or_warned_of() {
        let spec = json!({
            "imagePullPolicy": "Sometimes", "workloads": {"nodePlacement": {"nodeSelector": {"a": "b"}}},
            "configuration": {
                "evictionStrategy": "Migrate", "cpuModle": "Haswell", "imagePullPolicy": "Often",
                "developerConfiguration": {"cpuAllocationRatio": 0},
                "architectureConfiguration": {"amd64": {"machineType": "i440fx"}},
                "seccompConfiguration": {"virtualMachineInstanceProfile": {"customProfile":
                    {"runtimeDefaultProfile": true}}},
            },
            "certificateRotateStrategy": {"selfSigned": {"ca": {"duration": "1h", "renewBefore": "2h"},
                "server": {"duration": "soon"}}},
        });
        let found = faults(&spec).join("\n");
        for path in [
            "spec.workloads",
            "spec.imagePullPolicy",
            "spec.configuration.evictionStrategy",
            "spec.configuration.cpuModle",
            "spec.configuration.imagePullPolicy",
            "spec.configuration.seccompConfiguration",
            "developerConfiguration.cpuAllocationRatio",
            "architectureConfiguration.amd64.machineType",
            "selfSigned.ca.renewBefore",
            "selfSigned.server.duration",
        ] {
            assert!(found.contains(path), "{path} is not in\n{found}");
        }
    }

    #[test]
    fn a_certificate_lives_between_a_minute_and_a_hundred_years() {
        let non_empty =
            |life: &str| faults(&json!({"certificateRotateStrategy": {"selfSigned": {"ca": {"duration": life}}}}));
        assert_eq!((non_empty("876000h"), non_empty("1m")), (vec![], vec![]));
        for life in ["876001h", "1000000000h", "59s"] {
            let found = non_empty(life).join("\n");
            assert!(found.starts_with("spec.certificateRotateStrategy.selfSigned.ca.duration: "), "{life}: {found}");
        }
    }

    #[test]
    fn durations_are_gos() {
        let seconds = |text| super::duration(text).map(|duration| duration.as_secs());
        assert_eq!([seconds("168h"), seconds("1h30m"), seconds("24h0m0s")], [Some(604_800), Some(5400), Some(86_400)]);
        assert_eq!([seconds("-1h"), seconds(""), seconds("1 fortnight")], [None, None, None]);
    }
}
