//! The life of an instance as its pod shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use garboard_api::conditions::Reason;
use garboard_api::{ClusterConfig, Identity, Phase, VirtualMachineInstance, default_vmi};
use garboard_cluster::report;
use garboard_cluster::report::condition::{REPORTED, UNPAUSED};
use garboard_protocol::control::Ended;
use garboard_protocol::exit::{Account, EndReason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use super::decide::KILLED_BY_FORCE;
use super::decide::{Decision, Step, World, decide};
use super::history::PodHistory;
use super::out_of_memory;
use super::start::events;
use crate::events::{EventReason, NewEvent};
use crate::pod::LauncherImage;
use crate::time::QUICK;

mod fixpoint;
mod remains;
mod shown;
mod worlds;

fn vmi(volumes: &Value) -> VirtualMachineInstance {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "ns", "uid": "0123-4567-89", "labels": {"app": "web"}},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {}},
            "volumes": volumes,
        },
    }))
    .unwrap();
    let mut config = ClusterConfig::offline();
    config.default_binding = garboard_api::cluster::DefaultBinding::Masquerade;
    default_vmi(&mut vmi, &config, &Identity { firmware_uuid: uuid::Uuid::nil() });
    vmi
}

fn world(volumes: Value) -> World {
    World {
        vmi: vmi(&volumes),
        pod: None,
        claims: BTreeMap::new(),
        data_volumes: BTreeMap::new(),
        history: PodHistory::default(),
        agent_lives: false,
        leading_since: Timestamp::UNIX_EPOCH,
        now: Timestamp::from_second(1000).unwrap(),
        launcher_image: LauncherImage { reference: "garboard/launcher:1".to_owned(), pull_policy: "Never".to_owned() },
        config: ClusterConfig::offline().into(),
    }
}

fn phase(decision: &Decision) -> &str {
    decision.status.phase.as_deref().unwrap_or_default()
}

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "virt-launcher-vm-01234567", "uid": "pod-uid"},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": status,
    }))
    .unwrap()
}

fn condition<'a>(decision: &'a Decision, kind: &str) -> Option<(&'a str, &'a str)> {
    let found = decision.status.conditions.iter().find(|each| each.r#type == kind)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default()))
}

#[test]
fn a_new_instance_gets_one_pod() {
    let mut world = world(json!([]));
    let decision = decide(&world);
    let [Step::CreatePod(made)] = decision.steps.as_slice() else { panic!("{:?}", decision.steps) };
    assert_eq!(made.metadata.name.as_deref(), Some("virt-launcher-vm-01234567"));
    assert_eq!((phase(&decision), decision.recheck), ("Pending", Some(QUICK)), "a quick start is reported once");
    // It is gone before it was reported.
    world.history =
        PodHistory { made: Some(world.now), placed: None, missing: Some(world.now), ..PodHistory::default() };
    let waiting = decide(&world);
    assert_eq!((phase(&waiting), waiting.recheck), ("Pending", Some(KILLED_BY_FORCE)));
    assert_eq!(waiting.steps, []);
    let never_on_a_node =
        World { history: PodHistory { placed: Some(false), ..world.history.clone() }, ..world.clone() };
    assert_eq!(phase(&decide(&never_on_a_node)), "Failed");
    world.now = Timestamp::from_second(1008).unwrap();
    let over = decide(&world);
    assert_eq!(phase(&over), "Failed");
    assert_eq!(over.steps, [], "it does not get another");
}

#[test]
fn a_pod_that_a_kubelet_would_not_have_is_made_again_when_nothing_of_it_can_run() {
    let mut world = world(json!([]));
    world.history = PodHistory { made: Some(world.now), placed: Some(true), ..PodHistory::default() };
    let refused = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"});
    world.pod = Some(pod(refused.clone()));
    let decision = decide(&world);
    assert!(matches!(decision.steps.as_slice(), [Step::ReplaceRejectedPod { why, .. }] if why == "no healthy devices"));
    assert_ne!(decision.status.phase.as_deref(), Some("Failed"));
    // It goes.
    world.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(decide(&world).steps, []);
    (world.history.rejected, world.history.refusals) = (true, 1);
    assert_eq!(
        condition(&decide(&world), "Synchronized"),
        Some(("False", "FailedCreate")),
        "with the kubelet's reason"
    );
    (world.pod, world.history.missing) = (None, Some(world.now));
    assert_eq!((decide(&world).steps, decide(&world).recheck), (vec![], Some(KILLED_BY_FORCE)), "it may have run");
    // Also one that an earlier leader had made.
    world.history.made = None;
    assert_eq!((decide(&world).steps, decide(&world).recheck), (vec![], Some(KILLED_BY_FORCE)));
    world.now = Timestamp::from_second(1008).unwrap();
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]));
    // Again and again.
    world.history.refusals = 3;
    assert_eq!((decide(&world).steps, decide(&world).recheck), (vec![], Some(std::time::Duration::from_secs(32))));
    assert_ne!(phase(&decide(&world)), "Failed");
    // A guest that was observed has had its run.
    world.pod = Some(pod(refused));
    world.vmi.status.get_or_insert_default().phase = Some("Running".to_owned());
    assert!(!decide(&world).steps.iter().any(|step| matches!(step, Step::ReplaceRejectedPod { .. })));
}

