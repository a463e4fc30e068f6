//! What becomes of the names of a machine.

use std::collections::BTreeMap;

use garboard_api::{ClusterConfig, Phase};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::data_volumes::ProgressByName;
use crate::sizes::KeptCopy;
use crate::vm::decide::{decide, instance};

fn machine(strategy: &str, spec: Value) -> VirtualMachine {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "namespace": "shop", "uid": "vm-uid", "generation": 1},
        "spec": {"runStrategy": strategy, "instancetype": {"name": "u1.small"},
            "template": {"spec": {"domain": {"devices": {}}}}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        vm["spec"][key] = value.clone();
    }
    serde_json::from_value(vm).unwrap()
}

fn object(vcpus: u32) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "u1.small", "uid": "7f", "generation": 2},
        "spec": {"cpu": {"guest": vcpus}, "memory": {"guest": "2Gi"}},
    })
}

const COPY: &str = "web-u1.small-v1beta1-7f-2";

/// What is looked at for a machine whose instancetype is there, perhaps in a copy.
fn world(vm: VirtualMachine, copy: Option<KeptCopy>, config: ClusterConfig) -> World {
    let mut sizing = Sizing::default();
    sizing.take(Role::Instancetype, &object(2)["spec"]).unwrap();
    let kind = Kind::VirtualMachineClusterInstancetype;
    let found = vec![Found { role: Role::Instancetype, kind, object: object(2), copy }];
    let sizes = Sizes::of(&vm, &sizing, found, &config);
    World {
        vm,
        vmi: None,
        started_from: None,
        data_volumes: ProgressByName::new(),
        foreign: None,
        absent_sources: BTreeMap::new(),
        now: Timestamp::UNIX_EPOCH,
        chance: 0,
        config: config.into(),
        sizes,
    }
}

fn with_policy(policy: ReferencePolicy) -> ClusterConfig {
    ClusterConfig { reference_policy: policy, ..ClusterConfig::offline() }
}

fn kept(name: &str, is_current: bool) -> Option<KeptCopy> {
    Some(KeptCopy { name: name.to_owned(), is_current })
}

/// The machine once it has a status.
fn recorded_as(name: &str) -> VirtualMachine {
    let mut vm = machine("Always", Value::Null);
    vm.status = serde_json::from_value(json!({
        "instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": name}},
    }))
    .unwrap();
    vm
}

fn names(decision: &Decision) -> Vec<String> {
    let name = |step: &Step| match step {
        Step::KeepCopy { object } => format!("keep {}", object.metadata.name.as_deref().unwrap_or_default()),
        Step::DropCopy { name } => format!("drop {name}"),
        Step::Expand { .. } => "expand".to_owned(),
        Step::CreateVmi(_) => "create".to_owned(),
        Step::RecordRevision { .. } => "record".to_owned(),
        Step::CreateDataVolume { .. }
        | Step::DeleteVmi { .. }
        | Step::AdoptVmi { .. }
        | Step::Annotate { .. }
        | Step::Unhalt
        | Step::Keep { .. }
        | Step::RemoveFinalizer { .. } => format!("{step:?}"),
    };
    decision.steps.iter().map(name).collect()
}

#[test]
fn a_copy_is_kept_before_the_first_start_and_not_again() {
    let mut first = world(machine("Always", Value::Null), None, ClusterConfig::offline());
    let decision = decide(&first);
    assert_eq!(names(&decision), [format!("keep {COPY}")]);
    let Step::KeepCopy { object } = &decision.steps[0] else { panic!("no copy") };
    let written = serde_json::to_value(object).unwrap();
    let labels = &written["metadata"]["labels"];
    assert_eq!(labels["instancetype.kubevirt.io/object-uid"], "7f");
    assert_eq!(labels["garboard.dev/copy-for"], "vm-uid");
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], "vm-uid");
    assert_eq!(written["data"]["spec"]["cpu"]["guest"], 2);
    let status = serde_json::to_value(&decision.status.instancetype_ref).unwrap();
    assert_eq!(status, json!({"name": "u1.small", "controllerRevisionRef": {"name": COPY}}));
    first.vm.status = Some(decision.status);
    let next = world(first.vm, kept(COPY, true), ClusterConfig::offline());
    assert_eq!(names(&decide(&next)), ["record", "create"]);
    assert_eq!(instance(&next).spec.domain.cpu.unwrap().sockets, Some(2));
    let annotations = instance(&next).metadata.annotations.unwrap();
    assert_eq!(annotations["kubevirt.io/cluster-instancetype-name"], "u1.small");
}

