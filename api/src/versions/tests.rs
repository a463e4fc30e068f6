//! Conversions, there and back.

use serde_json::json;

use super::*;

/// A machine as a manifest of 2018 has it.
fn machine() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1alpha2", "kind": "VirtualMachine",
        "metadata": { "name": "myvm", "labels": { "my": "label" } },
        "spec": { "running": false, "template": { "metadata": { "labels": { "my": "label" } }, "spec": {
            "domain": {
                "resources": { "requests": { "memory": "8Mi" } },
                "devices": { "disks": [
                    { "name": "disk0", "volumeName": "mypvc" },
                    { "name": "root", "volumeName": "root", "disk": { "bus": "virtio" } },
                ] },
            },
            "volumes": [
                { "name": "mypvc", "persistentVolumeClaim": { "claimName": "myclaim" } },
                { "name": "root", "registryDisk": { "image": "registry/image:1" } },
                { "name": "other", "containerDisk": { "image": "registry/other:1" } },
            ],
        } } },
    })
}

fn stored(object: &Value) -> Value {
    convert(object, "kubevirt.io/v1").unwrap()
}

fn first(object: &Value) -> Value {
    convert(object, "kubevirt.io/v1alpha2").unwrap()
}

#[test]
fn a_disk_has_the_name_of_its_volume_and_a_registry_disk_is_a_container_disk() {
    let stored = stored(&machine());
    let spec = &stored["spec"]["template"]["spec"];
    assert_eq!(stored["apiVersion"], "kubevirt.io/v1");
    assert_eq!(
        spec["domain"]["devices"]["disks"],
        json!([{ "name": "mypvc" }, { "name": "root", "disk": { "bus": "virtio" } }])
    );
    assert_eq!(spec["volumes"][1], json!({ "name": "root", "containerDisk": { "image": "registry/image:1" } }));
    assert_eq!(spec["volumes"][2]["containerDisk"]["image"], "registry/other:1");
    let note = stored["metadata"]["annotations"][WRITTEN_AS_V1ALPHA2].as_str().unwrap();
    assert_eq!(note, r#"{"disks":{"mypvc":"disk0"},"registryDisks":["root"]}"#);
}

#[test]
fn an_object_reads_back_as_it_was_written() {
    assert_eq!(first(&stored(&machine())), machine());
    let instance = json!({
        "apiVersion": "kubevirt.io/v1alpha2", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vmi", "annotations": { "a": "b" } },
        "spec": {
            "domain": { "devices": { "disks": [{ "name": "d", "volumeName": "v", "cdrom": {} }] } },
            "volumes": [{ "name": "v", "registryDisk": { "image": "i" } }],
        },
    });
    assert_eq!(first(&stored(&instance)), instance);
}

#[test]
fn an_object_of_the_stored_version_is_read_by_an_old_client_and_written_back() {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "vm" },
        "spec": { "template": { "spec": {
            "domain": { "devices": { "disks": [{ "name": "root", "disk": {} }] } },
            "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }],
        } } },
        "status": { "created": true, "ready": true },
    });
    let old = first(&object);
    let disk = &old["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0];
    assert_eq!(disk["volumeName"], "root");
    assert_eq!(old["status"]["virtualMachine"], "vm");
    assert_eq!(stored(&old), object);
    // v1alpha3 has the fields of v1.
    let third = convert(&object, "kubevirt.io/v1alpha3").unwrap();
    assert_eq!(third["spec"], object["spec"]);
}

