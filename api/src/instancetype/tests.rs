//! What KubeVirt's own tests of instancetypes show (`pkg/instancetype`, 1.7), as tables.

use serde_json::{Value, json};

use super::infer::{self, Look, Next, Source};
use super::{Matcher, Role, Sizing, expanded, revision, settle, sized};
use crate::cluster::ClusterConfig;
use crate::defaults::vmi_of;
use crate::fault::Fault;
use crate::kind::Kind;
use crate::v1::VirtualMachine;

/// A machine with this template.
fn machine(spec: Value) -> VirtualMachine {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    }))
    .unwrap()
}

fn sizing(instancetype: Value, preference: Value) -> Sizing {
    let mut sizing = Sizing::default();
    for (role, spec) in [(Role::Instancetype, instancetype), (Role::Preference, preference)] {
        if !spec.is_null() {
            sizing.take(role, &spec).unwrap();
        }
    }
    sizing
}

/// Two vCPUs and two gibibytes, and what else is given.
fn size(more: Value) -> Value {
    let mut spec = json!({"cpu": {"guest": 2}, "memory": {"guest": "2Gi"}});
    merge(&mut spec, &more);
    spec
}

fn merge(target: &mut Value, more: &Value) {
    match (target, more) {
        (Value::Object(target), Value::Object(more)) => {
            for (key, value) in more {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, more) => *target = more.clone(),
    }
}

/// The specification of the template with both in it.
fn template(spec: Value, sizing: &Sizing) -> Value {
    let vm = sized(&machine(spec), sizing, &ClusterConfig::offline()).unwrap();
    serde_json::to_value(vm.spec.template.spec).unwrap()
}

fn refused(spec: Value, sizing: &Sizing) -> Vec<Fault> {
    sized(&machine(spec.clone()), sizing, &ClusterConfig::offline()).expect_err(&spec.to_string())
}

#[test]
fn an_instancetype_sets_cpus_and_memory() {
    let spec = template(json!({"domain": {"devices": {}}}), &sizing(size(json!({})), Value::Null));
    assert_eq!(spec["domain"]["cpu"], json!({"sockets": 2, "cores": 1, "threads": 1}));
    assert_eq!(spec["domain"]["memory"], json!({"guest": "2Gi"}));
}

#[test]
fn what_an_instancetype_has_is_in_the_template() {
    let more = json!({
        "annotations": {"a.example/b": "c"},
        "cpu": {"model": "host-passthrough", "dedicatedCPUPlacement": true, "isolateEmulatorThread": true,
            "maxSockets": 4, "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0"}},
        "memory": {"hugepages": {"pageSize": "1Gi"}, "maxGuest": "4Gi"},
        "gpus": [{"name": "g", "deviceName": "v.example/g"}],
        "hostDevices": [{"name": "h", "deviceName": "v.example/h"}],
        "ioThreads": {"supplementalPoolThreadCount": 2},
        "ioThreadsPolicy": "supplementalPool",
        "launchSecurity": {"sev": {}},
        "nodeSelector": {"disk": "fast"},
        "schedulerName": "other",
    });
    let sizing = sizing(size(more), Value::Null);
    let vm = sized(&machine(json!({"domain": {"devices": {}}})), &sizing, &ClusterConfig::offline()).unwrap();
    let written = serde_json::to_value(&vm.spec.template).unwrap();
    let domain = &written["spec"]["domain"];
    assert_eq!(written["metadata"]["annotations"], json!({"a.example/b": "c"}));
    assert_eq!(
        domain["cpu"],
        json!({"sockets": 2, "cores": 1, "threads": 1, "model": "host-passthrough", "dedicatedCpuPlacement": true,
            "isolateEmulatorThread": true, "maxSockets": 4, "numa": {"guestMappingPassthrough": {}},
            "realtime": {"mask": "0"}})
    );
    assert_eq!(domain["memory"], json!({"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}, "maxGuest": "4Gi"}));
    assert_eq!(domain["devices"]["gpus"][0]["name"], "g");
    assert_eq!(domain["devices"]["hostDevices"][0]["name"], "h");
    assert_eq!(
        (&domain["ioThreadsPolicy"], &domain["launchSecurity"]),
        (&json!("supplementalPool"), &json!({"sev": {}}))
    );
    assert_eq!(domain["ioThreads"]["supplementalPoolThreadCount"], 2);
    assert_eq!(written["spec"]["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(written["spec"]["schedulerName"], "other");
}

#[test]
fn memory_that_is_overcommitted_is_requested_less() {
    let sizing = sizing(size(json!({"memory": {"overcommitPercent": 25}})), Value::Null);
    let spec = template(json!({"domain": {"devices": {}}}), &sizing);
    assert_eq!(spec["domain"]["resources"]["requests"]["memory"], "1536Mi");
    assert_eq!(spec["domain"]["memory"]["guest"], "2Gi");
}

#[test]
fn topologies_of_vcpus() {
    let spread = |across: &str, ratio: u32| json!({"preferredCPUTopology": "spread", "spreadOptions": {"across": across, "ratio": ratio}});
    let named = |name: &str| json!({"preferredCPUTopology": name});
    let table = [
        (json!({}), 6, [6, 1, 1]),
        (named("sockets"), 6, [6, 1, 1]),
        (named("preferSockets"), 6, [6, 1, 1]),
        (named("any"), 6, [6, 1, 1]),
        (named("cores"), 6, [1, 6, 1]),
        (named("preferCores"), 6, [1, 6, 1]),
        (named("threads"), 6, [1, 1, 6]),
        (named("spread"), 6, [3, 2, 1]),
        (spread("SocketsCores", 3), 6, [2, 3, 1]),
        (spread("CoresThreads", 2), 6, [1, 3, 2]),
        (spread("SocketsCoresThreads", 2), 8, [2, 2, 2]),
        (spread("SocketsCoresThreads", 4), 16, [2, 4, 2]),
        (named("cores"), 1, [1, 1, 1]),
        (named("spread"), 2, [1, 2, 1]),
    ];
    for (cpu, vcpus, [sockets, cores, threads]) in table {
        let sizing = sizing(size(json!({"cpu": {"guest": vcpus}})), json!({"cpu": cpu}));
        let spec = template(json!({"domain": {"devices": {}}}), &sizing);
        let expected = json!({"sockets": sockets, "cores": cores, "threads": threads});
        assert_eq!(spec["domain"]["cpu"], expected, "{cpu} {vcpus}");
    }
    let older = json!({"preferSpreadSocketToCoreRatio": 3, "cpu": {"preferredCPUTopology": "preferSpread"}});
    let spec = template(json!({"domain": {"devices": {}}}), &sizing(size(json!({"cpu": {"guest": 6}})), older));
    assert_eq!(spec["domain"]["cpu"], json!({"sockets": 2, "cores": 3, "threads": 1}));
}

#[test]
fn vcpus_that_cannot_be_spread_are_refused() {
    let spread = |across: &str, ratio: u32| json!({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": across, "ratio": ratio}}});
    for (preference, vcpus) in [
        (json!({"cpu": {"preferredCPUTopology": "spread"}}), 3),
        (spread("SocketsCores", 4), 6),
        (spread("CoresThreads", 2), 5),
        (spread("SocketsCoresThreads", 2), 6),
    ] {
        let sizing = sizing(size(json!({"cpu": {"guest": vcpus}})), preference.clone());
        let faults = refused(json!({"domain": {"devices": {}}}), &sizing);
        assert_eq!(faults[0].path.as_str(), "spec.instancetype", "{preference}");
        assert_eq!(faults[0].field, "instancetype.spec.cpu.guest", "as KubeVirt spells it");
    }
}

#[test]
fn what_both_set_is_a_conflict_that_names_both_places() {
    let at = "spec.template.spec";
    let table = [
        (json!({"domain": {"cpu": {"sockets": 1}}}), json!({}), "domain.cpu.sockets", "spec.cpu.guest"),
        (json!({"domain": {"cpu": {"cores": 1}}}), json!({}), "domain.cpu.cores", "spec.cpu.guest"),
        (json!({"domain": {"cpu": {"threads": 1}}}), json!({}), "domain.cpu.threads", "spec.cpu.guest"),
        (
            json!({"domain": {"resources": {"requests": {"cpu": "1"}}}}),
            json!({}),
            "domain.resources.requests.cpu",
            "spec.cpu.guest",
        ),
        (
            json!({"domain": {"resources": {"limits": {"cpu": "1"}}}}),
            json!({}),
            "domain.resources.limits.cpu",
            "spec.cpu.guest",
        ),
        (
            json!({"domain": {"cpu": {"model": "a"}}}),
            json!({"cpu": {"model": "b"}}),
            "domain.cpu.model",
            "spec.cpu.model",
        ),
        (
            json!({"domain": {"cpu": {"dedicatedCpuPlacement": true}}}),
            json!({"cpu": {"dedicatedCPUPlacement": true}}),
            "domain.cpu.dedicatedCpuPlacement",
            "spec.cpu.dedicatedCPUPlacement",
        ),
        (json!({"domain": {"memory": {"guest": "1Gi"}}}), json!({}), "domain.memory.guest", "spec.memory.guest"),
        (
            json!({"domain": {"resources": {"requests": {"memory": "1Gi"}}}}),
            json!({}),
            "domain.resources.requests.memory",
            "spec.memory.guest",
        ),
        (
            json!({"domain": {"memory": {"hugepages": {"pageSize": "2Mi"}}}}),
            json!({"memory": {"hugepages": {"pageSize": "1Gi"}}}),
            "domain.memory.hugepages",
            "spec.memory.hugepages",
        ),
        (
            json!({"domain": {"memory": {"maxGuest": "4Gi"}}}),
            json!({"memory": {"maxGuest": "4Gi"}}),
            "domain.memory.maxGuest",
            "spec.memory.maxGuest",
        ),
        (
            json!({"domain": {"ioThreadsPolicy": "auto"}}),
            json!({"ioThreadsPolicy": "shared"}),
            "domain.ioThreadsPolicy",
            "spec.ioThreadsPolicy",
        ),
        (
            json!({"domain": {"devices": {"gpus": [{"name": "a"}]}}}),
            json!({"gpus": [{"name": "b"}]}),
            "domain.devices.gpus",
            "spec.gpus",
        ),
        (
            json!({"domain": {"devices": {"hostDevices": [{"name": "a"}]}}}),
            json!({"hostDevices": [{"name": "b"}]}),
            "domain.devices.hostDevices",
            "spec.hostDevices",
        ),
        (
            json!({"domain": {"launchSecurity": {"sev": {}}}}),
            json!({"launchSecurity": {"sev": {}}}),
            "domain.launchSecurity",
            "spec.launchSecurity",
        ),
        (json!({"nodeSelector": {"a": "b"}}), json!({"nodeSelector": {"a": "b"}}), "nodeSelector", "spec.nodeSelector"),
        (json!({"schedulerName": "a"}), json!({"schedulerName": "b"}), "schedulerName", "spec.schedulerName"),
    ];
    for (spec, more, place, source) in table {
        let faults = refused(spec.clone(), &sizing(size(more), Value::Null));
        assert_eq!(faults.len(), 1, "{spec}: {faults:#?}");
        assert_eq!(
            (faults[0].path.as_str(), faults[0].field.as_str()),
            (&*format!("{at}.{place}"), &*format!("{at}.{place}"))
        );
        assert!(faults[0].message.contains(&format!("`{source}`")), "{spec}: {}", faults[0]);
    }
}

#[test]
fn a_template_may_have_what_an_instancetype_leaves_out() {
    let spec = json!({
        "domain": {"cpu": {"model": "a", "dedicatedCpuPlacement": false}, "memory": {"hugepages": {"pageSize": "2Mi"}},
            "ioThreadsPolicy": "auto", "devices": {"gpus": [{"name": "a"}]}},
        "nodeSelector": {"a": "b"}, "schedulerName": "c",
    });
    let found = template(spec, &sizing(size(json!({"cpu": {"dedicatedCPUPlacement": true}})), Value::Null));
    assert_eq!((&found["domain"]["cpu"]["model"], &found["schedulerName"]), (&json!("a"), &json!("c")));
    assert_eq!(found["domain"]["cpu"]["dedicatedCpuPlacement"], true, "false is as good as nothing");
}

#[test]
fn annotations_of_an_instancetype_conflict_and_those_of_a_preference_give_way() {
    let mut vm = machine(json!({"domain": {"devices": {}}}));
    let annotations = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "1".to_owned())];
    vm.spec.template.metadata.get_or_insert_default().annotations = Some(annotations.into());
    let config = ClusterConfig::offline();
    let of = |instancetype: Value, preference: Value| {
        sizing(size(json!({"annotations": instancetype})), json!({"annotations": preference}))
    };
    let whole = sized(&vm, &of(json!({"a": "1", "c": "2"}), json!({"b": "2", "c": "3", "d": "4"})), &config).unwrap();
    let found = serde_json::to_value(whole.spec.template.metadata.unwrap().annotations).unwrap();
    assert_eq!(found, json!({"a": "1", "b": "1", "c": "2", "d": "4"}));
    let faults = sized(&vm, &of(json!({"a": "2"}), json!({})), &config).unwrap_err();
    assert_eq!(faults[0].path.as_str(), "spec.template.metadata.annotations[a]");
    assert_eq!(faults[0].field, "annotations.a");
}

#[test]
fn a_preference_fills_in_devices() {
    let preference = json!({"devices": {
        "preferredCdromBus": "sata", "preferredDiskBus": "virtio", "preferredLunBus": "scsi",
        "preferredDiskCache": "none", "preferredDiskIO": "native", "preferredDiskDedicatedIoThread": true,
        "preferredDiskBlockSize": {"matchVolume": {}},
        "preferredInputBus": "virtio", "preferredInputType": "tablet", "preferredInterfaceModel": "virtio",
        "preferredInterfaceMasquerade": {}, "preferredNetworkInterfaceMultiQueue": true, "preferredRng": {},
        "preferredSoundModel": "ac97", "preferredTPM": {"persistent": true}, "preferredBlockMultiQueue": true,
        "preferredUseVirtioTransitional": true, "preferredPanicDeviceModel": "pvpanic", "preferredVideoType": "virtio",
    }});
    let spec = json!({
        "domain": {"devices": {
            "disks": [{"name": "a"}, {"name": "b", "disk": {"bus": "sata"}}, {"name": "c", "cdrom": {}},
                {"name": "d", "lun": {}}, {"name": "e", "cache": "writethrough", "disk": {}}],
            "inputs": [{"name": "i"}], "sound": {"name": "s"}, "panicDevices": [{}, {"model": "isa"}],
            "interfaces": [{"name": "default"}, {"name": "other"}, {"name": "bound", "model": "e1000e", "bridge": {}}],
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
    assert_eq!((&interfaces[2]["model"], &interfaces[2]["masquerade"]), (&json!("e1000e"), &Value::Null));
    assert_eq!((&devices["sound"]["model"], &devices["video"]["type"]), (&json!("ac97"), &json!("virtio")));
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

#[test]
fn requirements_of_a_preference() {
    let needs = |cpu: Value, required: Value| json!({"cpu": cpu, "requirements": required});
    let two = || json!({"cpu": {"guest": 3}});
    let cpu = |cpu: Value| json!({"domain": {"devices": {}, "cpu": cpu}});
    let lacking = [
        (size(json!({})), json!({"domain": {"devices": {}}}), needs(json!({}), two()), "spec.instancetype"),
        (
            size(json!({})),
            json!({"domain": {"devices": {}}}),
            needs(json!({}), json!({"memory": {"guest": "3Gi"}})),
            "spec.instancetype",
        ),
        (Value::Null, cpu(json!({"sockets": 2})), needs(json!({}), two()), "spec.template.spec.domain.cpu.sockets"),
        (
            Value::Null,
            cpu(json!({"sockets": 4, "cores": 2})),
            needs(json!({"preferredCPUTopology": "cores"}), two()),
            "spec.template.spec.domain.cpu.cores",
        ),
        (
            Value::Null,
            cpu(json!({"cores": 2})),
            needs(json!({"preferredCPUTopology": "any"}), two()),
            "spec.template.spec.domain.cpu.cores",
        ),
        (
            Value::Null,
            json!({"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}),
            needs(json!({}), json!({"memory": {"guest": "2Gi"}})),
            "spec.template.spec.domain.memory",
        ),
        (
            Value::Null,
            json!({"domain": {"devices": {}}}),
            needs(json!({}), json!({"architecture": "arm64"})),
            "spec.template.spec.architecture",
        ),
    ];
    for (instancetype, spec, preference, path) in lacking {
        let faults = refused(spec.clone(), &sizing(instancetype, preference.clone()));
        assert_eq!(faults[0].path.as_str(), path, "{spec} {preference}");
        assert_eq!(faults[0].code.reason(), "FieldValueNotFound");
    }
    let met = [
        (size(json!({"cpu": {"guest": 3}})), json!({"domain": {"devices": {}}}), needs(json!({}), two())),
        (Value::Null, cpu(json!({"cores": 3})), needs(json!({"preferredCPUTopology": "any"}), two())),
        (Value::Null, cpu(json!({"sockets": 2, "cores": 2})), needs(json!({"preferredCPUTopology": "spread"}), two())),
        (Value::Null, json!({"domain": {"devices": {}}}), needs(json!({}), json!({"architecture": "amd64"}))),
    ];
    for (instancetype, spec, preference) in met {
        template(spec, &sizing(instancetype, preference));
    }
}

#[test]
fn an_expanded_machine_names_neither_and_has_its_defaults() {
    let mut vm = machine(json!({"domain": {"devices": {}}}));
    vm.spec.instancetype = serde_json::from_value(json!({"name": "a"})).unwrap();
    vm.spec.preference = serde_json::from_value(json!({"name": "b"})).unwrap();
    vm.status =
        serde_json::from_value(json!({"instancetypeRef": {"name": "a"}, "preferenceRef": {"name": "b"}})).unwrap();
    let sizing = sizing(size(json!({})), json!({"devices": {"preferredInterfaceModel": "e1000e"}}));
    let written = serde_json::to_value(expanded(&vm, &sizing, &ClusterConfig::offline()).unwrap()).unwrap();
    assert_eq!((&written["spec"]["instancetype"], &written["spec"]["preference"]), (&Value::Null, &Value::Null));
    assert_eq!(written["status"], json!({}));
    let spec = &written["spec"]["template"]["spec"];
    assert_eq!((&spec["domain"]["cpu"]["sockets"], &spec["architecture"]), (&json!(2), &json!("amd64")));
    assert_eq!(spec["domain"]["devices"]["interfaces"][0]["model"], "e1000e");
    assert_eq!(spec["domain"]["firmware"]["uuid"], Value::Null, "it is not made up here");
}

#[test]
fn admission_takes_platform_and_storage_class_of_a_preference() {
    let mut vm = machine(json!({"domain": {"devices": {}}}));
    vm.spec.data_volume_templates = serde_json::from_value(json!([
        {"metadata": {"name": "a"}, "spec": {"storage": {}}}, {"metadata": {"name": "b"}, "spec": {"pvc": {}}},
        {"metadata": {"name": "c"}, "spec": {"storage": {"storageClassName": "own"}}},
    ]))
    .unwrap();
    let sizing = sizing(
        Value::Null,
        json!({"volumes": {"preferredStorageClassName": "fast"}, "machine": {"preferredMachineType": "q35"}}),
    );
    settle(&mut vm, sizing.preference.as_ref().unwrap());
    let written = serde_json::to_value(&vm.spec).unwrap();
    let class =
        |index: usize, form: &str| written["dataVolumeTemplates"][index]["spec"][form]["storageClassName"].clone();
    assert_eq!(
        [class(0, "storage"), class(1, "pvc"), class(2, "storage")],
        [json!("fast"), json!("fast"), json!("own")]
    );
    assert_eq!(written["template"]["spec"]["domain"]["machine"]["type"], "q35");
}

#[test]
fn an_instance_is_annotated_with_what_it_was_sized_by() {
    let table = [
        (json!({"instancetype": {"name": "a"}}), json!({"kubevirt.io/cluster-instancetype-name": "a"})),
        (
            json!({"instancetype": {"name": "a", "kind": "VirtualMachineInstancetype"}}),
            json!({"kubevirt.io/instancetype-name": "a"}),
        ),
        (
            json!({"preference": {"name": "p", "kind": "virtualmachineclusterpreferences"}}),
            json!({"kubevirt.io/cluster-preference-name": "p"}),
        ),
        (
            json!({"preference": {"name": "p", "kind": "virtualmachinepreference"}}),
            json!({"kubevirt.io/preference-name": "p"}),
        ),
        (json!({}), Value::Null),
    ];
    for (named, annotations) in table {
        let mut object = serde_json::to_value(machine(json!({"domain": {"devices": {}}}))).unwrap();
        merge(&mut object["spec"], &named);
        let vmi = vmi_of(&serde_json::from_value(object).unwrap());
        assert_eq!(serde_json::to_value(vmi.metadata.annotations).unwrap(), annotations, "{named}");
    }
}

#[test]
fn a_revision_has_the_name_labels_and_content_of_kubevirts() {
    let object = json!({
        "apiVersion": "instancetype.kubevirt.io/v1", "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "u1.small", "uid": "7f", "generation": 3, "labels": {"a": "b"}, "annotations": {"a": "b"},
            "managedFields": [], "resourceVersion": "9"},
        "spec": size(json!({})),
    });
    let made = revision::of("web", Kind::VirtualMachineClusterInstancetype, &object).unwrap();
    assert_eq!(made.name, "web-u1.small-v1beta1-7f-3");
    let label = |key: &str| made.labels[&format!("instancetype.kubevirt.io/object-{key}")].as_str();
    assert_eq!(
        [label("name"), label("uid"), label("generation"), label("version")],
        ["u1.small", "7f", "3", "v1beta1"]
    );
    assert_eq!(label("kind"), "VirtualMachineClusterInstancetype");
    assert_eq!(made.data["apiVersion"], "instancetype.kubevirt.io/v1beta1");
    assert_eq!(
        made.data["metadata"],
        json!({"name": "u1.small", "uid": "7f", "generation": 3, "resourceVersion": "9"})
    );
    assert_eq!(made.data["spec"], object["spec"]);
    assert_eq!(revision::kind(Role::Instancetype, &made.data), Some(Kind::VirtualMachineClusterInstancetype));
    assert_eq!(revision::kind(Role::Preference, &made.data), None);
    assert!(revision::is_current(Some(&made.labels)) && !revision::is_current(None));
    assert_eq!(revision::of("web", Kind::VirtualMachineInstancetype, &json!({"metadata": {"name": "a"}})), None);
}

/// A machine that infers both from its volume `root`.
fn inferring(volume: Value, policy: Option<&str>, templates: Value) -> VirtualMachine {
    let matcher = json!({"inferFromVolume": "root", "inferFromVolumeFailurePolicy": policy});
    let mut volume = volume;
    volume["name"] = json!("root");
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"instancetype": matcher, "preference": matcher, "dataVolumeTemplates": templates,
            "template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}, "volumes": [volume]}}},
    }))
    .unwrap()
}

/// What a machine infers in a world of objects, by kind and name; and what was looked at.
fn inferred(vm: &VirtualMachine, role: Role, world: &[(&str, Value)]) -> (Next, Vec<String>) {
    let mut next = infer::begin(vm, &infer::is_due(vm, role).unwrap());
    let mut looks = Vec::new();
    while let Next::Look(look) = &next {
        let key = format!("{} {}/{}", look.source.kind(), look.namespace, look.name);
        let found = world.iter().find(|(known, _)| *known == key).map(|(_, object)| object);
        next = infer::follow(look, found, role, "shop");
        looks.push(key);
    }
    (next, looks)
}

fn labels() -> Value {
    json!({"metadata": {"labels": {
        "instancetype.kubevirt.io/default-instancetype": "u1.small",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
        "instancetype.kubevirt.io/default-preference": "fedora",
    }}})
}

#[test]
fn a_volume_names_what_is_behind_it() {
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let data = json!({"dataVolume": {"name": "d"}});
    let copies = json!({"spec": {"source": {"pvc": {"name": "c", "namespace": "images"}}}});
    let refers = json!({"spec": {"sourceRef": {"kind": "DataSource", "name": "s", "namespace": "images"}}});
    let template = |spec: &Value| json!([{"metadata": {"name": "d"}, "spec": spec["spec"]}]);
    let of_source = json!({"spec": {"source": {"pvc": {"name": "c", "namespace": "images"}}}});
    let (in_shop, in_images) = ("PersistentVolumeClaim shop/c", "PersistentVolumeClaim images/c");
    let (volume, source) = ("DataVolume shop/d", "DataSource images/s");
    let none = json!([]);
    let table = [
        (&claim, none.clone(), vec![(in_shop, labels())]),
        (&data, none.clone(), vec![(volume, labels())]),
        (&data, none.clone(), vec![(volume, copies.clone()), (in_images, labels())]),
        (&data, none.clone(), vec![(volume, refers.clone()), (source, labels())]),
        (&data, none.clone(), vec![(volume, refers.clone()), (source, of_source.clone()), (in_images, labels())]),
        (&data, template(&copies), vec![(in_images, labels())]),
        (&data, template(&refers), vec![(source, labels())]),
        (&data, template(&refers), vec![(source, of_source), (in_images, labels())]),
    ];
    for (volume, templates, world) in table {
        let vm = inferring(volume.clone(), None, templates);
        let (found, looks) = inferred(&vm, Role::Instancetype, &world);
        let (name, kind) = ("u1.small".to_owned(), "VirtualMachineInstancetype".to_owned());
        assert_eq!(found, Next::Named { name, kind }, "{volume} {world:?}");
        assert_eq!(looks, world.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>());
        let (found, _) = inferred(&vm, Role::Preference, &world);
        assert_eq!(found, Next::Named { name: "fedora".to_owned(), kind: String::new() });
    }
    let gone = [("PersistentVolumeClaim shop/d", labels())];
    let (found, looks) = inferred(&inferring(data, None, none), Role::Preference, &gone);
    assert!(matches!(found, Next::Named { .. }), "the DataVolume was removed once it was filled");
    assert_eq!(looks, [volume, "PersistentVolumeClaim shop/d"]);
}

#[test]
fn what_names_nothing_is_ignored_or_refused_as_the_policy_has_it() {
    let bare = json!({"metadata": {}});
    let disk = json!({"containerDisk": {"image": "i"}});
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let data = json!({"dataVolume": {"name": "d"}});
    let http = json!({"spec": {"source": {"http": {"url": "http://x.example"}}}});
    let other = json!({"spec": {"sourceRef": {"kind": "Other", "name": "s"}}});
    let table: [(&Value, Vec<(&str, Value)>, bool); 6] = [
        (&disk, vec![], true),
        (&claim, vec![("PersistentVolumeClaim shop/c", bare)], true),
        (&claim, vec![], false),
        (&data, vec![], false),
        (&data, vec![("DataVolume shop/d", http)], true),
        (&data, vec![("DataVolume shop/d", other)], true),
    ];
    for (volume, world, is_ignorable) in table {
        for policy in [None, Some("Reject"), Some("Ignore")] {
            let mut vm = inferring(volume.clone(), policy, json!([]));
            let (found, _) = inferred(&vm, Role::Preference, &world);
            let Next::Nothing(problem) = &found else { panic!("{volume} {world:?}: {found:?}") };
            assert_eq!(problem.is_ignorable, is_ignorable, "{volume} {world:?}");
            let settled = infer::settle(&mut vm, Role::Preference, found);
            assert_eq!(settled.is_ok(), is_ignorable && policy == Some("Ignore"), "{volume} {policy:?}");
            assert_eq!(vm.spec.preference.is_none(), settled.is_ok());
        }
    }
}

#[test]
fn what_is_inferred_takes_the_place_of_the_volume() {
    for (policy, keeps) in [(Some("Ignore"), false), (None, true)] {
        let mut vm = inferring(json!({"persistentVolumeClaim": {"claimName": "c"}}), policy, json!([]));
        let world = [("PersistentVolumeClaim shop/c", labels())];
        for role in Role::BOTH {
            let (found, _) = inferred(&vm, role, &world);
            infer::settle(&mut vm, role, found).unwrap();
        }
        let written = serde_json::to_value(&vm.spec).unwrap();
        assert_eq!(written["instancetype"], json!({"name": "u1.small", "kind": "VirtualMachineInstancetype"}));
        assert_eq!(written["preference"], json!({"name": "fedora"}));
        let memory = &written["template"]["spec"]["domain"]["memory"];
        assert_eq!(memory.is_null(), !keeps, "a size for the case that nothing is named");
        assert!(infer::is_due(&vm, Role::Instancetype).is_none());
    }
    let both: VirtualMachine =
        serde_json::from_value(json!({"spec": {"instancetype": {"name": "a", "inferFromVolume": "root"}}})).unwrap();
    assert!(infer::is_due(&both, Role::Instancetype).is_none(), "the rules refuse it");
    let look = Look { source: Source::Claim, namespace: "n".to_owned(), name: "c".to_owned() };
    assert!(matches!(infer::follow(&look, None, Role::Preference, "n"), Next::Nothing(_)));
}

#[test]
fn the_status_follows_the_matcher() {
    let mut vm = machine(json!({"domain": {"devices": {}}}));
    vm.spec.instancetype = serde_json::from_value(json!({"name": "a", "kind": "VirtualMachineInstancetype"})).unwrap();
    let matcher = Matcher::of(&vm, Role::Instancetype).unwrap();
    assert_eq!(matcher.revision(&vm), None);
    let status = matcher.status(Some("web-a"), None);
    assert!(matcher.is_of(&status));
    vm.status.get_or_insert_default().instancetype_ref = Some(status.clone());
    assert_eq!(Matcher::of(&vm, Role::Instancetype).unwrap().revision(&vm), Some("web-a"));
    vm.spec.instancetype = serde_json::from_value(json!({"name": "b", "kind": "VirtualMachineInstancetype"})).unwrap();
    let renamed = Matcher::of(&vm, Role::Instancetype).unwrap();
    assert_eq!((renamed.revision(&vm), renamed.is_of(&status)), (None, false));
    vm.spec.instancetype = serde_json::from_value(json!({"name": "b", "revisionName": "mine"})).unwrap();
    assert_eq!(Matcher::of(&vm, Role::Instancetype).unwrap().revision(&vm), Some("mine"));
}