#[test]
fn a_new_leader_makes_no_pod_until_one_that_it_does_not_know_of_is_surely_gone() {
    let mut world = world(json!([]));
    let at = |second| Timestamp::from_second(second).unwrap();
    (world.leading_since, world.vmi.metadata.creation_timestamp) = (at(998), Some(Time(at(990))));
    let decision = decide(&world);
    assert_eq!((decision.steps, decision.recheck), (vec![], Some(std::time::Duration::from_secs(6))));
    world.now = at(1006);
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]));
    (world.now, world.vmi.metadata.creation_timestamp) = (at(999), Some(Time(at(999))));
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]), "this one is its own");
}

#[test]
fn an_instance_waits_for_a_data_volume_and_reports_it() {
    use crate::data_volumes::DataVolumeProgress;
    let mut world = world(json!([]));
    world.data_volumes.insert("root".to_owned(), DataVolumeProgress::UnderWay("ImportInProgress".to_owned()));
    let waiting = decide(&world);
    assert_eq!(waiting.steps, [], "nothing to warn of");
    assert_eq!(condition(&waiting, "DataVolumesReady"), Some(("False", "NotAllDVsReady")));
    assert!(waiting.recheck.is_some());
    world.vmi.status = Some(waiting.status);
    world.data_volumes.insert("root".to_owned(), DataVolumeProgress::Done);
    let filled = decide(&world);
    assert!(matches!(filled.steps.as_slice(), [Step::CreatePod(_)]));
    world.data_volumes.insert("root".to_owned(), DataVolumeProgress::Failed("404".to_owned()));
    let failed = decide(&world);
    assert_eq!(condition(&failed, "Synchronized"), Some(("False", "FailedDataVolumeImport")));
    assert!(matches!(failed.steps.as_slice(), [Step::Warn { .. }]));
    assert_eq!(phase(&failed), "Pending", "it is tried again");
    world.data_volumes.insert("root".to_owned(), DataVolumeProgress::GivenUp("404".to_owned()));
    let over = decide(&world);
    assert_eq!((phase(&over), condition(&over, "Synchronized")), ("Failed", Some(("False", "FailedDataVolumeImport"))));
    assert!(matches!(over.steps.as_slice(), [Step::Warn { reason: Reason::FailedDataVolumeImport, .. }]));
    world.vmi.status = Some(over.status);
    assert_eq!(decide(&world).steps, [], "it is over");
}

