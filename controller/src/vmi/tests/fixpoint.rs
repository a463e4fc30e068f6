//! What was decided and done needs no second time.

use proptest::prelude::*;

use super::*;
use crate::vmi::decide::{CLAIM_MAY_COME, makes_pod};
use crate::vmi::history::Place;

/// What a pod may report.
fn shown() -> Vec<Value> {
    let ended = json!({"exitCode": 0, "finishedAt": "1970-01-01T00:16:00Z"});
    let over = json!([{"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended}}]);
    vec![
        json!({"phase": "Pending", "conditions": []}),
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}),
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}),
        json!({"phase": "Succeeded", "containerStatuses": over}),
        reporting(),
    ]
}

fn carry_out(world: &mut World, decision: Decision) {
    world.vmi.status = Some(decision.status);
    world.vmi.metadata.labels.get_or_insert_default().extend(decision.labels);
    for step in decision.steps {
        match step {
            Step::CreateClaim(claim) => {
                world.claims.insert(claim.metadata.name.clone().unwrap(), *claim);
            }
            Step::CreatePod(made) => {
                world.history =
                    PodHistory { made: Some(world.now), refusals: world.history.refusals, ..PodHistory::default() };
                world.pod =
                    Some(Pod { metadata: made.metadata.clone(), ..pod(json!({"phase": "Pending", "conditions": []})) });
            }
            Step::DeletePod { .. } => world.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now)),
            Step::ReplaceRejectedPod { .. } => {
                world.pod = None;
                world.history.rejected = true;
                world.agent_lives |= world.history.place.is_some();
                world.history.refusals += 1;
                world.history.missing = Some(world.now);
            }
            Step::AnnotatePod { annotations, .. } => {
                let all = world.pod.as_mut().unwrap().metadata.annotations.get_or_insert_default();
                for (key, value) in annotations {
                    match value {
                        Some(value) => drop(all.insert(key, value)),
                        None => drop(all.remove(&key)),
                    }
                }
            }
            Step::RemoveFinalizer { rest } => world.vmi.metadata.finalizers = Some(rest),
            Step::Warn { .. } => {}
        }
    }
}

proptest! {
    /// Fixpoint: what was decided and done needs no second time, and its status is not written again.
    #[test]
    fn a_decision_that_was_carried_out_leaves_nothing_to_do(
        phase in prop::sample::select(Phase::ALL.to_vec()),
        shown in prop::option::of(prop::sample::select(shown())),
        is_deleted in any::<bool>(),
        had_pod in any::<bool>(),
        claim in any::<bool>(),
        active in prop::sample::select(vec![json!({}), json!({"pod-uid": "node-1"}), json!({"pod-uid": ""})]),
        place in prop::option::of(prop::sample::select(vec!["pod-uid", "another"])),
        agent_lives in any::<bool>(),
        is_evictable in any::<bool>(),
        second in 1000_i64..1100,
    ) {
        let volumes = if claim { json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]) } else { json!([]) };
        let mut world = world(volumes);
        world.now = Timestamp::from_second(second).unwrap();
        world.vmi.status.as_mut().unwrap().phase = Some(phase.name().to_owned());
        world.vmi.metadata.deletion_timestamp = is_deleted.then_some(Time(world.now));
        world.history.made = had_pod.then_some(Timestamp::UNIX_EPOCH);
        world.history.place = place.map(|uid| Place { pod_uid: uid.to_owned(), node: "node-1".to_owned() });
        world.vmi.status.as_mut().unwrap().active_pods = serde_json::from_value(active).unwrap();
        world.vmi.status.as_mut().unwrap().node_name = Some("node-1".to_owned());
        (world.pod, world.agent_lives) = (shown.map(pod), agent_lives);
        if is_evictable {
            let evict = ("descheduler.alpha.kubernetes.io/evict".to_owned(), String::new());
            world.vmi.metadata.annotations.get_or_insert_default().extend([evict]);
        }
        for _ in 0..4 {
            let decision = decide(&world);
            let tries = decision.recheck == Some(CLAIM_MAY_COME) && world.pod.is_none();
            let makes = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_) | Step::CreateClaim(_)));
            prop_assert_eq!(makes_pod(&world), makes || tries, "what is made of the newest object is known before: {:?}", decision);
            carry_out(&mut world, decision);
        }
        let again = decide(&world);
        prop_assert_eq!(&again.steps, &[] as &[Step]);
        prop_assert_eq!(Some(&again.status), world.vmi.status.as_ref());
        prop_assert!(!again.is_reported);
    }
}
