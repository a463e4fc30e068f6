//! The settings of a cluster: what they may say.
//!
//! KubeVirt's object has some hundred fields. Those that mean something here are in `crate::v1`; the names of the others
//! are here, so that an object written for KubeVirt gets an answer that knows them. Empty ones are taken for absent.

use std::time::Duration;

use serde_json::Value;

use super::report::{Report, duplicate, invalid, unsupported};
use crate::cluster::{Gate, permille};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::suggest::{listed, one_of};
use crate::v1::{CertConfig, KubeVirt, KubeVirtConfiguration, said};

/// Fields of KubeVirt's object that nothing here follows, by the object they are in.
const UNREALISED: &[(&str, &[&str])] = &[
    (
        "spec",
        &[
            "customizeComponents",
            "imagePullSecrets",
            "imageRegistry",
            "imageTag",
            "infra",
            "monitorAccount",
            "monitorNamespace",
            "productComponent",
            "productName",
            "productVersion",
            "serviceMonitorNamespace",
            "synchronizationPort",
            "uninstallStrategy",
            "workloadUpdateStrategy",
            "workloads",
        ],
    ),
    (
        "spec.configuration",
        &[
            "apiConfiguration",
            "autoCPULimitNamespaceLabelSelector",
            "changedBlockTrackingLabelSelectors",
            "commonInstancetypesDeployment",
            "controllerConfiguration",
            "defaultRuntimeClass",
            "emulatedMachines",
            "handlerConfiguration",
            "hypervisors",
            "imagePullPolicy",
            "instancetype",
            "ksmConfiguration",
            "machineType",
            "mediatedDevicesConfiguration",
            "memBalloonStatsPeriod",
            "migrations",
            "minCPUModel",
            "obsoleteCPUModels",
            "ovmfPath",
            "permittedHostDevices",
            "roleAggregationStrategy",
            "seccompConfiguration",
            "selinuxLauncherType",
            "smbios",
            "supportContainerResources",
            "supportedGuestAgentVersions",
            "tlsConfiguration",
            "virtTemplateDeployment",
            "virtualMachineInstancesPerNode",
            "virtualMachineOptions",
            "webhookConfiguration",
        ],
    ),
    (
        "spec.configuration.developerConfiguration",
        &[
            "clusterProfiler",
            "diskVerification",
            "logVerbosity",
            "minimumClusterTSCFrequency",
            "minimumReservePVCBytes",
            "nodeSelectors",
            "pvcTolerateLessSpaceUpToPercent",
        ],
    ),
    ("spec.configuration.architectureConfiguration", &["arm64", "ppc64le", "s390x"]),
    ("spec.configuration.architectureConfiguration.amd64", &["emulatedMachines", "ovmfPath"]),
    ("spec.configuration.network", &["binding", "permitSlirpInterface"]),
];

/// The shortest life of a certificate: it has to reach every API server before it is used.
const SHORTEST_CERTIFICATE: Duration = Duration::from_secs(60);