#[test]
fn an_image_that_cannot_be_pulled_is_reported_until_it_can() {
    let mut world = world(json!([]));
    world.history = PodHistory { made: Some(world.now), placed: Some(true), missing: None, ..PodHistory::default() };
    let waiting = |reason: &str| {
        let state = json!({"waiting": {"reason": reason, "message": "no such host"}});
        pod(json!({"phase": "Pending", "initContainerStatuses": [{"name": "launcher", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": state}]}))
    };
    world.pod = Some(waiting("ErrImagePull"));
    let decided = decide(&world);
    assert_eq!(
        condition(&decided, "Synchronized"),
        Some(("False", "ErrImagePull")),
        "at once, however young the pod is"
    );
    world.vmi.status = Some(decided.status);
    world.pod = Some(waiting("PodInitializing"));
    assert_eq!(condition(&decide(&world), "Synchronized"), None);
}

/// A machine of this UID whose firmware keeps its variables.
fn keeping(owner: &str) -> World {
    let mut world = world(json!([]));
    let firmware = json!({"bootloader": {"efi": {"secureBoot": false, "persistent": true}}});
    world.vmi.spec.domain.firmware = serde_json::from_value(firmware).unwrap();
    let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": owner,
        "controller": true, "blockOwnerDeletion": true}]);
    world.vmi.metadata.owner_references = serde_json::from_value(owners).unwrap();
    world
}

#[test]
fn what_firmware_keeps_has_a_claim_that_belongs_to_the_machine() {
    let mut world = keeping("machine-1");
    Arc::make_mut(&mut world.config).state_storage_class = Some("fast".to_owned());
    let decision = decide(&world);
    let [Step::CreateClaim(claim), Step::CreatePod(pod)] = decision.steps.as_slice() else { panic!("{decision:?}") };
    assert_eq!(claim.metadata.name.as_deref(), Some("persistent-state-for-vm"));
    assert_eq!(claim.metadata.owner_references.as_ref().unwrap()[0].uid, "machine-1");
    assert_eq!(claim.spec.as_ref().unwrap().storage_class_name.as_deref(), Some("fast"));
    let volumes = pod.spec.as_ref().unwrap().volumes.iter().flatten();
    let names: Vec<_> = volumes.filter_map(|each| each.persistent_volume_claim.as_ref()).collect();
    assert_eq!(names.iter().map(|claim| claim.claim_name.as_str()).collect::<Vec<_>>(), ["persistent-state-for-vm"]);
    // The next start finds it.
    world.claims.insert("persistent-state-for-vm".to_owned(), (**claim).clone());
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]));
    // A machine of the same name that is made again waits until it is gone.
    let mut another = keeping("machine-2");
    another.claims = world.claims;
    let waiting = decide(&another);
    assert_eq!(condition(&waiting, "Synchronized"), Some(("False", "BackendStorageNotReady")));
    assert!(waiting.recheck.is_some() && !waiting.steps.iter().any(|step| matches!(step, Step::CreatePod(_))));
    // One that a user made by hand is taken.
    let by_hand = another.claims.get_mut("persistent-state-for-vm").unwrap();
    by_hand.metadata.owner_references = None;
    assert!(matches!(decide(&another).steps.as_slice(), [Step::CreatePod(_)]));
}

fn condition_at(kind: &str, value: &str, second: i64, message: &str) -> Value {
    let time = Timestamp::from_second(second).unwrap();
    json!({"type": kind, "status": value, "message": message, "lastTransitionTime": time.to_string()})
}

