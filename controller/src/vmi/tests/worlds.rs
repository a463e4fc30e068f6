//! Any instance with any pod: what holds of every decision, whatever came together.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::data_volumes::DataVolumeProgress;
use crate::vmi::history::Place;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn some(values: &[Value]) -> impl Strategy<Value = Value> + use<> {
    select(values.to_vec())
}

fn list(values: Vec<Value>) -> impl Strategy<Value = Value> {
    let longest = values.len();
    subsequence(values, 0..=longest).prop_map(Value::Array)
}

fn time(second: i64) -> String {
    at(second).to_string()
}

fn condition_of_pod(kind: &str, value: &str, second: i64) -> Value {
    json!({"type": kind, "status": value, "reason": "Because", "message": "so it is", "lastTransitionTime": time(second)})
}

/// What a launcher may have reported through its pod.
fn report() -> impl Strategy<Value = Value> {
    let report = |phase: &str, machine: &str, ended: Value| {
        let report = json!({
            "generation": 1, "namespace": "ns", "name": "vm", "uid": "0123-4567-89", "phase": phase, "phaseSinceMs": 1_000_000,
            "paused": null, "stopping": false, "softwareEmulation": true, "machine": machine, "memoryBytes": 67_108_864,
            "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 7, "resets": 0, "ended": ended,
        });
        condition_at(REPORTED, "True", 1000, &report.to_string())
    };
    let ended = |cause: &str| json!({"atMs": 1_000_000, "cause": cause, "sentence": "it ended"});
    some(&[
        report("Running", "pc-q35-7.2", Value::Null),
        report("Running", "", Value::Null),
        report("Scheduled", "pc-q35-7.2", Value::Null),
        report("Succeeded", "pc-q35-7.2", ended("GuestShutdown")),
        report("Failed", "pc-q35-7.2", ended("MachineKilled")),
        condition_at(REPORTED, "False", 1000, ""),
    ])
}

fn conditions_of_pod() -> impl Strategy<Value = Value> {
    let ready = some(&[
        condition_of_pod("Ready", "True", 1001),
        condition_of_pod("Ready", "False", 997),
        condition_of_pod("Ready", "False", 1003),
        condition_of_pod("Ready", "Unknown", 1003),
        json!({"type": "Ready", "status": "False"}),
    ]);
    let gate = some(&[condition_of_pod(UNPAUSED, "True", 1000), condition_of_pod(UNPAUSED, "False", 1000)]);
    let scheduled = some(&[
        condition_of_pod("PodScheduled", "True", 990),
        json!({"type": "Provisioning", "status": "True", "lastTransitionTime": time(902)}),
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}),
        json!({"type": "PodScheduled", "status": "False"}),
    ]);
    let target = some(&[
        condition_of_pod("DisruptionTarget", "True", 1000),
        condition_of_pod("DisruptionTarget", "False", 1000),
    ]);
    let each = [ready.boxed(), gate.boxed(), scheduled.boxed(), target.boxed(), report().boxed()];
    each.map(prop::option::of).to_vec().prop_map(|all| Value::Array(all.into_iter().flatten().collect()))
}

