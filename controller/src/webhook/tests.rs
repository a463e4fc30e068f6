//! What the webhooks answer.

use garboard_api::ClusterConfig;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionResponse, AdmissionReview};
use serde_json::{Value, json};

use super::{AdmissionContext, Request, Sizes, mutate, validate};
use crate::stores::ObjectKey;

pub(super) fn machine() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {
            "devices": {"rng": {}}, "memory": {"guest": "64Mi"},
        }}}},
    })
}

fn instance() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}},
    })
}

fn request(user: &str, object: &Value, old: Option<&Value>) -> Request {
    let kind = object["kind"].as_str().unwrap();
    let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": "kubevirt.io", "version": "v1", "kind": kind},
            "resource": {"group": "kubevirt.io", "version": "v1", "resource": "x"},
            "name": "vm", "namespace": object["metadata"]["namespace"], "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "userInfo": {"username": user}, "object": object, "oldObject": old, "dryRun": false,
        },
    }))
    .unwrap();
    review.try_into().unwrap()
}

fn ask(
    judge: impl Fn(&Request, &AdmissionContext<'_>) -> AdmissionResponse,
    asked: (&str, &Value, Option<&Value>),
) -> AdmissionResponse {
    ask_sized(judge, asked, &Sizes::default())
}

pub(super) fn ask_sized(
    judge: impl Fn(&Request, &AdmissionContext<'_>) -> AdmissionResponse,
    (user, object, old): (&str, &Value, Option<&Value>),
    sizes: &Sizes,
) -> AdmissionResponse {
    let config = ClusterConfig::offline();
    let kubevirts = [ObjectKey::new("kubevirt", "first")];
    let context = AdmissionContext {
        config: &config,
        namespace: "garboard",
        fresh: uuid::Uuid::from_u128(7),
        kubevirts: &kubevirts,
        sizes,
        presets: &[],
        trace: None,
    };
    judge(&request(user, object, old), &context)
}

/// What a new instance is stored as where there are these presets, or why it is refused; and the warnings.
pub(super) fn with_presets(object: &Value, presets: &[Value]) -> (Result<Value, String>, Vec<String>) {
    let config = ClusterConfig::offline();
    let presets: Vec<_> = presets.iter().map(|each| serde_json::from_value(each.clone()).unwrap()).collect();
    let context = AdmissionContext {
        config: &config,
        namespace: "garboard",
        fresh: uuid::Uuid::from_u128(7),
        kubevirts: &[],
        sizes: &Sizes::default(),
        presets: &presets,
        trace: None,
    };
    let response = mutate(&request("me", object, None), &context, jiff::Timestamp::UNIX_EPOCH);
    let warnings = response.warnings.clone().unwrap_or_default();
    if !response.allowed {
        return (Err(response.result.message), warnings);
    }
    let mut after = object.clone();
    let patch: json_patch::Patch = serde_json::from_slice(&response.patch.unwrap_or(b"[]".to_vec())).unwrap();
    json_patch::patch(&mut after, &patch).unwrap();
    (Ok(after), warnings)
}

pub(super) fn preset(name: &str, domain: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"size": "small"}}, "domain": domain}})
}

fn small(domain: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "ns", "labels": {"size": "small"}}, "spec": {"domain": domain},
    })
}

pub(super) const OVERRIDDEN: &str = "garboard.dev/presets-overridden";

#[test]
fn a_new_instance_is_judged_with_what_presets_give_it() {
    let bare = small(json!({"devices": {}}));
    assert!(with_presets(&bare, &[]).0.unwrap_err().contains("memory"), "without memory there is no instance");
    let memory = preset("memory", json!({"resources": {"requests": {"memory": "64Mi"}}, "devices": {}}));
    let (stored, warnings) = with_presets(&bare, std::slice::from_ref(&memory));
    let stored = stored.unwrap();
    assert_eq!(stored["spec"]["domain"]["memory"]["guest"], "64Mi", "defaults build on it");
    assert_eq!(stored["metadata"]["annotations"]["virtualmachinepreset.kubevirt.io/memory"], "kubevirt.io/v1");
    assert_eq!(warnings, [] as [String; 0]);
    let broken = preset("broken", json!({"cpu": {"sockets": 4, "maxSockets": 2}, "devices": {}}));
    assert!(with_presets(&bare, &[memory, broken]).0.is_err(), "what a preset gives is judged, too");
}

