use serde_json::json;

use super::super::{ANNOTATIONS, MACHINE, OF_MACHINES, SETTINGS, TABLES};
use super::*;

fn paths(faults: &[Fault]) -> Vec<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

fn judged(spec: &Value, setting: Setting) -> Judgement {
    judge(&INSTANCE, spec, &FieldPath::from("spec"), setting)
}

#[test]
fn what_is_not_supported_is_refused_by_its_path() {
    let spec = json!({
        "architecture": "arm64",
        "domain": {
            "clock": {"timer": {"rtc": {"present": false}, "hpet": {"tickPolicy": "catchup"}}},
            "cpu": {"dedicatedCpuPlacement": true},
            "devices": {
                "tpm": {},
                "interfaces": [{"name": "a", "masquerade": {}}, {"name": "b", "sriov": {}}],
                "filesystems": [{"name": "x", "virtiofs": {}}],
            },
        },
        "volumes": [{"name": "x", "memoryDump": {"claimName": "c"}}],
    });
    for setting in [Setting::Cluster, Setting::BareHost] {
        let mut found = judged(&spec, setting).refused;
        found.sort();
        assert_eq!(
            paths(&found),
            [
                "spec.architecture",
                "spec.domain.clock.timer.hpet.tickPolicy",
                "spec.domain.clock.timer.rtc.present",
                "spec.domain.cpu.dedicatedCpuPlacement",
                "spec.domain.devices.filesystems",
                "spec.domain.devices.interfaces[1].sriov",
                "spec.domain.devices.tpm",
                "spec.volumes[0].memoryDump",
            ]
        );
    }
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
    assert_eq!(judged(&spec, Setting::BareHost), Judgement::default());
}

#[test]
fn a_field_can_mean_something_in_one_setting_only() {
    let spec = json!({
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}, "livenessProbe": {"guestAgentPing": {}},
        "nodeSelector": {}, "tolerations": [{"operator": "Exists"}],
        "domain": {
            "resources": {"requests": {"cpu": "1", "example.com/fpga": "1"}, "limits": {"memory": "1Gi"}},
            "cpu": {"features": [{"name": "vmx", "policy": "forbid"}, {"name": "svm", "policy": "disable"}]},
            "devices": {"interfaces": [{"name": "a", "passtBinding": {}}]},
        },
        "volumes": [{"name": "a", "containerDisk": {"image": "a", "imagePullSecret": "b"}}],
    });
    let cluster = judged(&spec, Setting::Cluster);
    assert_eq!(paths(&cluster.refused), ["spec.domain.devices.interfaces[0].passtBinding"]);
    assert_eq!(paths(&cluster.warned), Vec::<&str>::new());
    let mut host = judged(&spec, Setting::BareHost);
    assert_eq!(host.refused, []);
    host.warned.sort();
    assert_eq!(
        paths(&host.warned),
        [
            "spec.dnsConfig",
            "spec.dnsPolicy",
            "spec.domain.cpu.features[0].policy",
            "spec.domain.resources.requests",
            "spec.livenessProbe",
            "spec.tolerations",
            "spec.volumes[0].containerDisk.imagePullSecret",
        ]
    );
}

#[test]
fn a_volume_that_is_declared_pluggable_is_warned_of() {
    let spec = json!({"volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "a", "hotpluggable": true}},
        {"name": "b", "dataVolume": {"name": "b", "hotpluggable": true}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": false}},
    ]});
    let mut found = judged(&spec, Setting::Cluster);
    found.warned.sort();
    let expected = ["spec.volumes[0].persistentVolumeClaim.hotpluggable", "spec.volumes[1].dataVolume.hotpluggable"];
    assert_eq!(paths(&found.warned), expected);
    assert_eq!(found.refused, []);
}

#[test]
fn annotations_are_found_although_their_keys_have_dots() {
    let metadata = json!({"annotations": {
        "kubevirt.io/ignitiondata": "{}",
        "kubevirt.io/libvirt-log-filters": "1:*",
        "kubevirt.io/memfd": "false",
        "kubevirt.io/pci-interface-slot-count": "8",
        "kubevirt.io/pci-topology-version": "v2",
        "kubevirt.io/keep-launcher-alive-after-failure": "true",
        "hooks.kubevirt.io/hookSidecars": "[{}]",
    }});
    let found = judge_annotations(ANNOTATIONS, &metadata, &FieldPath::from("metadata"));
    assert_eq!(paths(&found.refused), ["metadata.annotations[kubevirt.io/ignitiondata]"]);
    assert_eq!(found.warned.len(), 6, "{found:#?}");
    let harmless = json!({"annotations": {"kubevirt.io/memfd": "true", "kubevirt.io/pci-topology-version": "v3"}});
    let at = FieldPath::from("metadata");
    assert_eq!(judge_annotations(ANNOTATIONS, &harmless, &at), Judgement::default());
    let late = json!({"annotations": {"kubevirt.io/immediate-data-volume-creation": "false"}});
    assert_eq!(judge_annotations(OF_MACHINES, &late, &at).warned.len(), 1);
}

#[test]
fn a_machine_is_expanded_by_the_one_who_writes_it() {
    let spec = json!({"instancetype": {"name": "u1.small"}, "runStrategy": "WaitAsReceiver"});
    let found = judge(&MACHINE, &spec, &FieldPath::from("spec"), Setting::Cluster);
    assert_eq!(paths(&found.refused), ["spec.runStrategy"]);
    assert_eq!(found.warned, []);
}

#[test]
fn a_bare_host_fills_no_data_volume() {
    let spec = json!({"dataVolumeTemplates": [{"metadata": {"name": "dv"}}]});
    let judged = |setting| judge(&MACHINE, &spec, &FieldPath::from("spec"), setting);
    assert_eq!(paths(&judged(Setting::BareHost).warned), ["spec.dataVolumeTemplates[0]"]);
    assert_eq!(judged(Setting::Cluster), Judgement::default());
}

/// A manifest to which a line of the table applies.
fn manifest(path: &str, when: When) -> Value {
    let written = match when {
        When::Written | When::Filled | When::OtherKeys(_) => json!({"some": "thing"}),
        When::True => json!(true),
        When::False => json!(false),
        When::Enabled => json!({}),
        When::Is(value) => json!(value),
        When::OtherThan(_) => json!("other"),
    };
    path.split('.').rev().fold(written, |value, step| match step.strip_suffix("[]") {
        Some(list) => json!({list: [value]}),
        None => json!({step: value}),
    })
}

#[test]
fn every_line_can_be_reached_and_names_a_remedy() {
    for table in TABLES {
        for line in table.all() {
            for setting in [Setting::Cluster, Setting::BareHost] {
                let (Fate::Refused { when, .. } | Fate::Warned { when, .. }) = line.fate(setting) else { continue };
                for path in line.paths() {
                    let found = judge(&table, &manifest(&path, when), &FieldPath::root(), setting);
                    let faults: Vec<&Fault> = found.refused.iter().chain(&found.warned).collect();
                    assert_eq!(faults.len(), 1, "{path}: {faults:?}");
                    assert!(faults[0].instead.is_some());
                    assert!(!faults[0].message.ends_with('.'), "{}", faults[0]);
                    assert!(faults[0].to_string().len() < 256, "the API server cuts a warning: {}", faults[0]);
                }
            }
        }
    }
}

#[test]
fn an_empty_setting_is_none() {
    let spec = json!({"customizeComponents": {}, "workloads": {"nodePlacement": {}}, "imageTag": "", "infra": null});
    assert_eq!(judge(&SETTINGS, &spec, &FieldPath::from("spec"), Setting::Cluster), Judgement::default());
}