fn container(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

fn status_of_pod() -> impl Strategy<Value = Value> {
    let phase =
        some(&[Value::Null, json!("Pending"), json!("Running"), json!("Succeeded"), json!("Failed"), json!("Failed")]);
    let reason = some(&[
        Value::Null,
        json!("UnexpectedAdmissionError"),
        json!("OutOfcpu"),
        json!("NodeShutdown"),
        json!("Evicted"),
    ]);
    let init = some(&[
        json!([]),
        json!([container("launcher", &json!({"running": {"startedAt": time(998)}}))]),
        json!([container("launcher", &json!({"waiting": {"reason": "ErrImagePull", "message": "no such host"}}))]),
        json!([container("launcher", &json!({"waiting": {"reason": "PodInitializing"}}))]),
        json!([container("volumeroot", &json!({"waiting": {"reason": "ErrImageNeverPull"}}))]),
    ]);
    let ended = |more: Value| {
        let mut terminated = json!({"exitCode": 1});
        json_patch::merge(&mut terminated, &more);
        json!([container("compute", &json!({"terminated": terminated}))])
    };
    let containers = some(&[
        json!([]),
        ended(json!({"finishedAt": time(998), "message": "QEMU was killed\n"})),
        ended(json!({"finishedAt": time(980), "message": " "})),
        ended(json!({"finishedAt": time(999), "reason": "OOMKilled"})),
        ended(json!({"finishedAt": time(900), "reason": "OOMKilled"})),
        ended(json!({})),
    ]);
    (phase, reason, init, containers, conditions_of_pod()).prop_map(|(phase, reason, init, containers, conditions)| {
        json!({"phase": phase, "reason": reason, "message": reason.as_str().map(|_| "no healthy devices"),
            "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "Burstable", "conditions": conditions,
            "initContainerStatuses": init, "containerStatuses": containers})
    })
}

fn pods() -> impl Strategy<Value = Pod> {
    let spec = some(&[json!(null), json!({"exec": {"command": ["true"]}})]);
    let node = some(&[json!("node-1"), json!("node-1"), json!(""), Value::Null]);
    let name = some(&[json!("virt-launcher-vm-01234567"), json!("virt-launcher-vm-01234567"), Value::Null]);
    let uid = some(&[json!("pod-uid"), json!("pod-uid"), json!("another"), Value::Null]);
    (status_of_pod(), spec, node, (name, uid), any::<bool>()).prop_map(|(status, probe, node, (name, uid), leaves)| {
        let compute = json!({"name": "compute", "readinessProbe": probe, "resources": {"limits": {"memory": "1Mi"}}});
        let metadata = json!({"name": name, "uid": uid, "creationTimestamp": time(995),
            "deletionTimestamp": leaves.then(|| time(999))});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": node, "containers": [compute]}, "status": status});
        serde_json::from_value(pod).unwrap()
    })
}

fn histories() -> impl Strategy<Value = PodHistory> {
    let moment = || prop::option::of(select(vec![at(0), at(990), at(996), at(999), at(1000)]));
    let place = prop::option::of(select(vec!["pod-uid", "another"]));
    let place = place.prop_map(|uid| uid.map(|uid| Place { pod_uid: uid.to_owned(), node: "node-1".to_owned() }));
    (moment(), prop::option::of(any::<bool>()), place, moment(), any::<bool>(), 0..4_u32, moment()).prop_map(
        |(made, placed, place, missing, rejected, refusals, over)| PodHistory {
            made,
            // What was seen on a node stays placed (`PodHistories::seen`).
            placed: if place.is_some() { Some(true) } else { placed },
            place,
            missing,
            rejected,
            refusals,
            over,
        },
    )
}

/// Statuses that were written before, by this version or by another program.
fn statuses() -> impl Strategy<Value = Value> {
    let phases = Phase::ALL.iter().map(|phase| json!(phase.name())).chain([json!("WaitingForSync"), Value::Null]);
    let conditions = list(vec![
        json!({"type": "example.com/Backup", "status": "Sometimes"}),
        json!({"type": "Ready", "status": "False", "reason": "PodNotExists", "lastTransitionTime": time(900)}),
        json!({"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "exceeded quota",
            "lastTransitionTime": time(901)}),
        json!({"type": "DataVolumesReady", "status": "False", "reason": "NotAllDVsReady", "lastTransitionTime": time(902)}),
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": time(903)}),
        json!({"type": "Paused", "status": "True", "reason": "PausedByUser", "lastTransitionTime": time(904)}),
        json!({"type": "LiveMigratable", "status": "False", "reason": "NotMigratable", "lastTransitionTime": time(905)}),
        json!({"type": "garboard.dev/Ended", "status": "True", "reason": "MachineKilled", "lastTransitionTime": time(906)}),
        json!({"type": "HotVCPUChange", "status": "True"}),
    ]);
    let active = some(&[json!({}), json!({"pod-uid": "node-1"}), json!({"pod-uid": ""}), json!({"another": "node-2"})]);
    let transitions = list(vec![
        json!({"phase": "Pending", "phaseTransitionTimestamp": time(990)}),
        json!({"phase": "Scheduled", "phaseTransitionTimestamp": time(993)}),
        json!({"phase": "Running", "phaseTransitionTimestamp": time(994)}),
    ]);
    let node = some(&[Value::Null, json!("node-1"), json!("node-2")]);
    (some(&phases.collect::<Vec<_>>()), conditions, active, transitions, node).prop_map(
        |(phase, conditions, active, transitions, node)| {
            json!({"phase": phase, "conditions": conditions, "activePods": active, "nodeName": node,
                "phaseTransitionTimestamps": transitions, "storedMachine": {"of": "another version"}})
        },
    )
}

/// What an instance needs, and how far it is.
#[derive(Clone, Debug)]
struct Needs {
    volumes: Value,
    claims: Vec<&'static str>,
    data_volume: Option<DataVolumeProgress>,
    firmware_keeps: bool,
}

fn needs() -> impl Strategy<Value = Needs> {
    let volumes = some(&[
        json!([]),
        json!([]),
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]),
        json!([{"name": "data", "hostDisk": {"path": "/data/disk.img", "type": "Disk"}}]),
    ]);
    let claims = subsequence(vec!["disk", "persistent-state-for-vm"], 0..=2);
    let progress = vec![
        DataVolumeProgress::Missing,
        DataVolumeProgress::UnderWay("ImportInProgress".to_owned()),
        DataVolumeProgress::WaitsForConsumer,
        DataVolumeProgress::Failed("404".to_owned()),
        DataVolumeProgress::GivenUp("404".to_owned()),
        DataVolumeProgress::Done,
        DataVolumeProgress::Claimed,
    ];
    (volumes, claims, prop::option::weighted(0.3, select(progress)), any::<bool>()).prop_map(
        |(volumes, claims, data_volume, firmware_keeps)| Needs { volumes, claims, data_volume, firmware_keeps },
    )
}

