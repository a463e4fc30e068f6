//! What preferences fill in.

use serde_json::{Value, json};

use super::{sizing, template};

#[test]
fn a_preference_fills_in_devices() {
    let preference = json!({"devices": {
        "preferredCdromBus": "sata", "preferredDiskBus": "virtio", "preferredLunBus": "scsi",
        "preferredDiskCache": "none", "preferredDiskIO": "native", "preferredDiskDedicatedIoThread": true,
        "preferredDiskBlockSize": {"matchVolume": {}},
        "preferredInputBus": "virtio", "preferredInputType": "tablet", "preferredInterfaceModel": "virtio",
        "preferredInterfaceMasquerade": {}, "preferredNetworkInterfaceMultiQueue": true, "preferredRng": {},
        "preferredSoundModel": "some-sound", "preferredTPM": {"persistent": true}, "preferredBlockMultiQueue": true,
        "preferredUseVirtioTransitional": true, "preferredPanicDeviceModel": "pvpanic", "preferredVideoType": "virtio",
    }});
    let spec = json!({
        "domain": {"devices": {
            "disks": [{"name": "a"}, {"name": "b", "disk": {"bus": "sata"}}, {"name": "c", "cdrom": {}},
                {"name": "d", "lun": {}}, {"name": "e", "cache": "writethrough", "disk": {}}],
            "inputs": [{"name": "i"}], "sound": {"name": "s"}, "panicDevices": [{}, {"model": "isa"}],
            "interfaces": [{"name": "default"}, {"name": "other"}, {"name": "bound", "model": "some-card", "bridge": {}}],
        }},
        "networks": [{"name": "default", "pod": {}}, {"name": "other", "multus": {"networkName": "n"}},
            {"name": "bound", "pod": {}}],
    });
    let devices = template(spec, &sizing(Value::Null, preference))["domain"]["devices"].clone();
    let disks = &devices["disks"];
    assert_eq!(disks[0]["disk"]["bus"], "virtio");
    assert_eq!((&disks[0]["io"], &disks[0]["cache"]), (&json!("native"), &json!("none")));
    assert_eq!(disks[0]["dedicatedIOThread"], true);
    assert_eq!((&disks[1]["disk"]["bus"], &disks[1]["dedicatedIOThread"]), (&json!("sata"), &Value::Null));
    assert_eq!((&disks[2]["cdrom"]["bus"], &disks[2]["cache"]), (&json!("sata"), &Value::Null));
    assert_eq!(disks[3]["lun"]["bus"], "scsi");
    assert_eq!(disks[4]["cache"], "writethrough");
    assert_eq!(devices["inputs"][0], json!({"name": "i", "type": "tablet", "bus": "virtio"}));
    let interfaces = &devices["interfaces"];
    assert_eq!((&interfaces[0]["model"], &interfaces[0]["masquerade"]), (&json!("virtio"), &json!({})));
    assert_eq!(interfaces[1]["masquerade"], Value::Null, "not on the pod network");
    assert_eq!((&interfaces[2]["model"], &interfaces[2]["masquerade"]), (&json!("some-card"), &Value::Null));
    assert_eq!((&devices["sound"]["model"], &devices["video"]["type"]), (&json!("some-sound"), &json!("virtio")));
    assert_eq!((&devices["rng"], &devices["tpm"]), (&json!({}), &json!({"persistent": true})));
    assert_eq!(
        (&devices["panicDevices"][0]["model"], &devices["panicDevices"][1]["model"]),
        (&json!("pvpanic"), &json!("isa"))
    );
    for switch in ["blockMultiQueue", "networkInterfaceMultiqueue", "useVirtioTransitional"] {
        assert_eq!(devices[switch], true, "{switch}");
    }
}

#[test]
fn automatic_devices_are_decided_before_they_are_added() {
    let preference = json!({"devices": {
        "preferredAutoattachInputDevice": true, "preferredAutoattachPodInterface": false, "preferredInputBus": "virtio",
        "preferredAutoattachGraphicsDevice": false, "preferredAutoattachMemBalloon": false,
        "preferredAutoattachSerialConsole": false,
    }});
    let sizing = sizing(Value::Null, preference);
    let spec = template(json!({"domain": {"devices": {}}}), &sizing);
    assert_eq!(spec["domain"]["devices"]["inputs"][0]["bus"], "virtio");
    assert_eq!(spec["networks"], Value::Null);
    for switch in ["autoattachGraphicsDevice", "autoattachMemBalloon", "autoattachSerialConsole"] {
        assert_eq!(spec["domain"]["devices"][switch], false, "{switch}");
    }
    let spec = template(json!({"domain": {"devices": {"autoattachInputDevice": false}}}), &sizing);
    assert_eq!(spec["domain"]["devices"]["inputs"], Value::Null, "the template counts");
}