/// Takes KubeVirt's other fields out of an object as it was written, and refuses those that say something.
pub(super) fn take_unrealised(object: &mut Value, report: &mut Report) {
    for (parent, fields) in UNREALISED {
        let pointer = format!("/{}", parent.replace('.', "/"));
        let Some(holder) = object.pointer_mut(&pointer).and_then(Value::as_object_mut) else { continue };
        for field in *fields {
            let Some(value) = holder.shift_remove(*field) else { continue };
            if !is_empty(&value) {
                let fault = Fault::new(
                    FieldPath::from(*parent).child(field),
                    FaultCode::NotRealised,
                    "KubeVirt knows this setting, and this version of Garboard does not follow it",
                );
                report.push(fault.instead("remove it"));
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// Judges the settings.
pub(super) fn check(object: &KubeVirt, report: &mut Report) {
    let spec = FieldPath::from("spec");
    word(&object.spec.image_pull_policy, &["Always", "IfNotPresent", "Never"], spec.child("imagePullPolicy"), report);
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
    let policies = ["None", "LiveMigrate", "LiveMigrateIfPossible", "External"];
    word(&configuration.eviction_strategy, &policies, at.child("evictionStrategy"), report);
    word(&configuration.vm_rollout_strategy, &["LiveUpdate", "Stage"], at.child("vmRolloutStrategy"), report);
    if let Some(ratio) = said(&configuration.additional_guest_memory_overhead_ratio)
        && permille(ratio).is_none()
    {
        let at = at.child("additionalGuestMemoryOverheadRatio");
        let fault = invalid(at, format!("`{ratio}` is no number from 1 to 100"));
        report
            .push(fault.instead("write one such as `1.5`: what a machine needs beside its guest is multiplied by it"));
    }
    if let Some(network) = &configuration.network {
        let at = at.child("network.defaultNetworkInterface");
        word(&network.default_network_interface, &["bridge", "masquerade"], at, report);
    }
    if let Some(arch) = &configuration.architecture_configuration {
        let at = at.child("architectureConfiguration");
        word(&arch.default_architecture, &["amd64"], at.child("defaultArchitecture"), report);
        let machine = arch.amd64.as_ref().and_then(|arch| said(&arch.machine_type));
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
        gates(&developer.feature_gates, &at.child("featureGates"), report);
        gates(&developer.disabled_feature_gates, &at.child("disabledFeatureGates"), report);
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

fn gates(names: &[String], at: &FieldPath, report: &mut Report) {
    for (index, name) in names.iter().enumerate() {
        if !Gate::is_known(name) {
            let fault = unsupported(at.index(index), format!("there is no feature gate `{name}`"));
            let known: Vec<&str> = Gate::known_names().collect();
            report.push(match crate::suggest::closest(name, &known) {
                Some(word) => fault.instead(format!("write `{word}`, or remove it")),
                None => fault.instead("remove it"),
            });
        }
    }
}

fn word(given: &Option<String>, known: &[&str], at: FieldPath, report: &mut Report) {
    if let Some(given) = said(given)
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
        let text = said(text)?;
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

    #[test]
    fn the_object_that_kubevirts_own_installation_ships_is_admitted() {
        let spec = json!({
            "certificateRotateStrategy": {}, "configuration": {"developerConfiguration": {"featureGates": []}},
            "customizeComponents": {}, "imagePullPolicy": "IfNotPresent", "workloadUpdateStrategy": {},
        });
        assert_eq!(faults(&spec), Vec::<String>::new());
    }

    #[test]
    fn every_setting_is_followed_or_refused() {
        let spec = json!({
            "imageTag": "v1.9", "imagePullPolicy": "Sometimes",
            "configuration": {
                "migrations": {"parallelMigrationsPerCluster": 5}, "evictionStrategy": "Migrate", "cpuModle": "Haswell",
                "developerConfiguration": {"featureGates": ["HostDsk"], "cpuAllocationRatio": 0},
                "architectureConfiguration": {"amd64": {"machineType": "i440fx"}},
            },
            "certificateRotateStrategy": {"selfSigned": {"ca": {"duration": "1h", "renewBefore": "2h"},
                "server": {"duration": "soon"}}},
        });
        let found = faults(&spec).join("\n");
        for path in [
            "spec.imageTag",
            "spec.imagePullPolicy",
            "spec.configuration.migrations",
            "spec.configuration.evictionStrategy",
            "spec.configuration.cpuModle",
            "developerConfiguration.featureGates[0]",
            "developerConfiguration.cpuAllocationRatio",
            "architectureConfiguration.amd64.machineType",
            "selfSigned.ca.renewBefore",
            "selfSigned.server.duration",
        ] {
            assert!(found.contains(path), "{path} is not in\n{found}");
        }
    }

    #[test]
    fn durations_are_gos() {
        let seconds = |text| super::duration(text).map(|duration| duration.as_secs());
        assert_eq!([seconds("168h"), seconds("1h30m"), seconds("24h0m0s")], [Some(604_800), Some(5400), Some(86_400)]);
        assert_eq!([seconds("-1h"), seconds(""), seconds("1 fortnight")], [None, None, None]);
    }
}
