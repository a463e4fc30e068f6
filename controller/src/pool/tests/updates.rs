//! A template that changes: who is rewritten, relabelled, restarted or made again, and how many at a time.

use std::collections::BTreeSet;

use super::*;

/// The pool after a change of its template.
fn changed(more: Value, change: impl Fn(&mut VirtualMachinePool)) -> VirtualMachinePool {
    let mut after = pool(4, more);
    change(&mut after);
    after
}

fn host(pool: &mut VirtualMachinePool, name: &str) {
    let spec = pool.spec.virtual_machine_template.spec.as_mut().unwrap();
    spec.template.spec.as_mut().unwrap().hostname = Some(name.to_owned());
}

/// Machines that were rewritten, and whose instances are still of before; with the record of that.
fn rewritten(after: &VirtualMachinePool, count: u32) -> World {
    let before = pool(4, json!({}));
    let mut all = members(after, count);
    for member in &mut all {
        member.instance.as_mut().unwrap().revision = Some(names::revision_name(&before));
    }
    let mut world = world(after.clone(), all);
    world.records.insert(names::revision_name(&before), names::recorded(&before));
    world
}

fn restarts(decision: &Decision) -> usize {
    decision.update.iter().filter(|step| matches!(step, Step::Restart { .. })).count()
}

#[test]
fn machines_of_another_record_are_rewritten_all_at_once() {
    let (before, after) = (pool(4, json!({})), changed(json!({"maxUnavailable": 1}), |pool| host(pool, "second")));
    let all = members(&before, 4);
    let decision = decide(&world(after.clone(), all.clone()));
    let expected: Vec<Step> = all
        .iter()
        .zip(0..)
        .map(|(member, number)| Step::Rewrite {
            machine: victim(member),
            number,
            before: Some(names::revision_name(&before)),
        })
        .collect();
    let mut found = decision.update.clone();
    found.sort_by_key(|step| if let Step::Rewrite { number, .. } = step { *number } else { panic!("{step:?}") });
    assert_eq!(found, expected);
    // The record is made before, and that of before is kept: instances name it.
    assert_eq!(decision.record, Some(BTreeSet::from([names::revision_name(&before)])));
    assert_eq!(update::named_records(&after, &all), BTreeSet::from([names::revision_name(&before)]));
}

#[test]
fn a_scale_changes_no_machine() {
    let before = pool(4, json!({}));
    let decision = decide(&world(pool(5, json!({"maxUnavailable": 1})), members(&before, 4)));
    assert_eq!((decision.update, decision.record), (Vec::new(), None));
}

#[test]
fn what_is_equal_is_relabelled_and_what_is_another_restarted() {
    let of_machine = changed(json!({}), |pool| {
        let metadata = pool.spec.virtual_machine_template.metadata.as_mut().unwrap();
        metadata.labels.as_mut().unwrap().insert("new".to_owned(), "label".to_owned());
    });
    let decision = decide(&rewritten(&of_machine, 2));
    let relabel = |number: u32| Step::Relabel { name: format!("p-{number}"), instance: format!("p-{number}-vmi") };
    assert_eq!(decision.update.len(), 2);
    assert!([0, 1].iter().all(|number| decision.update.contains(&relabel(*number))), "{:?}", decision.update);
    let of_instance = changed(json!({}), |pool| {
        let spec = pool.spec.virtual_machine_template.spec.as_mut().unwrap();
        let labels = spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap();
        labels.insert("new".to_owned(), "label".to_owned());
    });
    assert_eq!(restarts(&decide(&rewritten(&of_instance, 4))), 4, "also for a label");
    let mut unknown = rewritten(&of_machine, 2);
    unknown.records.clear();
    assert_eq!(restarts(&decide(&unknown)), 2, "what it was made of is not known any more");
}

#[test]
fn another_instancetype_or_preference_is_another_instance() {
    let table = [
        ("instancetype", json!({"name": "u1.small"}), 4),
        ("preference", json!({"name": "debian"}), 4),
        ("updateVolumesStrategy", json!("Replacement"), 0),
    ];
    for (field, value, restarted) in table {
        let after = changed(json!({}), |pool| {
            let spec = pool.spec.virtual_machine_template.spec.as_mut().unwrap();
            let mut written = serde_json::to_value(&*spec).unwrap();
            written[field] = value.clone();
            *spec = serde_json::from_value(written).unwrap();
        });
        assert_eq!(restarts(&decide(&rewritten(&after, 4))), restarted, "{field}");
    }
}

#[test]
fn other_volumes_are_another_machine() {
    let after = changed(json!({}), |pool| {
        let storage = json!({"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": {}}});
        let spec = pool.spec.virtual_machine_template.spec.as_mut().unwrap();
        spec.data_volume_templates = vec![serde_json::from_value(storage).unwrap()];
    });
    let mut world = rewritten(&after, 2);
    world.pool.spec.max_unavailable = Some(serde_json::from_value(json!(1)).unwrap());
    world.pool.spec.replicas = Some(2);
    let update = decide(&world).update;
    let [Step::Delete { victim, instance, why, .. }] = update.as_slice() else { panic!("{update:?}") };
    assert_eq!((instance.clone(), *why), (Some(format!("{}-vmi", victim.name)), "its volumes are others now"));
    // The next one is not before this one is back.
    world.members[0].leaves = true;
    assert_eq!(decide(&world).update, []);
    world.members.remove(0);
    look(&mut world);
    let decision = decide(&world);
    assert_eq!((created(&decision), &decision.update[..]), (vec![0], &[][..]));
    world.members.push(Member { instance: None, state: State::default(), ..member(&world.pool, 0, 999) });
    look(&mut world);
    assert_eq!(decide(&world).update, [], "it is not ready yet");
}

