//! Which supervisor goes first, and when it counts as updated.

use super::*;

fn crashes() -> Sidecar {
    Sidecar::Waits { reason: "CrashLoopBackOff".into(), message: "back-off 40s restarting failed container".into() }
}

#[test]
fn one_that_dies_after_its_report_has_failed() {
    let mut world = many(2, 2);
    let first = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &first);
    let reported = decide(&world, &first.memory);
    assert_eq!(set(&reported), [], "it is watched before the next one begins");
    world.now += Duration::from_secs(10);
    world.launchers.get_mut("0000").unwrap().state = Sidecar::Else;
    let died = decide(&world, &reported.memory);
    world.now += Duration::from_secs(2);
    let launcher = world.launchers.get_mut("0000").unwrap();
    (launcher.state, launcher.restarts) = (Sidecar::Runs, launcher.restarts + 1);
    let again = decide(&world, &died.memory);
    world.now += SETTLED - Duration::from_secs(1);
    let watched = decide(&world, &again.memory);
    assert!(watched.memory.underway.contains_key("0000"), "its time begins anew");
    world.launchers.get_mut("0000").unwrap().state = crashes();
    let failed = decide(&world, &watched.memory);
    assert_eq!(set(&failed), [("0000".to_owned(), OLD.to_owned())]);
    assert!(failed.memory.stop.unwrap().why.contains("CrashLoopBackOff"));
}

#[test]
fn a_restart_between_two_rounds_is_seen_by_its_number() {
    let mut world = many(1, 1);
    let first = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &first);
    let runs = decide(&world, &first.memory);
    world.launchers.get_mut("0000").unwrap().restarts += 1;
    world.now += SETTLED;
    let again = decide(&world, &runs.memory);
    assert!(again.memory.underway.contains_key("0000"));
    world.now += SETTLED;
    assert!(decide(&world, &again.memory).memory.underway.is_empty());
}

#[test]
fn one_that_reported_late_is_watched_beyond_the_deadline() {
    let mut world = many(1, 1);
    let first = decide(&world, &RoundMemory::default());
    world.now += DEADLINE - Duration::from_secs(6);
    comes_up(&mut world, &first);
    let late = decide(&world, &first.memory);
    world.now += SETTLED - Duration::from_secs(1);
    let watched = decide(&world, &late.memory);
    assert_eq!((&watched.memory.stop, watched.memory.underway.len()), (&None, 1));
    world.now += Duration::from_secs(1);
    assert_eq!(decide(&world, &watched.memory).memory.underway.len(), 0);
}

#[test]
fn the_next_ones_do_not_wait_for_those_that_are_watched() {
    let mut world = many(40, 10);
    let begun = decide(&world, &RoundMemory { is_proven: true, ..RoundMemory::default() });
    assert_eq!(set(&begun).len(), AT_ONCE);
    comes_up(&mut world, &begun);
    let next = decide(&world, &begun.memory);
    assert_eq!((set(&next).len(), next.memory.underway.len()), (AT_ONCE, 2 * AT_ONCE));
    // One of the first dies: it gets its image back, and the others are followed and not added to.
    world.now += Duration::from_secs(10);
    let (uid, launcher) = world.launchers.iter_mut().find(|(_, each)| each.image == NEW).unwrap();
    launcher.state = crashes();
    let uid = uid.clone();
    let failed = decide(&world, &next.memory);
    assert_eq!(set(&failed), [(uid, OLD.to_owned())]);
}

#[test]
fn one_that_ends_again_and_again_is_replaced_after_those_that_run() {
    let mut world = many(3, 3);
    world.launchers.get_mut("0000").unwrap().state = crashes();
    let first = decide(&world, &RoundMemory::default());
    assert_eq!(set(&first), [("0001".to_owned(), NEW.to_owned())], "the proof is one that was well");
    comes_up(&mut world, &first);
    let next = settle(&mut world, &first.memory);
    assert_eq!(set(&next), [("0002".to_owned(), NEW.to_owned()), ("0000".to_owned(), NEW.to_owned())]);
    // Its kubelet may show for a while its report of the one before.
    world.now += Duration::from_secs(2);
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.image = NEW.into();
    let waits = decide(&world, &next.memory);
    assert_eq!(waits.memory.stop, None);
    // The new one runs.
    let launcher = world.launchers.get_mut("0000").unwrap();
    (launcher.state, launcher.restarts) = (Sidecar::Runs, launcher.restarts + 1);
    world.instances.get_mut("0000").unwrap().supervisor = supervisor(world.now.as_second());
    let cured = settle(&mut world, &waits.memory);
    assert!(cured.steps.contains(&Step::Unmark { pod_uid: "0000".into() }), "{:?}", cured.steps);
}