/// What the API server keeps of the object itself.
fn metadata() -> impl Strategy<Value = Value> {
    let finalizers = list(vec![
        json!("kubevirt.io/foregroundDeleteVirtualMachine"),
        json!("example.com/keep"),
        json!("kubevirt.io/virtualMachineControllerFinalize"),
    ]);
    let labels = some(&[json!({}), json!({"kubevirt.io/nodeName": "node-1"})]);
    let created = some(&[Value::Null, json!(time(990)), json!(time(999))]);
    let deleted = some(&[Value::Null, Value::Null, json!(time(999))]);
    (finalizers, labels, created, deleted).prop_map(|(finalizers, labels, created, deleted)| {
        json!({"finalizers": finalizers, "labels": labels, "creationTimestamp": created, "deletionTimestamp": deleted})
    })
}

fn worlds() -> impl Strategy<Value = World> {
    let now = select(vec![at(1000), at(1002), at(1007), at(1060)]);
    let leading = select(vec![at(0), at(995), at(998)]);
    let status = prop::option::weighted(0.95, statuses());
    let parts = (metadata(), status, prop::option::weighted(0.6, pods()), histories());
    (parts, needs(), any::<bool>(), now, leading).prop_map(
        |((metadata, status, pod, history), needs, agent_lives, now, leading_since)| {
            let mut vmi = serde_json::to_value(vmi(&needs.volumes)).unwrap();
            json_patch::merge(&mut vmi["metadata"], &metadata);
            vmi["status"] = status.unwrap_or_default();
            if needs.firmware_keeps {
                vmi["spec"]["domain"]["firmware"] =
                    json!({"bootloader": {"efi": {"secureBoot": false, "persistent": true}}});
            }
            let claims = needs.claims.into_iter();
            World {
                vmi: serde_json::from_value(vmi).unwrap(),
                pod,
                history,
                agent_lives,
                leading_since,
                claims: claims.map(|name| (name.to_owned(), Default::default())).collect(),
                data_volumes: needs.data_volume.into_iter().map(|progress| ("root".to_owned(), progress)).collect(),
                now,
                ..world(json!([]))
            }
        },
    )
}

