//! Defaults that the recorded answers of KubeVirt do not cover, and the properties that hold for all.

use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::cluster::{DefaultBinding, Rollout};
use crate::kind::Kind;
use crate::schema::json_schema;

const IDENTITY: Identity = Identity { firmware_uuid: Uuid::from_u128(7) };

fn vmi(spec: Value) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "quay"}, "spec": spec
    }))
    .unwrap()
}

fn defaulted(spec: Value, config: &ClusterConfig) -> Value {
    let mut vmi = vmi(spec);
    default_vmi(&mut vmi, config, &IDENTITY);
    serde_json::to_value(&vmi.spec).unwrap()
}

fn vm(template: Value) -> VirtualMachine {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "quay", "namespace": "harbour", "uid": "u-1", "generation": 3},
        "spec": {"runStrategy": "Always", "template": template}
    }))
    .unwrap()
}

#[test]
fn the_schema_says_the_defaults() {
    let usual = ClusterConfig::offline();
    for (kind, field, default) in [
        (Kind::VirtualMachineInstance, "terminationGracePeriodSeconds", GRACE_PERIOD_SECONDS),
        (Kind::KubeVirt, "configuration.developerConfiguration.cpuAllocationRatio", usual.cpu_allocation_ratio),
        (Kind::KubeVirt, "configuration.developerConfiguration.memoryOvercommit", usual.memory_overcommit_percent),
        (Kind::KubeVirt, "configuration.liveUpdateConfiguration.maxHotplugRatio", usual.max_hotplug_ratio),
    ] {
        let schema = json_schema(kind).unwrap();
        let spec = &schema["properties"]["spec"];
        let field_schema = field.split('.').fold(spec, |schema, step| &schema["properties"][step]);
        let text = field_schema["description"].as_str().unwrap_or_default();
        assert!(text.contains(&format!("Default: {default}.")), "{field}: {text:?} and not {default}");
    }
}

#[test]
fn defaulting_twice_changes_nothing() {
    let mut once = vmi(json!({
        "domain": {
            "devices": {"disks": [{"name": "root"}, {"name": "cd", "cdrom": {}}], "watchdog": {"name": "dog"}},
            "memory": {"guest": "2Gi"},
            "features": {"hyperv": {"evmcs": {}, "synictimer": {"direct": {}}}}
        },
        "volumes": [{"name": "root", "containerDisk": {"image": "a"}}, {"name": "more", "emptyDisk": {"capacity": "1Gi"}}]
    }));
    default_vmi(&mut once, &ClusterConfig::offline(), &IDENTITY);
    let mut twice = once.clone();
    default_vmi(&mut twice, &ClusterConfig::offline(), &Identity { firmware_uuid: Uuid::from_u128(8) });
    assert_eq!(once, twice);
}

#[test]
fn a_limit_of_cpu_becomes_the_request_and_the_sockets() {
    let spec = json!({"domain": {"devices": {}, "resources": {"limits": {"cpu": "2500m", "memory": "1Gi"}}}});
    let spec = defaulted(spec, &ClusterConfig::offline());
    assert_eq!(spec["domain"]["resources"]["requests"]["cpu"], "2500m");
    assert_eq!(spec["domain"]["cpu"]["sockets"], 3);
    assert_eq!(spec["domain"]["cpu"]["maxSockets"], 12);
    assert_eq!(spec["domain"]["memory"], json!({"guest": "1Gi", "maxGuest": "4Gi"}));
}

#[test]
fn room_for_sockets_ends_at_512_vcpus_and_never_below_the_sockets() {
    for (cpu, room) in [
        (json!({"sockets": 100, "cores": 2, "threads": 2}), 128),
        (json!({"sockets": 300, "cores": 2, "threads": 1}), 300),
        (json!({"sockets": 3, "cores": 1, "threads": 1, "maxSockets": 5}), 5),
    ] {
        let spec = json!({"domain": {"devices": {}, "cpu": cpu, "memory": {"guest": "1Gi"}}});
        assert_eq!(defaulted(spec, &ClusterConfig::offline())["domain"]["cpu"]["maxSockets"], room);
    }
}

#[test]
fn a_cluster_that_stages_changes_gives_no_room_to_grow() {
    let config = ClusterConfig { rollout: Rollout::Stage, ..ClusterConfig::offline() };
    let spec = defaulted(json!({"domain": {"devices": {}, "memory": {"guest": "2Gi"}}}), &config);
    assert_eq!(spec["domain"]["memory"], json!({"guest": "2Gi"}));
    assert_eq!(spec["domain"]["cpu"].get("maxSockets"), None);
}

#[test]
fn memory_that_cannot_be_plugged_gets_no_room() {
    for spec in [
        json!({"domain": {"devices": {}, "memory": {"guest": "1000Mi"}}}),
        json!({"domain": {"devices": {}, "memory": {"guest": "1073741825"}}}),
        json!({"domain": {"devices": {}, "memory": {"guest": "1536Mi", "hugepages": {"pageSize": "1Gi"}}}}),
        json!({"domain": {"devices": {}, "memory": {"guest": "2Gi"}, "launchSecurity": {"snp": {}}}}),
        json!({"domain": {"devices": {}, "memory": {"guest": "2Gi"}, "cpu": {"realtime": {}}}}),
        json!({"architecture": "s390x", "domain": {"devices": {}, "memory": {"guest": "2Gi"}}}),
    ] {
        let spec = defaulted(spec, &ClusterConfig::offline());
        assert_eq!(spec["domain"]["memory"].get("maxGuest"), None, "{spec}");
    }
}