#[test]
fn one_that_does_not_run_with_either_image_proves_nothing_about_the_image() {
    let mut world = many(2, 2);
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.state = crashes();
    let begun = decide(&world, &RoundMemory { is_proven: true, ..RoundMemory::default() });
    assert_eq!(set(&begun).len(), 2);
    world.now += Duration::from_secs(15);
    let launcher = world.launchers.get_mut("0000").unwrap();
    (launcher.image, launcher.restarts) = (NEW.into(), launcher.restarts + 1);
    let failed = decide(&world, &begun.memory);
    assert_eq!((set(&failed), &failed.memory.stop), (vec![], &None), "the one before ran no better");
    let marks = failed.steps.iter().filter(|step| matches!(step, Step::Mark { reason: UPDATE_FAILED, .. }));
    assert_eq!(marks.count(), 1);
    let again = decide(&world, &failed.memory);
    assert!(!again.memory.underway.contains_key("0000"), "nothing is expected of it until it runs");
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.state = Sidecar::Runs;
    assert!(decide(&world, &again.memory).memory.underway.contains_key("0000"));
}

#[test]
fn an_image_that_cannot_be_pulled_is_put_back_also_where_the_one_before_did_not_run() {
    let mut world = many(1, 1);
    world.launchers.get_mut("0000").unwrap().state = crashes();
    let begun = decide(&world, &RoundMemory::default());
    world.now += STALE;
    cannot_pull(&mut world, "0000");
    let failed = decide(&world, &begun.memory);
    assert_eq!(set(&failed), [("0000".to_owned(), OLD.to_owned())]);
    assert!(failed.memory.stop.is_some());
}

#[test]
fn an_instance_that_cannot_be_read_is_the_last_and_proves_nothing() {
    let mut world = many(2, 2);
    world.instances.remove("0000");
    world.unreadable.insert("0000".into());
    let first = decide(&world, &RoundMemory::default());
    assert_eq!(set(&first), []);
    let second = decide(&world, &first.memory);
    assert_eq!(set(&second), [("0001".to_owned(), NEW.to_owned())]);
    let mut alone = world.clone();
    comes_up(&mut world, &second);
    let third = settle(&mut world, &second.memory);
    assert_eq!(set(&third), [("0000".to_owned(), NEW.to_owned())]);
    // Where there is no other one it is replaced all the same, and what comes later is alone, too.
    alone.launchers.remove("0001");
    let begun = decide(&alone, &decide(&alone, &RoundMemory::default()).memory);
    assert_eq!(set(&begun).len(), 1);
    alone.now += Duration::from_secs(5);
    let launcher = alone.launchers.get_mut("0000").unwrap();
    (launcher.image, launcher.restarts) = (NEW.into(), launcher.restarts + 1);
    let runs = settle(&mut alone, &begun.memory);
    assert!(runs.memory.underway.is_empty() && !runs.memory.is_proven, "only the pod shows that it runs");
}

#[test]
fn nothing_begins_before_its_instance_was_looked_up() {
    let mut world = many(1, 1);
    let view = world.instances.remove("0000").unwrap();
    let first = decide(&world, &RoundMemory::default());
    assert_eq!((set(&first), first.memory.marked.len()), (vec![], 0));
    world.instances.insert("0000".into(), view);
    assert_eq!(set(&decide(&world, &first.memory)).len(), 1);
}

#[test]
fn an_image_that_is_to_be_put_back_is_the_one_before_for_as_long_as_it_takes() {
    let mut world = many(2, 2);
    world.launchers.get_mut("0000").unwrap().first_image = "launcher:0".into();
    let begun = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &begun);
    world.instances.get_mut("0000").unwrap().supervisor = supervisor(0);
    let runs = decide(&world, &begun.memory);
    world.now += DEADLINE;
    let mut decision = decide(&world, &runs.memory);
    assert_eq!(set(&decision), [("0000".to_owned(), OLD.to_owned())], "it has not reported");
    // The API server refuses it. The supervisor runs, and still gets its image back, and no other one is touched.
    let mut written = 0;
    for _ in 0..1000 {
        world.now += Duration::from_secs(1);
        decision = decide(&world, &decision.memory);
        let set = set(&decision);
        assert!(set.iter().all(|step| *step == ("0000".to_owned(), OLD.to_owned())), "{set:?}");
        written += set.len();
    }
    assert_eq!(written, 100, "every ten seconds");
}

#[test]
fn one_that_came_up_is_not_followed_again_before_its_mark_is_gone() {
    let mut world = many(1, 1);
    let first = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &first);
    let done = settle(&mut world, &first.memory);
    let lagging = decide(&world, &done.memory);
    assert!(lagging.memory.underway.is_empty() && set(&lagging).is_empty());
}