#[test]
fn what_an_instance_has_of_its_own_is_a_warning_and_an_annotation() {
    let mut own = small(json!({"devices": {}, "cpu": {"cores": 1}, "memory": {"guest": "64Mi"}}));
    own["metadata"]["annotations"] = json!({ OVERRIDDEN: "what a user wrote" });
    let (stored, warnings) = with_presets(&own, &[preset("big", json!({"cpu": {"cores": 2}, "devices": {}}))]);
    let stored = stored.unwrap();
    assert_eq!(stored["spec"]["domain"]["cpu"]["cores"], 1);
    assert_eq!(stored["metadata"]["annotations"][OVERRIDDEN], "big: spec.domain.cpu");
    assert!(warnings.len() == 1 && warnings[0].contains("the preset big"), "{warnings:?}");
    let (stored, warnings) = with_presets(&own, &[]);
    assert_eq!((stored.unwrap()["metadata"]["annotations"].get(OVERRIDDEN), warnings.len()), (None, 0));
}

#[test]
fn presets_that_do_not_agree_refuse_an_instance_and_no_machine() {
    let presets =
        [2, 3].map(|cores| preset(&format!("cores-{cores}"), json!({"cpu": {"cores": cores}, "devices": {}})));
    let instance = small(json!({"devices": {}, "memory": {"guest": "64Mi"}}));
    let refused = with_presets(&instance, &presets).0.unwrap_err();
    assert!(refused.contains("cores-2 and cores-3") && refused.contains("spec.domain.cpu"), "{refused}");
    let mut vm = machine();
    vm["metadata"]["labels"] = json!({"size": "small"});
    let stored = with_presets(&vm, &presets).0.unwrap();
    assert!(stored["spec"]["template"]["spec"]["domain"].get("cpu").is_none(), "{stored}");
}

fn replicas(spec: Value) -> Value {
    let mut set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": "set", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"size": "small"}}, "template": {
            "metadata": {"labels": {"size": "small"}}, "spec": instance()["spec"],
        }},
    });
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    set
}

#[test]
fn a_set_gets_a_number_and_nothing_else() {
    let after = filled(&replicas(json!({})));
    assert_eq!(after, replicas(json!({"replicas": 1})));
    assert_eq!(filled(&after), after);
    let refused = ask(validate, ("me", &replicas(json!({"selector": {"matchLabels": {"size": "big"}}})), None));
    let cause = &refused.result.details.unwrap().causes[0];
    assert_eq!((refused.allowed, cause.field.as_str()), (false, "spec.selector"));
}

fn pool(spec: Value) -> Value {
    let mut pool = json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "pool", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"size": "small"}}, "virtualMachineTemplate": {
            "metadata": {"labels": {"size": "small"}}, "spec": machine()["spec"],
        }},
    });
    pool["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pool
}

#[test]
fn a_pool_gets_a_number_and_keeps_its_selector() {
    let stored = filled(&pool(json!({})));
    assert_eq!(stored, pool(json!({"replicas": 1})), "its machines get their defaults, and it none of them");
    let changed = |spec: Value| ask(validate, ("me", &pool(spec), Some(&stored)));
    assert!(changed(json!({"replicas": 3})).allowed);
    let alike = json!({"replicas": 3, "selector": {"matchLabels": {"size": "small"}, "matchExpressions": []}});
    assert!(changed(alike).allowed);
    let selector = json!({"matchExpressions": [{"key": "size", "operator": "Exists"}]});
    let refused = changed(json!({ "selector": selector }));
    let cause = &refused.result.details.unwrap().causes[0];
    assert_eq!((refused.allowed, cause.field.as_str()), (false, "spec.selector"));
    assert!(cause.message.contains("never changes"), "{}", cause.message);
}