#[test]
fn a_halted_machine_has_its_copy_too_and_is_then_left_alone() {
    let halted = world(machine("Halted", Value::Null), None, ClusterConfig::offline());
    assert!(are_needed(&halted.vm, None));
    let decision = decide(&halted);
    assert_eq!(names(&decision), [format!("keep {COPY}")]);
    let mut vm = halted.vm;
    vm.status = Some(decision.status);
    assert!(!are_needed(&vm, None), "it is not to be started");
    vm.spec.run_strategy = Some("Always".to_owned());
    assert!(are_needed(&vm, None));
    vm.spec.instancetype = None;
    assert!(!are_needed(&vm, None));
}

#[test]
fn a_machine_that_runs_as_it_was_started_needs_neither() {
    let running = world(recorded_as(COPY), kept(COPY, true), ClusterConfig::offline());
    let mut vmi = instance(&running);
    vmi.status.get_or_insert_default().phase = Some(Phase::Running.name().to_owned());
    assert!(!are_needed(&running.vm, Some(&vmi)));
    let mut changed = running.vm.clone();
    changed.metadata.generation = Some(2);
    assert!(are_needed(&changed, Some(&vmi)), "to compare with what runs");
    let mut deleted = changed;
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert!(!are_needed(&deleted, None));
}

#[test]
fn another_name_has_another_copy() {
    let mut vm = recorded_as("web-old-v1beta1-1-1");
    vm.status.as_mut().unwrap().instancetype_ref.as_mut().unwrap().name = Some("old".to_owned());
    let decision = decide(&world(vm, None, ClusterConfig::offline()));
    assert_eq!(names(&decision), [format!("keep {COPY}")]);
    let status = serde_json::to_value(&decision.status.instancetype_ref).unwrap();
    assert_eq!(status, json!({"name": "u1.small", "controllerRevisionRef": {"name": COPY}}));
}

#[test]
fn a_revision_that_the_machine_names_is_used_as_it_is() {
    let named = json!({"instancetype": {"name": "u1.small", "revisionName": "mine"}});
    let decision = decide(&world(machine("Always", named), kept("mine", false), ClusterConfig::offline()));
    assert_eq!(names(&decision), [] as [&str; 0]);
    let reference = decision.status.instancetype_ref.unwrap().controller_revision_ref.unwrap();
    assert_eq!(reference.name.as_deref(), Some("mine"));
}

#[test]
fn a_copy_of_an_earlier_form_is_made_anew_and_goes_when_the_status_names_the_new_one() {
    let decision =
        decide(&world(recorded_as("web-u1.small-7f-1"), kept("web-u1.small-7f-1", false), ClusterConfig::offline()));
    assert_eq!(names(&decision), [format!("keep {COPY}"), "drop web-u1.small-7f-1".to_owned()]);
    assert_eq!(dropped(&decision).collect::<Vec<_>>(), ["web-u1.small-7f-1"]);
    let reference = decision.status.instancetype_ref.unwrap().controller_revision_ref.unwrap();
    assert_eq!(reference.name.as_deref(), Some(COPY));
}

#[test]
fn a_halted_machine_gets_its_copy_anew_too() {
    let mut vm = recorded_as("web-u1.small-7f-1");
    vm.spec.run_strategy = Some("Halted".to_owned());
    assert!(are_needed(&vm, None));
    let decision = decide(&world(vm.clone(), kept("web-u1.small-7f-1", false), ClusterConfig::offline()));
    assert_eq!(names(&decision), [format!("keep {COPY}"), "drop web-u1.small-7f-1".to_owned()]);
    vm.status = Some(decision.status);
    assert!(!are_needed(&vm, None), "it is as a new one");
    vm.spec.instancetype.as_mut().unwrap().revision_name = Some("mine".to_owned());
    vm.status = recorded_as("mine").status;
    assert!(!are_needed(&vm, None), "its user named it");
}