/// A pod whose launcher reports that its guest runs since second 1000; the kubelet has not looked since second 997.
fn reporting() -> Value {
    let report = json!({
        "generation": 1, "namespace": "ns", "name": "vm", "uid": "0123-4567-89", "phase": "Running", "phaseSinceMs": 1_000_000,
        "paused": null, "stopping": false, "softwareEmulation": true, "machine": "pc-q35-7.2", "memoryBytes": 67_108_864,
        "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 7, "resets": 0, "ended": null,
    });
    json!({"phase": "Pending", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [
        condition_at(REPORTED, "True", 1000, &report.to_string()),
        condition_at(UNPAUSED, "True", 1000, ""),
        condition_at("Ready", "False", 997, "containers with unready status"),
    ], "initContainerStatuses": [{"name": "launcher", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": "1970-01-01T00:16:38Z"}}}]})
}

#[test]
fn a_start_that_is_reported_late_was_pending_since_its_instance_was_made() {
    let mut world = world(json!([]));
    let at = |second| Time(Timestamp::from_second(second).unwrap());
    world.vmi.metadata.creation_timestamp = Some(at(990));
    world.history = PodHistory { made: Some(at(991).0), placed: Some(true), ..PodHistory::default() };
    world.pod = Some(pod(json!({"phase": "Pending", "conditions": []})));
    let transitions = decide(&world).status.phase_transition_timestamps;
    let phases: Vec<_> =
        transitions.into_iter().map(|each| (each.phase.unwrap(), each.phase_transition_timestamp.unwrap())).collect();
    assert_eq!(phases, [("Pending".to_owned(), at(990)), ("Scheduling".to_owned(), Time(world.now))]);
}

#[test]
fn a_quick_start_becomes_running_in_one_write() {
    let mut world = world(json!([]));
    world.history = PodHistory { made: Some(world.now), placed: Some(true), missing: None, ..PodHistory::default() };
    world.pod = Some(pod(json!({"phase": "Pending", "conditions": []})));
    assert_eq!((phase(&decide(&world)), decide(&world).recheck), ("Pending", Some(QUICK)));
    world.vmi.metadata.creation_timestamp = Some(Time(Timestamp::from_second(995).unwrap()));
    let mut reported = pod(reporting());
    reported.metadata.creation_timestamp = Some(Time(Timestamp::from_second(996).unwrap()));
    world.pod = Some(reported);
    let decision = decide(&world);
    assert!(decision.is_reported);
    let reasons: Vec<Reason> = events(&world.vmi, &decision).into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::Started]);
    assert_eq!((phase(&decision), condition(&decision, "Ready")), ("Running", Some(("True", ""))));
    assert_eq!(decision.status.node_name.as_deref(), Some("node-1"));
    assert_eq!(decision.status.active_pods.get("pod-uid").map(String::as_str), Some("node-1"));
    assert!(condition(&decision, "SoftwareEmulation").is_some());
    let phases: Vec<_> =
        decision.status.phase_transition_timestamps.iter().filter_map(|each| each.phase.as_deref()).collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
    // Nothing is left to do.
    world.vmi.status = Some(decision.status.clone());
    let again = decide(&world);
    assert!(events(&world.vmi, &again).is_empty());
    assert_eq!((again.status, again.is_reported), (decision.status, false));
}

/// The controller writes the event of an end that came through the pod, the node agent all others.
#[test]
fn an_end_that_came_through_the_pod_is_reported_as_by_the_agent() {
    for cause in garboard_protocol::testing::causes() {
        let mut world = world(json!([]));
        world.history = PodHistory { made: Some(world.now), placed: Some(true), ..PodHistory::default() };
        let (text, end) = (cause.message(), cause.reason());
        let message = report::message(&cause, &text);
        let mut status = reporting();
        let mut reported: Value = serde_json::from_str(status["conditions"][0]["message"].as_str().unwrap()).unwrap();
        reported["ended"] =
            serde_json::to_value(Ended { cause, message: text, report: None, at_ms: 1_000_000 }).unwrap();
        status["conditions"][0]["message"] = json!(reported.to_string());
        world.pod = Some(pod(status));
        let event = events(&world.vmi, &decide(&world)).pop().unwrap();
        let note = Account { reason: end, message: &message }.note();
        assert_eq!((event.reason, event.note), (Reason::Stopped, note));
    }
}

#[test]
fn a_start_that_takes_long_is_reported_step_by_step() {
    let mut world = world(json!([]));
    world.history =
        PodHistory { made: Some(Timestamp::from_second(990).unwrap()), placed: Some(true), ..PodHistory::default() };
    world.pod = Some(pod(json!({"phase": "Pending", "conditions": []})));
    assert_eq!(phase(&decide(&world)), "Scheduling");
    // So is one that another leader began, and one that has no node.
    world.history = PodHistory::default();
    assert_eq!(phase(&decide(&world)), "Scheduling");
    world.history.made = Some(world.now);
    world.pod =
        Some(pod(json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})));
    assert_eq!(condition(&decide(&world), "PodScheduled"), Some(("False", "Unschedulable")));
}

#[test]
fn a_machine_that_is_larger_than_any_can_be_has_no_node() {
    let mut world = world(json!([]));
    let cpu = world.vmi.spec.domain.cpu.get_or_insert_default();
    (cpu.sockets, cpu.max_sockets) = (Some(1_000_000), Some(1_000_000));
    let decision = decide(&world);
    assert_eq!(condition(&decision, "PodScheduled"), Some(("False", "Unschedulable")));
    assert_eq!(condition(&decision, "Synchronized"), Some(("False", "FailedCreate")));
    assert!(decision.steps.iter().all(|step| matches!(step, Step::Warn { .. })), "{:?}", decision.steps);
}