fn creates_pod(step: &Step) -> bool {
    matches!(step, Step::CreatePod(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_instance_never_has_two_pods(world in worlds()) {
        let decision = decide(&world);
        let before = Phase::of(&world.vmi);
        let may_have_one = world.pod.is_none()
            && world.vmi.metadata.deletion_timestamp.is_none()
            && before <= Phase::Running
            && ((before == Phase::Pending && !world.history.had_pod()) || world.history.rejected);
        let made = decision.steps.iter().filter(|step| creates_pod(step)).count();
        prop_assert!(made <= usize::from(may_have_one), "{:?}", decision.steps);
        let goes = |step: &Step| matches!(step, Step::DeletePod { .. } | Step::ReplaceRejectedPod { .. });
        prop_assert!(decision.steps.iter().filter(|step| goes(step)).count() <= usize::from(world.pod.is_some()));
    }

    #[test]
    fn an_object_that_is_not_deleted_keeps_its_finalizers_and_one_that_goes_has_no_pod(world in worlds()) {
        let kept = world.vmi.metadata.finalizers.clone().unwrap_or_default().contains(&"example.com/keep".to_owned());
        for step in decide(&world).steps {
            match step {
                Step::RemoveFinalizer { rest } => {
                    prop_assert!(world.pod.is_none() && world.vmi.metadata.deletion_timestamp.is_some());
                    prop_assert_eq!(rest, vec!["example.com/keep".to_owned(); usize::from(kept)]);
                }
                Step::DeletePod { .. } => prop_assert!(world.vmi.metadata.deletion_timestamp.is_some()),
                Step::CreateClaim(_)
                | Step::CreatePod(_)
                | Step::ReplaceRejectedPod { .. }
                | Step::AnnotatePod { .. }
                | Step::Warn { .. } => {
                    prop_assert!(world.vmi.metadata.deletion_timestamp.is_none());
                }
            }
        }
    }

    #[test]
    fn a_phase_never_goes_back_and_one_of_another_program_stays(world in worlds()) {
        let decision = decide(&world);
        let (before, after) = (Phase::of(&world.vmi), Phase::of_status(&decision.status));
        prop_assert!(after >= before, "{before:?} {after:?}");
        if before.is_final() || before == Phase::Unknown {
            prop_assert_eq!(&decision.status.phase, &world.vmi.status.as_ref().unwrap().phase);
        }
    }

    #[test]
    fn what_another_program_wrote_stays(world in worlds()) {
        let after = decide(&world).status;
        let before = world.vmi.status.unwrap_or_default();
        let foreign = |status: &garboard_api::v1::VirtualMachineInstanceStatus| {
            let foreign = ["example.com/Backup", "HotVCPUChange"];
            let all = status.conditions.iter();
            all.filter(|each| foreign.contains(&each.r#type.as_str())).cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(foreign(&after), foreign(&before));
        prop_assert_eq!(after.stored_machine, before.stored_machine);
        let kinds: std::collections::BTreeSet<_> = after.conditions.iter().map(|each| &each.r#type).collect();
        prop_assert_eq!(kinds.len(), after.conditions.len(), "each condition once");
    }

    #[test]
    fn a_decision_made_again_writes_nothing_else(world in worlds()) {
        let first = decide(&world);
        let mut again = world.clone();
        again.vmi.status = Some(first.status.clone());
        again.vmi.metadata.labels.get_or_insert_default().extend(first.labels.clone());
        // Only what is made, and only if it was not made: the same steps, the same texts.
        let second = decide(&again);
        if !first.is_reported && Phase::of_status(&first.status) == Phase::of(&world.vmi) && first.recheck == second.recheck {
            prop_assert_eq!(second.status, first.status);
        }
    }
}