#[test]
fn the_template_of_a_pool_is_judged_as_its_machines() {
    let mut bad = pool(json!({}));
    bad["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"coers": 2});
    let response = ask(validate, ("me", &bad, None));
    let cause = &response.result.details.unwrap().causes[0];
    assert_eq!(cause.field, "spec.virtualMachineTemplate.spec.template.spec.domain.cpu.coers");
}

pub(super) fn filled(object: &Value) -> Value {
    filled_for("me", object)
}

fn filled_for(user: &str, object: &Value) -> Value {
    patched(user, object, None)
}

fn patched(user: &str, object: &Value, old: Option<&Value>) -> Value {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let response = ask(|request, context| mutate(request, context, now), (user, object, old));
    assert!(response.allowed, "{}", response.result.message);
    let mut after = object.clone();
    let patch: json_patch::Patch = serde_json::from_slice(&response.patch.unwrap_or(b"[]".to_vec())).unwrap();
    json_patch::patch(&mut after, &patch).unwrap();
    after
}

#[test]
fn a_machine_gets_its_few_defaults_and_the_finalizer() {
    let after = filled(&machine());
    assert_eq!(after["metadata"]["finalizers"], json!(["kubevirt.io/virtualMachineControllerFinalize"]));
    assert_eq!(after["spec"]["template"]["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(filled(&after), after, "filling in twice changes nothing");
}

#[test]
fn a_fraction_is_stored_as_a_text_for_the_schema_takes_no_other() {
    let mut written = machine();
    written["spec"]["template"]["spec"]["domain"]["resources"] =
        json!({"requests": {"cpu": 1.5}, "limits": {"cpu": 2}});
    let resources = &filled(&written)["spec"]["template"]["spec"]["domain"]["resources"];
    assert_eq!((&resources["requests"]["cpu"], &resources["limits"]["cpu"]), (&json!("1.5"), &json!(2)));
}

#[test]
fn a_machine_is_known_to_its_guest_by_what_was_made_up_once() {
    let made = filled(&machine());
    let firmware = |vm: &Value| vm["spec"]["template"]["spec"]["domain"]["firmware"].clone();
    assert_eq!(firmware(&made)["uuid"], "00000000-0000-0000-0000-000000000007");
    assert_ne!(firmware(&made)["serial"], firmware(&made)["uuid"]);
    // The manifest again, with something else changed: a client that replaces an object does not have it.
    let mut replaced = machine();
    replaced["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"cores": 2});
    assert_eq!(firmware(&patched("me", &replaced, Some(&made))), firmware(&made));
    // One that was stored without stays without: it follows from its name.
    let response = patched("me", &replaced, Some(&machine()));
    assert_eq!(firmware(&response), Value::Null);
}

#[test]
fn an_instance_is_filled_in_whole_and_its_status_is_not_the_clients() {
    let mut lying = instance();
    lying["status"] = json!({"phase": "Running", "nodeName": "node-1"});
    let after = filled(&lying);
    assert_eq!(after["status"]["phase"], "Pending");
    assert_eq!(after["status"].get("nodeName"), None);
    // What an earlier instance decided is the controller's to write.
    lying["status"] = json!({"storedMachine": {"machineType": "pc-q35-7.2"}, "virtualMachineRevisionName": "r"});
    assert_eq!(filled(&lying)["status"].get("storedMachine"), None);
    assert_eq!(filled(&lying)["status"].get("virtualMachineRevisionName"), None);
    let ours = filled_for("system:serviceaccount:garboard:garboard-controller", &lying);
    assert_eq!(ours["status"]["storedMachine"]["machineType"], "pc-q35-7.2");
    assert_eq!(ours["status"]["virtualMachineRevisionName"], "r");
    assert_eq!(after["spec"]["domain"]["firmware"]["uuid"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(after["spec"]["networks"][0]["name"], "default");
    assert_eq!(filled(&after), after);
}

#[test]
fn every_mistake_is_reported_with_its_path_and_what_to_write() {
    let mut bad = machine();
    bad["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"coers": 2});
    bad["spec"]["template"]["spec"]["evictionStrategy"] = json!("Migrate");
    let now = jiff::Timestamp::UNIX_EPOCH;
    for response in
        [ask(|request, context| mutate(request, context, now), ("me", &bad, None)), ask(validate, ("me", &bad, None))]
    {
        assert!(!response.allowed);
        assert_eq!((response.result.code, response.result.reason.as_str()), (422, "Invalid"));
        let causes = response.result.details.unwrap().causes;
        let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["spec.template.spec.domain.cpu.coers", "spec.template.spec.evictionStrategy"]);
        assert!(response.result.message.contains("did you mean `cores`"), "{}", response.result.message);
    }
}

#[test]
fn what_a_guest_was_started_with_does_not_change() {
    let old = filled(&instance());
    let mut new = old.clone();
    new["spec"]["domain"]["memory"]["guest"] = json!("128Mi");
    for user in ["me", "system:serviceaccount:garboard:garboard-node"] {
        let response = ask(validate, (user, &new, Some(&old)));
        assert!(response.result.message.starts_with("spec.domain.memory.guest: "), "{}", response.result.message);
    }
}

#[test]
fn the_controller_alone_may_give_a_guest_another_time() {
    let mut written = filled(&instance());
    written["spec"]["terminationGracePeriodSeconds"] = json!(45);
    has_another_time(&filled(&instance()), 30);
    has_another_time(&written, 45);
}

/// `own`: what it has, written or not.
fn has_another_time(old: &Value, own: i64) {
    let with = |seconds: Value| {
        let mut new = old.clone();
        new["spec"]["terminationGracePeriodSeconds"] = seconds;
        new
    };
    let controller = "system:serviceaccount:garboard:garboard-controller";
    let mut and_more = with(json!(0));
    and_more["spec"]["domain"]["memory"]["guest"] = json!("128Mi");
    let table = [
        (controller, with(json!(0)), ""),
        (controller, with(json!(own - 1)), ""),
        (controller, with(json!(own + 1)), ""),
        ("me", with(json!(own + 1)), "spec.terminationGracePeriodSeconds: "),
        (controller, with(json!(-1)), "spec.terminationGracePeriodSeconds: "),
        (controller, with(Value::Null), "spec.terminationGracePeriodSeconds: "),
        (controller, and_more, "spec.domain.memory.guest: "),
        ("system:serviceaccount:garboard:garboard-node", with(json!(0)), "spec.terminationGracePeriodSeconds: "),
        ("system:serviceaccount:other:garboard-controller", with(json!(0)), "spec.terminationGracePeriodSeconds: "),
        ("me", with(json!(0)), "spec.terminationGracePeriodSeconds: "),
    ];
    for (user, new, refused) in table {
        let response = ask(validate, (user, &new, Some(old)));
        let message = response.result.message;
        assert!(response.allowed == refused.is_empty() && message.starts_with(refused), "{user} {new}: {message}");
    }
}

#[test]
fn the_status_and_the_labels_of_an_instance_are_ours() {
    let old = filled(&instance());
    let mut running = old.clone();
    running["status"]["phase"] = json!("Running");
    let mut moved = old.clone();
    moved["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "node-2"});
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"app": "web"});
    for (object, mine, anybodys) in [(&running, true, false), (&moved, true, false), (&labelled, true, true)] {
        let answer = |user: &str| ask(validate, (user, object, Some(&old))).allowed;
        assert_eq!(answer("system:serviceaccount:garboard:garboard-controller"), mine);
        assert_eq!(answer("system:serviceaccount:other:garboard-controller"), anybodys);
    }
    let mut logs = old.clone();
    logs["metadata"]["labels"] = json!({"logVerbosity": "high"});
    let refused = ask(validate, ("me", &logs, Some(&old))).result.message;
    assert!(refused.contains("metadata.labels") && refused.contains("no whole number"), "{refused}");
    // What is there already does not keep anything else from changing.
    let mut more = logs.clone();
    more["metadata"]["labels"]["app"] = json!("web");
    assert!(ask(validate, ("me", &more, Some(&logs))).allowed);
    for label in ["kubevirt.io/nodeName", "kubevirt.io/outdatedLauncherImage"] {
        let mut born = instance();
        born["metadata"]["labels"] = json!({label: "node-2"});
        assert!(!ask(validate, ("me", &born, None)).allowed);
    }
}

#[test]
fn what_has_the_mark_of_an_outdated_supervisor_can_be_changed() {
    let mark = json!({"kubevirt.io/outdatedLauncherImage": ""});
    let mut old = filled(&instance());
    old["metadata"]["labels"] = mark.clone();
    let mut new = old.clone();
    new["metadata"]["labels"]["app"] = json!("web");
    assert!(ask(validate, ("me", &new, Some(&old))).allowed);
    new["metadata"]["labels"] = json!({"app": "web"});
    assert!(!ask(validate, ("me", &new, Some(&old))).allowed, "it is the controller's to take away");
    // Earlier versions let templates have it.
    let mut old = machine();
    old["spec"]["template"]["metadata"] = json!({"labels": mark});
    let mut new = old.clone();
    new["spec"]["runStrategy"] = json!("Halted");
    let new = patched("me", &new, Some(&old));
    assert!(ask(validate, ("me", &new, Some(&old))).allowed);
}

#[test]
fn what_leaves_and_what_only_loses_a_finalizer_is_let_through() {
    let mut bad = machine();
    bad["spec"]["runStrategy"] = json!("Sometimes");
    let mut without = bad.clone();
    without["metadata"]["finalizers"] = json!([]);
    assert!(ask(validate, ("me", &without, Some(&bad))).allowed);
    bad["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(ask(validate, ("me", &bad, Some(&machine()))).allowed);
}

#[test]
fn a_cluster_has_its_settings_once() {
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "second", "namespace": "garboard"}, "spec": {}});
    let response = ask(validate, ("me", &object, None));
    assert!(response.result.message.contains("kubevirt/first"), "{}", response.result.message);
}

#[test]
fn settings_are_taken_in_the_namespace_of_the_installation_only() {
    let mut object = json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "mine", "namespace": "ns"}, "spec": {}});
    let response = ask(validate, ("me", &object, None));
    assert!(!response.allowed);
    assert!(response.result.message.starts_with("metadata.namespace: "), "{}", response.result.message);
    assert!(response.result.message.contains("write `garboard`"), "{}", response.result.message);
    // One that was stored while no webhook was asked is not changed either, and may go.
    let old = object.clone();
    object["spec"]["configuration"] = json!({"evictionStrategy": "None"});
    assert!(!ask(validate, ("me", &object, Some(&old))).allowed);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(ask(validate, ("me", &object, Some(&old))).allowed);
}

