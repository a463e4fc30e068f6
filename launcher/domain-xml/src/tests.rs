//! The domain of a small machine, and what it must not contain.

use garboard_api::v1::VirtualMachineInstance;
use garboard_api::{ClusterConfig, Identity, default_vmi};
use garboard_machine::facts::HostFacts;
use garboard_plan::{PlanOptions, plan};
use serde_json::{Value, json};

use super::*;

const HERE: DomainContext<'_> = DomainContext { sockets: "/run/garboard/tests/quay/supervisor", id: None };

fn planned(name: &str, domain: &Value) -> LaunchPlan {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": name, "namespace": "tests" },
        "spec": {
            "domain": domain,
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{ "name": "root", "persistentVolumeClaim": { "claimName": "c" } }],
        },
    });
    let mut vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
    let firmware_uuid = uuid::Uuid::from_u128(1);
    default_vmi(&mut vmi, &ClusterConfig::offline(), &Identity { firmware_uuid });
    plan(&vmi, &HostFacts::reference(), &PlanOptions::default(), None).unwrap()
}

fn small() -> LaunchPlan {
    planned(
        "quay",
        &json!({
            "memory": { "guest": "64Mi" },
            "devices": {
                "disks": [{ "name": "root", "disk": { "bus": "virtio" }, "serial": "a<b" }],
                "interfaces": [{ "name": "default", "masquerade": {} }],
            },
        }),
    )
}

#[test]
fn a_domain_has_the_machines_name_memory_and_devices() {
    let xml = domain_xml(&small(), HERE);
    for part in [
        "<domain type=\"kvm\">",
        "<name>tests_quay</name>",
        "<memory unit=\"b\">67108864</memory>",
        "<target dev=\"vda\" bus=\"virtio\"/>",
        "<alias name=\"ua-disk-root\"/>",
        "path=\"/run/garboard/tests/quay/supervisor/serial0.sock\"",
        "<serial>a&lt;b</serial>",
    ] {
        assert!(xml.contains(part), "{part} is not in\n{xml}");
    }
}

#[test]
fn a_domain_that_runs_has_a_number() {
    let running = domain_xml(&small(), DomainContext { id: Some(1), ..HERE });
    assert!(running.starts_with("<domain type=\"kvm\" id=\"1\">"), "{running}");
}

#[test]
fn rows_agree_with_the_domain() {
    let plan = small();
    let xml = domain_xml(&plan, HERE);
    let disks = block_rows(&plan);
    assert_eq!(disks.iter().map(|disk| disk.target.as_str()).collect::<Vec<_>>(), ["vda"]);
    for source in disks.iter().filter_map(|disk| disk.source.as_ref()) {
        assert!(xml.contains(source.as_str()), "{source}");
    }
    let interfaces = interface_rows(&plan);
    assert_eq!(interfaces.len(), 1);
    for interface in interfaces {
        assert!(xml.contains(&interface.mac) && xml.contains(interface.model), "{interface:?}");
        assert!(interface.interface.is_some_and(|tap| xml.contains(&tap)), "a tap");
    }
}
