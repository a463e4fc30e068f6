//! Requests of a machine (`status.stateChangeRequests`): when they are carried out, and when a halt cancels them.

use super::*;

#[test]
fn requests_are_crossed_out_when_they_are_done() {
    let left = |world: &World| -> Vec<String> {
        decide(world).status.state_change_requests.into_iter().map(|request| request.action).collect()
    };
    // The start that made this instance, and a stop of one that is gone.
    let mut world = with("Manual", Phase::Running);
    world.vm.status = asked(json!([{"action": "Start"}, {"action": "Stop", "uid": "an-earlier-one"}]));
    assert_eq!((left(&world), steps(&decide(&world))), (vec![], vec![]));
    // A restart.
    world.vm.status = asked(json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]));
    assert_eq!((left(&world).len(), steps(&decide(&world))), (2, vec!["delete"]));
    // A stop of an earlier one does not make a failed run a wanted end.
    let mut failed = with("RerunOnFailure", Phase::Failed);
    failed.vm.status = asked(json!([{"action": "Stop", "uid": "an-earlier-one"}]));
    assert_eq!((left(&failed), steps(&decide(&failed))), (vec!["Start".to_owned()], vec!["delete"]));
    // A machine that was halted after the request does not keep it for later.
    let mut halted = self::world("Halted");
    halted.vm.status = asked(json!([{"action": "Start"}]));
    assert_eq!((left(&halted), steps(&decide(&halted))), (vec![], vec![]));
}

#[test]
fn a_start_that_is_asked_of_a_halted_machine_has_it_run_always() {
    let request = json!([{"action": "Start"}]);
    let paused = json!([{"action": "Start", "data": {"paused": "true"}}]);
    // What was reported of it last: nothing of a new machine.
    let rows: [(Option<&str>, &[&str]); 5] = [
        (Some("Halted"), &["unhalt"]),
        (None, &["unhalt"]),
        (Some("RerunOnFailure"), &[]),
        (Some("Manual"), &[]),
        (Some("Always"), &[]),
    ];
    for (request, (last, expected)) in [&request, &paused].into_iter().flat_map(|one| rows.map(|row| (one, row))) {
        let mut world = world("Halted");
        let status = json!({"stateChangeRequests": request, "runStrategy": last});
        world.vm.status = Some(serde_json::from_value(status).unwrap());
        let decision = decide(&world);
        assert_eq!(steps(&decision), expected, "{last:?}");
        assert_eq!(decision.status.state_change_requests.len(), expected.len(), "{last:?}");
        let run_strategy = if expected.is_empty() { "Halted" } else { "Always" };
        assert_eq!(decision.status.run_strategy.as_deref(), Some(run_strategy), "{last:?}");
        carry_out(&mut world, decision);
        let runs: &[&str] = if expected.is_empty() { &[] } else { &["create"] };
        assert_eq!(steps(&decide(&world)), runs, "{last:?}");
    }
    // With an instance it is the halt that counts.
    let mut stopping = with("Halted", Phase::Running);
    stopping.vm.status = Some(serde_json::from_value(json!({"stateChangeRequests": request})).unwrap());
    assert_eq!(steps(&decide(&stopping)), ["delete"]);
}

#[test]
fn a_start_may_be_asked_for_with_the_vcpus_stopped() {
    let request = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let mut halted = world("Halted");
    halted.vm.status = Some(serde_json::from_value(json!({"stateChangeRequests": request})).unwrap());
    let decision = decide(&halted);
    assert_eq!((steps(&decision), decision.status.state_change_requests.len()), (vec!["unhalt"], 1));
    // A user halts it again before it has started.
    halted.vm.status = Some(decision.status);
    let again = decide(&halted);
    assert_eq!((steps(&again), again.status.state_change_requests), (vec![], vec![]));
    let mut manual = world("Manual");
    manual.vm.status = asked(request);
    let decision = decide(&manual);
    let [Step::RecordRevision { .. }, Step::CreateVmi(vmi)] = decision.steps.as_slice() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(vmi.spec.start_strategy.as_deref(), Some("Paused"));
    assert_eq!(decision.status.state_change_requests, []);
}

#[test]
fn a_halt_after_a_restart_that_nobody_has_looked_at_stays() {
    let restart = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    let paused = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start", "data": {"paused": "true"}}]);
    let rows = [
        (&restart, Some("Always")),
        (&restart, Some("RerunOnFailure")),
        (&restart, Some("Manual")),
        (&restart, None),
        (&paused, Some("Manual")),
    ];
    for (requests, last) in rows {
        let mut world = with("Halted", Phase::Running);
        let status = json!({"stateChangeRequests": requests, "runStrategy": last});
        world.vm.status = Some(serde_json::from_value(status).unwrap());
        let decision = decide(&world);
        assert_eq!(steps(&decision), ["delete"], "{last:?}");
        assert!(decision.status.state_change_requests.iter().all(|request| request.action == "Stop"), "{last:?}");
        carry_out(&mut world, decision);
        let leaves = decide(&world);
        carry_out(&mut world, leaves);
        world.vmi = None;
        let decision = decide(&world);
        assert_eq!(steps(&decision), [] as [&str; 0], "{last:?}");
        assert_eq!(decision.status.state_change_requests, [], "{last:?}");
        carry_out(&mut world, decision);
        assert_eq!(steps(&decide(&world)), [] as [&str; 0], "{last:?}");
    }
}