#[test]
fn a_preference_fills_in_disks_of_volumes_without_one() {
    let spec = json!({"domain": {"devices": {}}, "volumes": [{"name": "v", "containerDisk": {"image": "i"}}]});
    let spec = template(spec, &sizing(Value::Null, json!({"devices": {"preferredDiskBus": "virtio"}})));
    assert_eq!(spec["domain"]["devices"]["disks"][0], json!({"name": "v", "disk": {"bus": "virtio"}}));
}

#[test]
fn a_preference_fills_in_firmware_features_and_clock() {
    let of = |spec: Value, preference: Value| template(spec, &sizing(Value::Null, preference))["domain"].clone();
    let plain = || json!({"domain": {"devices": {}}});
    let loader = |domain: &Value| domain["firmware"]["bootloader"].clone();
    let efi = json!({"firmware": {"preferredEfi": {"persistent": true, "secureBoot": true}, "preferredUseEfi": true,
        "preferredUseSecureBoot": false}});
    assert_eq!(loader(&of(plain(), efi.clone())), json!({"efi": {"persistent": true, "secureBoot": true}}));
    let old = json!({"firmware": {"preferredUseEfi": true, "preferredUseSecureBoot": true}});
    assert_eq!(loader(&of(plain(), old)), json!({"efi": {"secureBoot": true}}));
    let bios = json!({"firmware": {"preferredUseBios": true, "preferredUseBiosSerial": true}});
    assert_eq!(loader(&of(plain(), bios)), json!({"bios": {"useSerial": true}}));
    let own = json!({"domain": {"devices": {}, "firmware": {"bootloader": {"bios": {}}}}});
    assert_eq!(loader(&of(own, efi)), json!({"bios": {}}), "the template counts");

    let features = json!({"features": {"preferredAcpi": {"enabled": false}, "preferredSmm": {}, "preferredKvm": {"hidden": true},
        "preferredHyperv": {"vapic": {}, "relaxed": {"enabled": false}}}});
    let own = json!({"domain": {"devices": {}, "features": {"acpi": {}, "hyperv": {"relaxed": {}}}}});
    let domain = of(own, features);
    assert_eq!(
        domain["features"],
        json!({"acpi": {"enabled": false}, "smm": {}, "kvm": {"hidden": true}, "hyperv": {"vapic": {}, "relaxed": {}}})
    );

    let clock = json!({"clock": {"preferredClockOffset": {"timezone": "Europe/Berlin"}, "preferredTimer": {"hpet": {"present": false}}}});
    let domain = of(plain(), clock.clone());
    assert_eq!(domain["clock"], json!({"timezone": "Europe/Berlin", "timer": {"hpet": {"present": false}}}));
    let domain = of(json!({"domain": {"devices": {}, "clock": {"utc": {}}}}), clock);
    assert_eq!(domain["clock"]["timezone"], Value::Null);
}

#[test]
fn a_preference_fills_in_the_rest() {
    let preference = json!({
        "preferredArchitecture": "arm64", "machine": {"preferredMachineType": "q35"}, "preferredSubdomain": "s",
        "preferredTerminationGracePeriodSeconds": 180, "preferredLaunchSecurity": {"sev": {}},
        "cpu": {"preferredCPUFeatures": [{"name": "a", "policy": "force"}, {"name": "b"}]},
    });
    let sizing = sizing(Value::Null, preference);
    let found = template(json!({"domain": {"devices": {}, "cpu": {"features": [{"name": "a"}]}}}), &sizing);
    assert_eq!((&found["architecture"], &found["subdomain"]), (&json!("arm64"), &json!("s")));
    assert_eq!(
        (&found["terminationGracePeriodSeconds"], &found["domain"]["machine"]["type"]),
        (&json!(180), &json!("q35"))
    );
    assert_eq!(found["domain"]["cpu"]["features"], json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(found["domain"]["launchSecurity"], json!({"sev": {}}));
    let own = json!({"architecture": "amd64", "subdomain": "t", "terminationGracePeriodSeconds": 1,
        "domain": {"devices": {}, "machine": {"type": "pc-q35-7.2"}}});
    let found = template(own, &sizing);
    assert_eq!((&found["architecture"], &found["subdomain"]), (&json!("amd64"), &json!("t")));
    assert_eq!(
        (&found["terminationGracePeriodSeconds"], &found["domain"]["machine"]["type"]),
        (&json!(1), &json!("pc-q35-7.2"))
    );
}