/// As a backup without the status has it: filled in, and with the annotation.
fn saved() -> Value {
    let mut vm = filled(&machine());
    let firmware = vm["spec"]["template"]["spec"]["domain"]["firmware"].clone();
    let kept = json!({"namespace": "ns", "name": "vm", "firmware": firmware, "machine": {
        "version": 2, "machineType": "pc-q35-7.2", "cpu": "max", "pci": {"ports": [], "devices": {}},
        "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {}}});
    vm["metadata"]["annotations"] = json!({"garboard.dev/stored-machine": kept.to_string()});
    vm
}

#[test]
fn a_restored_machine_keeps_its_firmware_and_a_copy_of_the_manifest_has_its_own() {
    let firmware = |vm: &Value| vm["spec"]["template"]["spec"]["domain"]["firmware"].clone();
    let mut saved = saved();
    saved["spec"]["template"]["spec"]["domain"]["firmware"] =
        json!({"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "s-1"});
    let text = saved["metadata"]["annotations"]["garboard.dev/stored-machine"].as_str().unwrap();
    let mut kept: Value = serde_json::from_str(text).unwrap();
    kept["firmware"] = firmware(&saved);
    saved["metadata"]["annotations"]["garboard.dev/stored-machine"] = json!(kept.to_string());
    assert_eq!(filled(&saved), saved);
    let mut bare = saved.clone();
    bare["spec"]["template"]["spec"]["domain"].as_object_mut().unwrap().remove("firmware");
    assert_eq!(firmware(&filled(&bare)), firmware(&saved), "a manifest that never had it");
    for (key, value) in [("name", "copy"), ("namespace", "elsewhere")] {
        let mut copy = saved.clone();
        copy["metadata"][key] = json!(value);
        let after = filled(&copy);
        assert_eq!(firmware(&after)["uuid"], "00000000-0000-0000-0000-000000000007");
        assert_ne!(firmware(&after)["serial"], "s-1");
        assert_eq!(after["metadata"]["annotations"], json!({}));
        let now = jiff::Timestamp::UNIX_EPOCH;
        let warnings = ask(|request, context| mutate(request, context, now), ("me", &copy, None)).warnings.unwrap();
        assert!(warnings[0].contains("a copy of ns/vm"), "{warnings:?}");
        // Applied once more, it does not become the original.
        copy["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"cores": 2});
        assert_eq!(firmware(&patched("me", &copy, Some(&after))), firmware(&after));
        // What its author has written for it stays.
        copy["spec"]["template"]["spec"]["domain"]["firmware"] =
            json!({"uuid": "11111111-1111-4111-8111-111111111111", "serial": "mine"});
        assert_eq!(firmware(&filled(&copy)), firmware(&copy));
    }
}

#[test]
fn what_a_user_writes_into_the_kept_machine_is_judged() {
    let text = saved()["metadata"]["annotations"]["garboard.dev/stored-machine"].as_str().unwrap().to_owned();
    let with = |text: &str| {
        let mut vm = saved();
        vm["metadata"]["annotations"]["garboard.dev/stored-machine"] = json!(text);
        vm
    };
    let at = "metadata.annotations[garboard.dev/stored-machine]";
    let rows = [
        ("{".to_owned(), at.to_owned(), "cannot be parsed"),
        (text.replace("\"version\":2", "\"version\":77"), at.to_owned(), "a newer Garboard"),
        (
            text.replace("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff"),
            format!("{at}.machine.macs[default]"),
            "no MAC address",
        ),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(65 << 10)), at.to_owned(), "at most 65536 are read"),
    ];
    for (bad, field, part) in rows {
        for old in [None, Some(saved())] {
            let response = ask(validate, ("me", &with(&bad), old.as_ref()));
            assert!(!response.allowed, "{bad}");
            let cause = response.result.details.unwrap().causes.remove(0);
            assert_eq!(cause.field, field);
            assert!(cause.message.contains(part), "{}", cause.message);
        }
        // What is there already prevents no other change, and what Garboard writes it has judged.
        let mut labelled = with(&bad);
        labelled["metadata"]["labels"] = json!({"app": "x"});
        assert!(ask(validate, ("me", &labelled, Some(&with(&bad)))).allowed);
        let ours = "system:serviceaccount:garboard:garboard-controller";
        assert!(ask(validate, (ours, &with(&bad), Some(&saved()))).allowed);
    }
    assert!(ask(validate, ("me", &saved(), None)).allowed);
}