#[test]
fn readiness_is_the_kubelets_once_it_has_looked_or_where_there_is_a_probe() {
    let mut world = world(json!([]));
    let mut status = reporting();
    status["conditions"][2] = condition_at("Ready", "False", 1040, "its node is away");
    world.pod = Some(pod(status));
    assert_eq!(condition(&decide(&world), "Ready").map(|(value, _)| value), Some("False"));
    world.pod = Some(pod(reporting()));
    assert_eq!(condition(&decide(&world), "Ready"), Some(("True", "")));
    assert_eq!(decide(&world).recheck, Some(std::time::Duration::from_secs(10)));
    world.now = Timestamp::from_second(1010).unwrap();
    assert_eq!(condition(&decide(&world), "Ready").map(|(value, _)| value), Some("False"), "its kubelet is away");
    world.now = Timestamp::from_second(1000).unwrap();
    let mut probed = pod(reporting());
    let container = json!({"name": "compute", "readinessProbe": {"exec": {"command": ["true"]}}});
    probed.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container).unwrap()];
    world.pod = Some(probed);
    assert_eq!(condition(&decide(&world), "Ready").map(|(value, _)| value), Some("False"));
}

#[test]
fn a_pod_that_runs_on_a_node_is_scheduled_and_the_node_is_named() {
    let mut world = world(json!([]));
    world.pod = Some(pod(json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "launcher", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
    ]})));
    let decision = decide(&world);
    assert_eq!((phase(&decision), decision.status.node_name.as_deref()), ("Scheduled", Some("node-1")));
    assert_eq!(decision.labels.get("kubevirt.io/nodeName").map(String::as_str), Some("node-1"));
    assert_eq!(decision.status.active_pods.get("pod-uid").map(String::as_str), Some("node-1"));
    assert_eq!(condition(&decision, "Ready"), Some(("False", "PodConditionMissing")));
}

#[test]
fn an_instance_reports_why_it_cannot_be_moved_and_that_it_was_evicted() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})));
    let decision = decide(&world);
    assert_eq!(condition(&decision, "LiveMigratable"), Some(("False", "NotMigratable")));
    assert_eq!(condition(&decision, "EvictionRequested"), None);
    let spec = &mut world.vmi.spec;
    spec.domain.devices.interfaces[0].masquerade = None;
    spec.domain.devices.interfaces[0].bridge = serde_json::from_value(json!({})).unwrap();
    assert_eq!(condition(&decide(&world), "LiveMigratable"), Some(("False", "InterfaceNotLiveMigratable")));
    // Kubernetes' report of a pod that a drain evicts; a preempted one has another reason.
    let evicted = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"},
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]});
    world.pod = Some(pod(evicted));
    let decision = decide(&world);
    assert_eq!(condition(&decision, "EvictionRequested"), Some(("True", "EvictionByEvictionAPI")));
    // The guest has ended in order and the pod is gone: it is still reported.
    world.vmi.status = Some(decision.status);
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Succeeded.name().to_owned());
    world.pod = None;
    assert_eq!(condition(&decide(&world), "EvictionRequested"), Some(("True", "EvictionByEvictionAPI")));
}

#[test]
fn what_the_agent_wrote_is_not_taken_back() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})));
    let decision = decide(&world);
    assert_eq!((phase(&decision), condition(&decision, "Ready")), ("Running", Some(("True", ""))));
}

#[test]
fn a_pod_that_is_over_is_believed_after_a_moment() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    let terminated = json!({"exitCode": 1, "message": "QEMU was killed\n", "finishedAt": "1970-01-01T00:16:38Z"});
    world.pod = Some(pod(json!({"phase": "Failed", "containerStatuses": [
        {"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}},
    ]})));
    let waiting = decide(&world);
    assert_eq!((phase(&waiting), waiting.recheck), ("Running", Some(std::time::Duration::from_secs(3))));
    world.now = Timestamp::from_second(1003).unwrap();
    let over = decide(&world);
    assert_eq!((phase(&over), over.status.reason.as_deref()), ("Failed", Some("QEMU was killed")));
}