#[test]
fn names_are_written_out_where_the_cluster_has_it_so() {
    for policy in [ReferencePolicy::Expand, ReferencePolicy::ExpandAll] {
        let decision = decide(&world(machine("Always", Value::Null), None, with_policy(policy)));
        assert_eq!(names(&decision), ["expand"], "{policy:?}");
        let Step::Expand { spec } = &decision.steps[0] else { panic!("not expanded") };
        assert_eq!(spec["template"]["spec"]["domain"]["cpu"]["sockets"], 2);
        assert_eq!(spec.get("instancetype"), Some(&Value::Null), "the name is taken away");
    }
    let known = || world(recorded_as(COPY), kept(COPY, true), with_policy(ReferencePolicy::Expand));
    assert_eq!(names(&decide(&known())), ["record", "create"], "a copy is kept already");
    let all = world(recorded_as(COPY), kept(COPY, true), with_policy(ReferencePolicy::ExpandAll));
    let decision = decide(&all);
    assert_eq!(names(&decision), ["expand".to_owned(), format!("drop {COPY}")]);
    assert_eq!(decision.status.instancetype_ref, None);
}

#[test]
fn what_does_not_exist_keeps_a_machine_from_its_start_and_not_from_its_stop() {
    let vm = machine("Always", json!({"preference": {"name": "fedora"}}));
    let mut lacking = world(vm, None, ClusterConfig::offline());
    let problem = lacking.sizes.problem.clone().unwrap();
    assert_eq!(problem.reason, Reason::FailedFindPreference);
    let decision = decide(&lacking);
    assert_eq!((names(&decision), decision.recheck), (vec![], Some(ASK_AGAIN)));
    let failure = decision.status.conditions.iter().find(|each| each.r#type == "Failure").unwrap();
    assert_eq!(failure.reason.as_deref(), Some("FailedFindPreference"));
    assert_eq!(decision.status.printable_status.as_deref(), Some("Stopped"), "although it is to run");
    let mut vmi = vmi_of(&lacking.vm);
    vmi.metadata.uid = Some("vmi-uid".to_owned());
    vmi.status.get_or_insert_default().phase = Some(Phase::Running.name().to_owned());
    lacking.vmi = Some(vmi);
    lacking.vm.spec.run_strategy = Some("Halted".to_owned());
    assert!(matches!(decide(&lacking).steps[..], [Step::DeleteVmi { .. }]));
}

#[test]
fn a_conflict_that_came_up_later_names_both_places() {
    let template = json!({"template": {"spec": {"domain": {"devices": {}, "cpu": {"sockets": 1}}}}});
    let conflicting = world(machine("Always", template), None, ClusterConfig::offline());
    let problem = conflicting.sizes.problem.clone().unwrap();
    assert_eq!(problem.reason, Reason::FailedCreate);
    let has = |text: &str| problem.message.contains(text);
    assert!(has("spec.template.spec.domain.cpu.sockets") && has("spec.cpu.guest"), "{}", problem.message);
    assert_eq!(names(&decide(&conflicting)), [] as [&str; 0]);
}

#[test]
fn a_machine_that_names_nothing_any_more_has_no_reference() {
    let mut vm = recorded_as(COPY);
    vm.spec.instancetype = None;
    // One that starts would report it a little later.
    vm.spec.run_strategy = Some("Halted".to_owned());
    vm.spec.template.spec.as_mut().unwrap().domain.memory = serde_json::from_value(json!({"guest": "64Mi"})).unwrap();
    let plain = World { sizes: Sizes::default(), ..world(vm, None, ClusterConfig::offline()) };
    let decision = decide(&plain);
    assert_eq!((&decision.status.instancetype_ref, names(&decision)), (&None, vec![]));
}