#[test]
fn the_note_is_not_the_clients_and_what_is_wrong_stays_for_admission() {
    let mut object = machine();
    object["metadata"]["annotations"] = json!({ WRITTEN_AS_V1ALPHA2: r#"{"disks":{"root":"forged"}}"# });
    assert_eq!(first(&stored(&object)), machine());
    let spec = "/spec/template/spec";
    *object.pointer_mut(&format!("{spec}/volumes/1")).unwrap() =
        json!({ "name": "root", "registryDisk": {}, "containerDisk": {} });
    *object.pointer_mut(&format!("{spec}/domain/devices/disks/0")).unwrap() = json!({ "name": "x", "volumeName": 5 });
    let stored = stored(&object);
    assert_eq!(stored.pointer(&format!("{spec}/volumes/1/registryDisk")), Some(&json!({})));
    assert_eq!(stored.pointer(&format!("{spec}/domain/devices/disks/0/volumeName")), Some(&json!(5)));
    for odd in [json!({ "spec": [] }), json!({ "metadata": 1, "spec": { "template": 1 } })] {
        let mut odd = odd;
        odd["apiVersion"] = json!("kubevirt.io/v1alpha2");
        odd["kind"] = json!("VirtualMachine");
        assert!(convert(&odd, "kubevirt.io/v1").is_ok(), "{odd}");
    }
}

#[test]
fn other_versions_are_named() {
    for version in ["kubevirt.io/v2", "v1", "", "kubevirt.io/"] {
        let error = convert(&machine(), version).unwrap_err();
        assert!(error.to_string().contains("write `kubevirt.io/v1`"), "{error}");
    }
}

#[test]
fn only_older_machines_of_files_are_converted() {
    assert_eq!(to_stored(machine()).unwrap()["apiVersion"], "kubevirt.io/v1");
    for other in [json!({ "apiVersion": "kubevirt.io/v1alpha2", "kind": "Other" }), json!([]), json!(null)] {
        assert_eq!(to_stored(other.clone()).unwrap(), other);
    }
}

/// A machine as the first glossary has it.
fn of_libvirt() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": { "name": "testvm" },
        "spec": { "domain": {
            "devices": { "disks": [{
                "type": "network", "snapshot": "external", "device": "disk",
                "driver": { "name": "qemu", "type": "raw", "cache": "none" },
                "source": {
                    "host": { "name": "iscsi-demo-target.default", "port": "3260" },
                    "protocol": "iscsi", "name": "iqn.2017-01.io.kubevirt:sn.42/2",
                },
                "target": { "dev": "vda" },
            }] },
            "memory": { "unit": "MB", "value": 64 },
            "os": { "type": { "os": "hvm" } },
            "type": "qemu",
        } },
    })
}

#[test]
fn a_machine_of_libvirts_form_runs_now_from_iscsi() {
    let stored = stored(&of_libvirt());
    let spec = &stored["spec"];
    assert_eq!(spec["runStrategy"], "Once");
    assert_eq!(spec["template"]["metadata"]["annotations"]["garboard.dev/accelerator"], "tcg");
    let of_instance = &spec["template"]["spec"];
    assert_eq!(of_instance["domain"]["memory"]["guest"], "64000000");
    assert_eq!(
        of_instance["domain"]["devices"]["disks"],
        json!([{ "name": "vda", "disk": { "bus": "virtio" }, "cache": "none" }])
    );
    let iscsi = json!({
        "targetPortal": "iscsi-demo-target.default:3260", "iqn": "iqn.2017-01.io.kubevirt:sn.42", "lun": 2,
    });
    assert_eq!(of_instance["volumes"], json!([{ "name": "vda", "iscsi": iscsi }]));
    let faults = crate::validate::admit(&stored, &crate::ClusterConfig::offline()).faults;
    assert_eq!(faults, []);
}

