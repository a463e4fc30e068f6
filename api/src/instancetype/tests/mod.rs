//! What KubeVirt's own tests of instancetypes show (`pkg/instancetype`, 1.7), as tables.

use serde_json::{Value, json};

use super::{Matcher, Role, Sizing, expanded, revision, settle, sized};
use crate::cluster::ClusterConfig;
use crate::defaults::vmi_of;
use crate::fault::Fault;
use crate::kind::Kind;
use crate::v1::VirtualMachine;

mod infer;
mod prefer;

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
    // The third is what single precision makes of it; whole numbers would give 114085068.
    for (guest, percent, requested) in
        [("2Gi", 25, "1536Mi"), ("2Gi", 50, "1Gi"), ("128Mi", 15, "114085072"), ("2Gi", 100, "0")]
    {
        let memory = json!({"memory": {"guest": guest, "overcommitPercent": percent}});
        let spec = template(json!({"domain": {"devices": {}}}), &sizing(size(memory), Value::Null));
        assert_eq!(spec["domain"]["resources"]["requests"]["memory"], requested, "{guest} {percent}");
        assert_eq!(spec["domain"]["memory"]["guest"], guest);
    }
}

#[test]
fn an_instancetype_without_memory_or_vcpus_gives_none_and_one() {
    let none = sizing(json!({"cpu": {"guest": 0}, "memory": {"guest": "0"}}), Value::Null);
    let spec = template(json!({"domain": {"devices": {}}}), &none);
    assert_eq!(spec["domain"]["cpu"], json!({"sockets": 1, "cores": 1, "threads": 1}));
    assert_eq!(spec["domain"]["memory"], json!({}));
    let faults = refused(json!({"domain": {"memory": {"guest": "1Gi"}}}), &none);
    assert_eq!(faults[0].path.as_str(), "spec.template.spec.domain.memory.guest", "a conflict all the same");
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
        let path = format!("{at}.{place}");
        assert_eq!(faults[0].path.as_str(), path);
        assert_eq!(faults[0].field, path.replace("dedicatedCpu", "dedicatedCPU"), "as KubeVirt spells it");
        assert!(faults[0].message.contains(&format!("`{source}`")), "{spec}: {}", faults[0]);
        let sent = format!("VM field(s) {} conflicts with selected instance type", faults[0].field);
        assert_eq!(faults[0].sent_text(), Some(sent));
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
        let text = faults[0].to_string();
        let what = if path.ends_with("architecture") { "the preference requires" } else { "insufficient " };
        assert!(text.contains(&format!("failure checking preference requirements: {what}")), "{text}");
        let is_of_memory = preference["requirements"]["memory"].is_object();
        assert_eq!(text.contains("insufficient Memory resources"), is_of_memory, "{text}");
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
    let mut waiting = machine(json!({"domain": {"devices": {}}}));
    waiting.spec.instancetype = serde_json::from_value(json!({"name": "later"})).unwrap();
    let preference = sizing(Value::Null, needs(json!({}), two()));
    assert!(sized(&waiting, &preference, &ClusterConfig::offline()).is_ok(), "its instancetype is not known yet");
}

#[test]
fn an_expanded_machine_names_neither_and_has_its_defaults() {
    let mut vm = machine(json!({"domain": {"devices": {}}}));
    vm.spec.instancetype = serde_json::from_value(json!({"name": "a"})).unwrap();
    vm.spec.preference = serde_json::from_value(json!({"name": "b"})).unwrap();
    vm.status =
        serde_json::from_value(json!({"instancetypeRef": {"name": "a"}, "preferenceRef": {"name": "b"}})).unwrap();
    let sizing = sizing(size(json!({})), json!({"devices": {"preferredInterfaceModel": "some-card"}}));
    let written = serde_json::to_value(expanded(&vm, &sizing, &ClusterConfig::offline()).unwrap()).unwrap();
    assert_eq!((&written["spec"]["instancetype"], &written["spec"]["preference"]), (&Value::Null, &Value::Null));
    assert_eq!(written["status"], json!({}));
    let spec = &written["spec"]["template"]["spec"];
    let cpu = json!({"sockets": 2, "cores": 1, "threads": 1});
    assert_eq!((&spec["domain"]["cpu"], &spec["architecture"]), (&cpu, &json!("amd64")), "no more than KubeVirt's");
    assert_eq!(spec["domain"]["devices"]["interfaces"][0]["model"], "some-card");
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
    assert!(revision::is_named_as_now(&made.name) && !revision::is_named_as_now("web-u1.small-7f-3"));
    assert_eq!(revision::of("web", Kind::VirtualMachineInstancetype, &json!({"metadata": {"name": "a"}})), None);
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