#[test]
fn out_of_memory_is_the_reason_although_no_process_was_left_to_report_it() {
    let mut world = world(json!([]));
    let terminated = json!({"exitCode": 137, "reason": "OOMKilled", "finishedAt": "1970-01-01T00:16:30Z"});
    let mut pod = pod(json!({"phase": "Failed", "containerStatuses": [
        {"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}},
    ]}));
    let compute = json!([{"name": "compute", "resources": {"limits": {"memory": "1Mi"}}}]);
    pod.spec.as_mut().unwrap().containers = serde_json::from_value(compute).unwrap();
    world.pod = Some(pod);
    let killed = json!([{"type": "garboard.dev/Ended", "status": "True", "reason": "MachineKilled", "message": "killed at once"}]);
    for (phase, reason, conditions) in [("Running", None, json!([])), ("Failed", Some("MachineKilled"), killed)] {
        let status = world.vmi.status.get_or_insert_default();
        (status.phase, status.reason) = (Some(phase.to_owned()), reason.map(str::to_owned));
        status.conditions = serde_json::from_value(conditions).unwrap();
        let decision = decide(&world);
        assert_eq!((self::phase(&decision), decision.status.reason.as_deref()), ("Failed", Some("OutOfMemory")));
        assert_eq!(condition(&decision, "garboard.dev/Ended"), Some(("True", "OutOfMemory")));
        let ended = decision.status.conditions.iter().find(|each| each.r#type == "garboard.dev/Ended").unwrap();
        let message = ended.message.as_deref().unwrap();
        assert!(
            message.contains("1048576") && message.contains("raise spec.domain.resources.limits.memory"),
            "{message}"
        );
        let event = out_of_memory::event(&world.vmi, &decision);
        let ended = EventReason::Ended(EndReason::OutOfMemory);
        assert_eq!(event, Some(NewEvent { kind: EventType::Warning, reason: ended, note: message.to_owned() }));
        world.vmi.status = Some(decision.status.clone());
        assert_eq!(out_of_memory::event(&world.vmi, &decide(&world)), None, "reported once");
        assert_eq!(decide(&world).status, decision.status, "written once");
    }
    let stopped =
        json!([{"type": "garboard.dev/Ended", "status": "True", "reason": "ForceStopped", "message": "by force"}]);
    world.vmi.status.as_mut().unwrap().conditions = serde_json::from_value(stopped).unwrap();
    assert_eq!(
        condition(&decide(&world), "garboard.dev/Ended"),
        Some(("True", "ForceStopped")),
        "what is explained stays"
    );
}

#[test]
fn a_pod_without_the_time_of_its_end_is_over_some_time_after_it_was_seen() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    world.pod = Some(pod(json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"})));
    world.history.over = Some(world.now);
    let waiting = decide(&world);
    assert_eq!((phase(&waiting), waiting.recheck), ("Running", Some(KILLED_BY_FORCE)));
    world.now = Timestamp::from_second(1008).unwrap();
    assert_eq!(phase(&decide(&world)), "Failed");
}

#[test]
fn a_missing_claim_is_reported_once_and_waited_for() {
    let mut world = world(json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]));
    let decision = decide(&world);
    let [Step::Warn { reason, .. }] = decision.steps.as_slice() else { panic!("{:?}", decision.steps) };
    assert_eq!(*reason, Reason::FailedPvcNotFound);
    assert_eq!(condition(&decision, "Synchronized"), Some(("False", "FailedPvcNotFound")));
    assert!(decision.recheck.is_some());
    world.vmi.status = Some(decision.status);
    assert_eq!(decide(&world).steps, []);
    world.claims.insert("disk".to_owned(), serde_json::from_value(json!({"spec": {}})).unwrap());
    let made = decide(&world);
    assert!(matches!(made.steps.as_slice(), [Step::CreatePod(_)]));
    assert_eq!(condition(&made, "Synchronized"), None);
}

#[test]
fn an_instance_without_defaults_gets_a_whole_pod() {
    let mut world = world(json!([{"name": "root", "containerDisk": {"image": "disk:1", "imagePullSecret": "key"}}]));
    world.vmi.spec.networks.clear();
    world.vmi.spec.domain.devices.interfaces.clear();
    let decision = decide(&world);
    let [Step::CreatePod(made)] = decision.steps.as_slice() else { panic!("{:?}", decision.steps) };
    let order = &made.metadata.annotations.as_ref().unwrap()["garboard.dev/order"];
    let order: Value = serde_json::from_str(order).unwrap();
    assert_eq!(order["vmi"]["spec"]["networks"][0]["name"], "default");
    assert_eq!(made.spec.as_ref().unwrap().image_pull_secrets.as_ref().unwrap()[0].name, "key");
}

#[test]
fn what_a_pod_would_not_honour_is_refused_by_its_path() {
    let mut world = world(json!([]));
    world.vmi.spec.architecture = Some("arm64".to_owned());
    let decision = decide(&world);
    let [Step::Warn { message, .. }] = decision.steps.as_slice() else { panic!("{:?}", decision.steps) };
    assert!(message.contains("spec.architecture"), "{message}");
}

#[test]
fn an_instance_goes_after_its_pod() {
    let mut world = world(json!([]));
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    world.pod = Some(pod(json!({"phase": "Running"})));
    assert!(matches!(decide(&world).steps.as_slice(), [Step::DeletePod { .. }]));
    world.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(decide(&world).steps, []);
    world.pod = None;
    let released = decide(&world).steps;
    assert!(matches!(released.as_slice(), [Step::RemoveFinalizer { rest }] if rest.is_empty()), "{released:?}");
}

#[test]
fn a_pod_goes_with_the_time_that_its_guest_was_given_since() {
    let mut world = world(json!([]));
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    for (of_guest, of_pod, expected) in [(60, 90, None), (5, 90, None), (600, 90, Some(630))] {
        world.vmi.spec.termination_grace_period_seconds = Some(of_guest);
        let mut pod = pod(json!({"phase": "Running"}));
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(of_pod);
        world.pod = Some(pod);
        let decision = decide(&world);
        let [Step::DeletePod { grace_seconds, .. }] = decision.steps.as_slice() else { panic!("{:?}", decision.steps) };
        assert_eq!(*grace_seconds, expected, "{of_guest}");
    }
}

#[test]
fn a_decision_is_stable() {
    let mut world = world(json!([]));
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [{"name": "launcher", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]})));
    world.vmi.status = Some(decide(&world).status);
    world.now = Timestamp::from_second(2000).unwrap();
    assert_eq!(Some(decide(&world).status), world.vmi.status);
}