#[test]
fn only_so_many_are_away_at_a_time() {
    let after = changed(json!({"maxUnavailable": 2}), |pool| host(pool, "second"));
    let mut world = rewritten(&after, 4);
    assert_eq!(restarts(&decide(&world)), 2);
    // One that does not run counts, unless it is not to run.
    world.members[0].instance = None;
    world.members[0].state.shown = Some(PrintableStatus::Starting);
    assert_eq!(restarts(&decide(&world)), 1);
    world.members[0].state.shown = Some(PrintableStatus::Stopped);
    assert_eq!(restarts(&decide(&world)), 1, "between two instances it shows that, too");
    world.members[0].state.strategy = Some(RunStrategy::Halted);
    assert_eq!(restarts(&decide(&world)), 2);
    // One that is not ready is replaced in any case, and takes one of the two places.
    world.members[1].instance.as_mut().unwrap().is_ready = false;
    let update = decide(&world).update;
    let ill = Step::Restart { machine: victim(&world.members[1]), instance: "p-1-vmi".to_owned(), by_request: false };
    assert!(update.len() == 2 && update.contains(&ill), "{update:?}");
    world.members[1].instance.as_mut().unwrap().leaves = true;
    assert_eq!(restarts(&decide(&world)), 1, "its instance goes already");
}

#[test]
fn machines_are_listed_where_they_come_or_go_and_not_for_each_restart() {
    let after = changed(json!({"maxUnavailable": 1}), |pool| host(pool, "second"));
    let rolling = decide(&rewritten(&after, 4));
    assert!(rolling.acts() && restarts(&rolling) == 1 && !rolling.needs_list(), "{rolling:?}");
    let outdated = decide(&world(after.clone(), members(&pool(4, json!({})), 4)));
    assert!(outdated.acts() && !outdated.needs_list(), "each change names the machine's version: {outdated:?}");
    assert!(decide(&rewritten(&after, 3)).needs_list(), "one is missing");
    let mut adopted = rewritten(&after, 4);
    adopted.members[0].owners.clear();
    assert!(decide(&adopted).needs_list());
}

#[test]
fn machines_that_are_started_by_hand_are_asked_to_restart() {
    let after = changed(json!({}), |pool| host(pool, "second"));
    for (strategy, asked) in [
        (RunStrategy::Always, false),
        (RunStrategy::Once, false),
        (RunStrategy::Manual, true),
        (RunStrategy::RerunOnFailure, true),
    ] {
        let mut world = rewritten(&after, 1);
        world.members[0].state.strategy = Some(strategy);
        let update = decide(&world).update;
        assert!(matches!(update.as_slice(), [Step::Restart { by_request, .. }] if *by_request == asked), "{update:?}");
    }
}

#[test]
fn a_machine_that_is_asked_to_restart_is_away_before_its_guest_is() {
    let after = changed(json!({"maxUnavailable": 1}), |pool| host(pool, "second"));
    let mut world = rewritten(&after, 4);
    world.members.iter_mut().for_each(|member| member.state.strategy = Some(RunStrategy::RerunOnFailure));
    assert_eq!(restarts(&decide(&world)), 1);
    world.members[0].state.is_asked = true;
    assert_eq!(decide(&world).update, [], "its guest still runs");
}

#[test]
fn a_strategy_says_how_far_an_update_goes() {
    let of = |strategy: Value| changed(json!({ "updateStrategy": strategy }), |pool| host(pool, "second"));
    let before = pool(4, json!({}));
    let steps = |strategy: Value| {
        let after = of(strategy);
        let outdated = decide(&world(after.clone(), members(&before, 4))).update.len();
        (outdated, restarts(&decide(&rewritten(&after, 4))))
    };
    assert_eq!(steps(json!({})), (4, 4));
    assert_eq!(steps(json!({"proactive": {}})), (4, 4));
    assert_eq!(steps(json!({"opportunistic": {}})), (4, 0));
    assert_eq!(steps(json!({"unmanaged": {}})), (0, 0));
    let unmanaged = of(json!({"unmanaged": {}}));
    assert!(update::named_records(&unmanaged, &members(&before, 4)).is_empty(), "nothing is read for it");
    let opportunistic = of(json!({"opportunistic": {}}));
    let waiting = rewritten(&opportunistic, 4);
    assert!(update::named_records(&opportunistic, &waiting.members).is_empty(), "nor for instances that wait");
}

#[test]
fn a_policy_says_which_machines_are_taken_and_which_first() {
    let policy =
        |policy: Value| json!({"updateStrategy": {"proactive": {"selectionPolicy": policy}}, "maxUnavailable": 2});
    let after = changed(policy(json!({"sortPolicy": "DescendingOrder"})), |pool| host(pool, "second"));
    let restarted: Vec<String> = decide(&rewritten(&after, 4))
        .update
        .iter()
        .map(|step| if let Step::Restart { machine, .. } = step { machine.name.clone() } else { panic!("{step:?}") })
        .collect();
    assert_eq!(restarted, ["p-3", "p-2"]);
    let selectors = json!({"labelSelector": {"matchLabels": {"tier": "front"}}});
    let after = changed(policy(json!({ "selectors": selectors })), |pool| host(pool, "second"));
    let before = pool(4, json!({}));
    let mut all = members(&before, 4);
    all[2].state.template_labels.insert("tier".to_owned(), "front".to_owned());
    let decision = decide(&world(after, all));
    let [Step::Rewrite { number, .. }] = decision.update.as_slice() else { panic!("{:?}", decision.update) };
    assert_eq!(*number, 2, "the others stay as they are");
}