#[test]
fn a_machine_of_libvirts_form_reads_back_as_it_was_written_while_it_is_so() {
    let back = |object: &Value| convert(object, "kubevirt.io/v1alpha1").unwrap();
    let mut stored = stored(&of_libvirt());
    assert_eq!(back(&stored), of_libvirt());
    // Defaults that admission adds are no change, and are there again when it is written back.
    stored["spec"]["template"]["spec"]["domain"]["firmware"] = json!({ "uuid": "u" });
    let mut old = back(&stored);
    assert_eq!(old["spec"], of_libvirt()["spec"]);
    assert_eq!(convert(&old, "kubevirt.io/v1").unwrap(), stored);
    old["spec"]["domain"]["memory"]["value"] = json!(32);
    old["spec"]["domain"]["type"] = Value::Null;
    let changed = convert(&old, "kubevirt.io/v1").unwrap();
    let template = &changed["spec"]["template"];
    assert_eq!(template["spec"]["domain"]["memory"]["guest"], "32000000");
    assert_eq!((&template["spec"]["domain"]["firmware"]["uuid"], template.get("metadata")), (&json!("u"), None));
    assert_eq!(back(&changed)["spec"], old["spec"]);
    // What was changed in v1 is shown in part, and is whole when it comes back.
    stored["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("128Mi");
    let shown = back(&stored);
    assert_eq!(shown["spec"]["domain"]["memory"], json!({ "unit": "b", "value": 128 << 20 }));
    let restored = convert(&shown, "kubevirt.io/v1").unwrap();
    assert_eq!(restored["spec"], stored["spec"]);
    let mut changed = shown;
    changed["spec"]["domain"]["memory"]["value"] = json!(1);
    let error = convert(&changed, "kubevirt.io/v1").unwrap_err();
    assert!(error.to_string().contains("change it in `kubevirt.io/v1`"), "{error}");
}

#[test]
fn what_is_beside_a_machine_of_v1alpha1_has_a_bound_and_is_not_the_clients() {
    let back = |object: &Value| convert(object, "kubevirt.io/v1alpha1").unwrap();
    let machine = |text: &str| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "vm" },
            "spec": { "runStrategy": "Halted", "template": { "spec": { "domain": {}, "hostname": text } } },
        })
    };
    let mut small = machine("h");
    assert_eq!(convert(&back(&small), "kubevirt.io/v1").unwrap(), small);
    small["metadata"]["annotations"] = json!({ STORED_SPEC: "{\"forged\":1}" });
    assert_eq!(back(&small), back(&machine("h")));
    // An API server takes no more than 256 KiB of annotations, from a conversion too.
    let large = back(&machine(&"x".repeat(256 << 10)));
    assert_eq!(large["metadata"]["annotations"][STORED_SPEC], "\"too large\"");
    for damaged in
        [large["metadata"]["annotations"].clone(), json!({ STORED_SPEC: "{" }), json!({ STORED_SPEC: "null" })]
    {
        let mut object = large.clone();
        object["metadata"]["annotations"] = damaged;
        assert!(convert(&object, "kubevirt.io/v1").is_err(), "{}", object["metadata"]);
    }
    let full = "y".repeat((256 << 10) - STORED_SPEC.len());
    let mut without_room = machine("h");
    without_room["metadata"]["annotations"] = json!({ "a": full });
    assert_eq!(back(&without_room)["metadata"]["annotations"].get(STORED_SPEC), None);
}

#[test]
fn what_v1_has_no_place_for_is_refused_by_its_path() {
    let disk = "/spec/domain/devices/disks/0";
    let table = [
        (format!("{disk}/type"), json!("file"), "spec.domain.devices.disks[0].type: `file`"),
        (format!("{disk}/source/name"), json!("iqn.x"), "disks[0].source.name"),
        (format!("{disk}/driver/type"), json!("qcow2"), "disks[0].driver.type"),
        (format!("{disk}/target"), json!({ "dev": "xvda" }), "disks[0].target.dev"),
        (format!("{disk}/target"), json!({ "dev": "vda", "tray": "open" }), "disks[0]: unknown field `tray`"),
        ("/spec/domain/memory/unit".to_owned(), json!("parsec"), "spec.domain.memory.unit"),
        ("/spec/domain/memory/value".to_owned(), json!(u64::MAX), "spec.domain.memory.value"),
        ("/spec/domain/type".to_owned(), json!("xen"), "spec.domain.type"),
        ("/spec/domain/os/type/os".to_owned(), json!("exe"), "spec.domain.os.type.os"),
        ("/spec".to_owned(), json!({ "running": true }), "spec: "),
    ];
    for (path, value, text) in table {
        let mut object = of_libvirt();
        *object.pointer_mut(&path).unwrap() = value;
        let error = convert(&object, "kubevirt.io/v1").unwrap_err().to_string();
        assert!(error.contains(text), "{path}: {error}");
    }
    let mut instance = of_libvirt();
    instance["kind"] = json!("VirtualMachineInstance");
    assert!(convert(&instance, "kubevirt.io/v1").is_err(), "of machines alone");
}

#[test]
fn a_secret_of_the_disk_is_chaps() {
    let mut object = of_libvirt();
    object["spec"]["domain"]["devices"]["disks"][0]["auth"] = json!({ "secret": { "type": "iscsi", "usage": "chap" } });
    let stored = stored(&object);
    assert_eq!(stored["spec"]["template"]["spec"]["volumes"][0]["iscsi"]["secretRef"], json!({ "name": "chap" }));
}