#[test]
fn a_pod_that_is_ready_without_a_report_of_its_guest_makes_nothing_ready() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Scheduled.name().to_owned());
    let sidecar = json!([{"name": "launcher", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]);
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "initContainerStatuses": sidecar});
    world.pod = Some(pod(status));
    let decision = decide(&world);
    assert_eq!((phase(&decision), condition(&decision, "Ready")), ("Scheduled", Some(("False", "GuestNotRunning"))));
}

#[test]
fn an_instance_in_a_phase_of_another_program_is_not_started() {
    let mut world = world(json!([]));
    for unknown in ["Unknown", "WaitingForSync"] {
        world.vmi.status.as_mut().unwrap().phase = Some(unknown.to_owned());
        let decision = decide(&world);
        assert_eq!((decision.steps.as_slice(), phase(&decision)), (&[] as &[Step], unknown));
    }
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    world.history.missing = Some(Timestamp::UNIX_EPOCH);
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]));
}

#[test]
fn the_node_of_an_instance_stays_on_it_when_its_pod_is_gone() {
    let mut world = world(json!([]));
    let status = world.vmi.status.as_mut().unwrap();
    (status.phase, status.node_name) = (Some(Phase::Running.name().to_owned()), Some("node-1".to_owned()));
    world.vmi.metadata.labels.as_mut().unwrap().insert("kubevirt.io/nodeName".to_owned(), "node-1".to_owned());
    let decision = decide(&world);
    assert_eq!(condition(&decision, "Ready"), Some(("False", "PodNotExists")), "something is written");
    assert_eq!(decision.labels.get("kubevirt.io/nodeName").map(String::as_str), Some("node-1"));
}