#[test]
fn the_cluster_decides_model_binding_eviction_and_growth() {
    let config = ClusterConfig {
        cpu_model: Some("Haswell".to_owned()),
        cpu_request: "250m".parse().ok(),
        default_binding: DefaultBinding::Masquerade,
        eviction_strategy: "LiveMigrate".to_owned(),
        max_cpu_sockets: Some(6),
        max_guest: "8Gi".parse().ok(),
        ..ClusterConfig::offline()
    };
    let spec = defaulted(json!({"domain": {"devices": {}, "memory": {"guest": "2Gi"}}}), &config);
    assert_eq!(spec["domain"]["cpu"]["model"], "Haswell");
    assert_eq!(spec["domain"]["cpu"]["maxSockets"], 6);
    assert_eq!(spec["domain"]["memory"]["maxGuest"], "8Gi");
    assert_eq!(spec["domain"]["resources"]["requests"]["cpu"], "250m");
    assert_eq!(spec["domain"]["devices"]["interfaces"], json!([{"name": "default", "masquerade": {}}]));
    assert_eq!(spec["evictionStrategy"], "LiveMigrate");
}

#[test]
fn an_enlightenment_that_is_switched_off_stays_off() {
    let spec = json!({"domain": {"devices": {}, "features": {"hyperv": {
        "evmcs": {}, "vapic": {"enabled": false}, "synictimer": {}
    }}}});
    let spec = defaulted(spec, &ClusterConfig::offline());
    let hyperv = &spec["domain"]["features"]["hyperv"];
    assert_eq!(hyperv["vapic"]["enabled"], false);
    assert_eq!(hyperv.get("synic"), None, "what follows a contradiction is not filled in");
    assert_eq!(spec["domain"]["cpu"].get("features"), None);
}

#[test]
fn an_instance_begins_pending_with_what_it_boots_with() {
    let mut vmi = vmi(json!({"domain": {"devices": {}, "memory": {"guest": "1Gi"}, "cpu": {"cores": 2}}}));
    default_vmi(&mut vmi, &ClusterConfig::offline(), &IDENTITY);
    let status = vmi.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(status.runtime_user, Some(107));
    assert_eq!(status.memory.unwrap().guest_at_boot, "1Gi".parse().ok());
    assert_eq!(status.current_cpu_topology.unwrap().cores, Some(2));
    assert_eq!(vmi.metadata.annotations.unwrap()["kubevirt.io/pci-topology-version"], "v3");
    assert_eq!(vmi.metadata.finalizers.unwrap(), ["kubevirt.io/foregroundDeleteVirtualMachine"]);
}

#[test]
fn a_new_machine_gets_its_machine_type_and_the_layout_of_its_devices() {
    let mut vm = vm(json!({}));
    default_vm(&mut vm, &ClusterConfig::offline());
    let template = &vm.spec.template;
    let annotations = template.metadata.as_ref().unwrap().annotations.as_ref().unwrap();
    assert_eq!(annotations["kubevirt.io/pci-topology-version"], "v3");
    let spec = serde_json::to_value(&template.spec).unwrap();
    assert_eq!(
        spec,
        json!({"architecture": "amd64", "domain": {"machine": {"type": "q35"}, "resources": {}, "devices": {}}})
    );
}

#[test]
fn an_instance_is_the_template_under_the_name_of_its_machine() {
    let vm = vm(json!({
        "metadata": {"name": "ignored", "labels": {"app": "quay"}},
        "spec": {
            "domain": {"devices": {"autoattachInputDevice": true}},
            "volumes": [{"name": "root", "containerDisk": {"image": "a"}}]
        }
    }));
    let vmi = vmi_of(&vm);
    assert_eq!(vmi.metadata.name.as_deref(), Some("quay"));
    assert_eq!(vmi.metadata.namespace.as_deref(), Some("harbour"));
    assert_eq!(vmi.metadata.labels.as_ref().unwrap()["app"], "quay");
    assert_eq!(vmi.metadata.annotations.as_ref().unwrap()["kubevirt.io/vm-generation"], "3");
    let owner = &vmi.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("VirtualMachine", "u-1", Some(true)));
    assert_eq!(vmi.spec.domain.devices.disks[0].name, "root");
    assert_eq!(vmi.spec.domain.devices.inputs[0].name, "default-0");
    assert_eq!(vmi, vmi_of(&vm), "the same machine gives the same instance");
}

#[test]
fn the_uuid_of_a_machine_follows_from_its_name() {
    let vmi = vmi_of(&vm(json!({"spec": {"domain": {"devices": {}}}})));
    let uuid: Uuid = vmi.spec.domain.firmware.unwrap().uuid.unwrap().parse().unwrap();
    assert_eq!(uuid.get_version_num(), 5);
    let named = vm(json!({"spec": {"domain": {"devices": {}, "firmware": {"uuid": "x"}}}}));
    assert_eq!(vmi_of(&named).spec.domain.firmware.unwrap().uuid.as_deref(), Some("x"));
}

#[test]
fn a_machine_without_pcie_gets_no_pci_topology() {
    let mut vmi = vmi(json!({"architecture": "s390x", "domain": {"devices": {}}}));
    default_vmi(&mut vmi, &ClusterConfig::offline(), &IDENTITY);
    assert_eq!(vmi.metadata.annotations, None);
}
