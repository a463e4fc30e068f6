//! Which supervisors of running pods are replaced, and what is reported of it. Pure.
//!
//! ```text
//!   outdated ──turn──► image set ──sidecar started again, ready, its report passed on──► watched ──runs on──► done
//!      ▲                   │                                                                │
//!      └── image put back ◄┴── cannot be pulled, ends, reports nothing ◄────────────────────┘
//!                               └──► roll-out stops; the same one again after a pause
//! ```
//!
//! The first supervisor of an image is replaced alone; once it has come up and run on, some at a time, and the next ones begin
//! while those that have reported are watched. Guests notice nothing in either case: QEMU is in another container, whose image
//! is never touched.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::names::{
    AT_ONCE, DEADLINE, FIRST_PAUSE, IN_PROGRESS, LONGEST_PAUSE, MARKS, ON_A_NODE, OTHER_IMAGE, PUT_BACK_EVERY,
    REPORT_INTERVAL, STOPPED, SWITCHED_OFF, UPDATE_FAILED, UPDATED, WAITS_FOR_AGENTS,
};
use super::progress::{Progress, is_of_the_machine, progress, seen};
use super::world::{Launcher, Reported, RoundMemory, Sidecar, Step, Stop, Underway, World};
use crate::time::elapsed;

/// What is to be done, and what is to be remembered if it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// From now on.
    pub memory: RoundMemory,
}

/// Decides one round.
#[must_use]
pub fn decide(world: &World, memory: &RoundMemory) -> Decision {
    if !world.is_installed {
        // Two leaders with two images would undo each other's work.
        return Decision { steps: Vec::new(), memory: RoundMemory::default() };
    }
    let mut round = Decision { steps: Vec::new(), memory: memory.clone() };
    forget_gone(world, &mut round.memory);
    adopt(world, &mut round.memory);
    let failed_before = round.memory.stop.clone();
    for (pod_uid, underway) in round.memory.underway.clone() {
        follow(world, &pod_uid, &underway, &mut round);
    }
    let is_alarm = round.memory.stop != failed_before && round.memory.stop.is_some();
    put_back_again(world, &mut round);
    mark(world, &mut round);
    begin(world, &mut round);
    report(world, &mut round, is_alarm);
    round
}

/// An image that the API server did not take is written again, now and then: until it is there the guest has no supervisor.
fn put_back_again(world: &World, round: &mut Decision) {
    let is_due = round.memory.put_back_at.is_none_or(|at| elapsed(at, world.now) >= PUT_BACK_EVERY);
    let set: BTreeSet<&str> =
        round.steps.iter().filter(|step| step.image().is_some()).filter_map(Step::pod_uid).collect();
    let wanting = |uid: &String, image: &String| *image != world.wanted && !set.contains(uid.as_str());
    let late: Vec<Step> = round
        .memory
        .put_back
        .iter()
        .filter(|(uid, image)| is_due && wanting(uid, image) && !round.memory.underway.contains_key(*uid))
        .map(|(uid, image)| Step::SetImage { pod_uid: uid.clone(), image: image.clone() })
        .collect();
    if !set.is_empty() || !late.is_empty() {
        round.memory.put_back_at = Some(world.now);
    }
    round.steps.extend(late);
}

/// Of pods that are gone nothing is remembered.
fn forget_gone(world: &World, memory: &mut RoundMemory) {
    memory.underway.retain(|uid, _| world.launchers.contains_key(uid));
    memory.marked.retain(|uid| world.launchers.contains_key(uid));
    memory.unread.retain(|uid| world.launchers.contains_key(uid));
    memory.done.retain(|uid| world.launchers.get(uid).is_some_and(|each| each.image == world.wanted));
    memory.put_back.retain(|uid, _| world.launchers.get(uid).is_some_and(|each| each.image == world.wanted));
}

/// What has the image already, and this leader has not given it: an earlier one did, or it is the image from before again.
/// Of one that failed nothing is expected until it runs; where there is an image to put back, that is done, whether it runs or not.
fn adopt(world: &World, memory: &mut RoundMemory) {
    let replaced = world.launchers.values().filter(|launcher| launcher.image == world.wanted && launcher.guest_runs);
    let known = |each: &&Launcher| memory.done.contains(&each.pod_uid);
    let hopeful = replaced.filter(|each| !known(each)).filter(|each| match memory.put_back.get(&each.pod_uid) {
        Some(image) => *image == world.wanted && each.state == Sidecar::Runs,
        None => true,
    });
    for uid in hopeful.map(|each| &each.pod_uid).collect::<Vec<_>>() {
        memory.underway.entry(uid.clone()).or_insert_with(|| Underway {
            from: None,
            restarts: None,
            supervisor: world.instances.get(uid).and_then(|view| view.supervisor.clone()),
            since: world.now,
            is_seen: true,
            run: None,
            reported_at: None,
            was_broken: false,
        });
    }
}

fn follow(world: &World, uid: &str, underway: &Underway, round: &mut Decision) {
    let Some(launcher) = world.launchers.get(uid) else { return };
    if !launcher.guest_runs {
        // Its pod is going: a kubelet starts nothing in it any more, and nothing is known of the image.
        round.memory.underway.remove(uid);
        return;
    }
    let is_overdue = elapsed(underway.since, world.now) >= DEADLINE;
    if launcher.image != world.wanted {
        // The watch may have to deliver it yet; or another client has set another image, and it is outdated again.
        if underway.is_seen || is_overdue {
            round.memory.underway.remove(uid);
        }
        return;
    }
    let view = world.instances.get(uid);
    let now = seen(launcher, underway, view, world.now);
    match progress(launcher, &now, view, world.now) {
        Progress::Waits => {
            round.memory.underway.insert(uid.to_owned(), now);
        }
        Progress::CameUp => came_up(world, uid, underway, round),
        Progress::Failed(why) => failed(world, launcher, underway, &why, round),
    }
}

fn came_up(world: &World, uid: &str, underway: &Underway, round: &mut Decision) {
    let memory = &mut round.memory;
    memory.underway.remove(uid);
    memory.done.insert(uid.to_owned());
    memory.marked.remove(uid);
    memory.put_back.remove(uid);
    let was_read = !memory.unread.remove(uid);
    // One that was under way already when another failed proves nothing about that failure.
    let ends = |stop: &Stop| stop.pod_uid == uid || (underway.from.is_some() && underway.since >= stop.again_at);
    if memory.stop.as_ref().is_some_and(ends) {
        memory.stop = None;
    }
    if underway.from.is_some() {
        // One whose report could not be read is no proof for others.
        memory.is_proven |= was_read;
        let note = format!("the supervisor is of the image {} now; the guest was not touched", world.wanted);
        round.steps.push(Step::Event { pod_uid: uid.to_owned(), reason: UPDATED, note });
    }
    round.steps.push(Step::Unmark { pod_uid: uid.to_owned() });
}

fn failed(world: &World, launcher: &Launcher, underway: &Underway, why: &str, round: &mut Decision) {
    let uid = &launcher.pod_uid;
    let is_of_the_machine = is_of_the_machine(launcher, underway);
    let back = match &underway.from {
        // The one before did not run either.
        _ if is_of_the_machine => world.wanted.clone(),
        Some(image) => image.clone(),
        None => launcher.first_image.clone(),
    };
    let then = match back == world.wanted {
        true => "it stays, for no other one is known to run".to_owned(),
        false => format!("{back} was put back"),
    };
    let message = format!("a supervisor of the image {} did not come up: {why}; {then}", world.wanted);
    round.memory.underway.remove(uid);
    if !is_of_the_machine {
        round.memory.stop = Some(stop(launcher, message.clone(), round.memory.stop.as_ref(), world.now));
    }
    round.memory.marked.insert(uid.clone());
    if back != world.wanted {
        round.steps.push(Step::SetImage { pod_uid: uid.clone(), image: back.clone() });
    }
    round.memory.put_back.insert(uid.clone(), back);
    round.steps.push(Step::Mark { pod_uid: uid.clone(), reason: UPDATE_FAILED, message: message.clone() });
    round.steps.push(Step::Event { pod_uid: uid.clone(), reason: UPDATE_FAILED, note: message });
}

/// The stop of a roll-out by this launcher, after the one before.
pub(super) fn stop(launcher: &Launcher, why: String, before: Option<&Stop>, now: Timestamp) -> Stop {
    let failures = failures(before, now);
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE);
    Stop {
        pod_uid: launcher.pod_uid.clone(),
        instance: format!("{}/{}", launcher.namespace, launcher.instance),
        why,
        again_at: now.checked_add(pause).unwrap_or(Timestamp::MAX),
        failures,
    }
}

/// How many attempts in a row have failed. Those that were under way together are one.
fn failures(stop: Option<&Stop>, now: Timestamp) -> u32 {
    match stop {
        None => 1,
        Some(stop) if now < stop.again_at => stop.failures,
        Some(stop) => stop.failures.saturating_add(1),
    }
}

/// Which launchers may be marked in this round: what is known of their instances is looked up.
pub fn to_mark<'a>(world: &'a World, memory: &'a RoundMemory) -> impl Iterator<Item = &'a Launcher> {
    let outdated = world.launchers.values().filter(|launcher| launcher.image != world.wanted);
    outdated.filter(|launcher| !memory.marked.contains(&launcher.pod_uid)).take(MARKS)
}

fn mark(world: &World, round: &mut Decision) {
    let unmarked: Vec<&Launcher> = to_mark(world, &round.memory).collect();
    let mut marked = Vec::new();
    for launcher in unmarked {
        let Some(view) = world.instances.get(&launcher.pod_uid) else {
            // It does not take the place of another one in each round.
            marked.extend(world.unreadable.get(&launcher.pod_uid).cloned());
            continue;
        };
        let message = format!(
            "its supervisor is of the image {}, and that of new launcher pods is {}; it is replaced in place, and the guest \
             goes on",
            launcher.image, world.wanted
        );
        if view.marked.as_ref() != Some(&message) {
            round.steps.push(Step::Mark { pod_uid: launcher.pod_uid.clone(), reason: OTHER_IMAGE, message });
        }
        marked.push(launcher.pod_uid.clone());
    }
    round.memory.marked.extend(marked);
}

/// Whether a supervisor may be replaced in this round, if its node's agent is ready.
#[must_use]
pub fn may_begin(world: &World, memory: &RoundMemory) -> bool {
    let pauses = memory.stop.as_ref().is_some_and(|stop| world.now < stop.again_at);
    // One that has no supervisor because its image could not be put back is enough.
    let runs = |uid: &String| world.launchers.get(uid).is_some_and(|each| each.guest_runs);
    let is_owed = memory.put_back.iter().any(|(uid, image)| *image != world.wanted && runs(uid));
    world.is_on && !pauses && !is_owed
}

/// Launchers whose supervisors may be replaced now, as far as their pods show it, in the order of their turns: what is known to
/// be well goes first, for it shows best what the image is worth.
pub fn candidates<'a>(world: &'a World, memory: &'a RoundMemory) -> Vec<&'a Launcher> {
    if !may_begin(world, memory) {
        return Vec::new();
    }
    let stop = memory.stop.as_ref();
    // The one that failed shows whether its cause is gone; another one does if that one cannot be tried.
    let is_its_turn = |launcher: &&Launcher| {
        stop.is_none_or(|stop| {
            let is_tried = world.launchers.get(&stop.pod_uid).is_some_and(|each| is_able(world, each));
            launcher.pod_uid == stop.pod_uid || !is_tried
        })
    };
    let is_proven = memory.is_proven && stop.is_none();
    let limit = if is_proven { AT_ONCE } else { 1 };
    // Of a good image those that have reported take no place.
    let taking = |(_, each): &(&String, &Underway)| !is_proven || each.reported_at.is_none();
    let busy: Vec<&str> = memory.underway.iter().filter(taking).map(|(uid, _)| uid.as_str()).collect();
    let room = limit.saturating_sub(busy.len());
    let on =
        |node: &str| busy.iter().filter(|uid| world.launchers.get(**uid).is_some_and(|each| each.node == node)).count();
    let able = world.launchers.values().filter(|each| is_able(world, each));
    let mut able: Vec<&Launcher> = able.filter(|each| !memory.underway.contains_key(&each.pod_uid)).collect();
    able.sort_by_key(|each| (is_broken(each), memory.unread.contains(&each.pod_uid)));
    let mut chosen: Vec<&Launcher> = Vec::new();
    for launcher in able.into_iter().filter(is_its_turn) {
        let beside = chosen.iter().filter(|each| each.node == launcher.node).count();
        if chosen.len() < room && on(&launcher.node) + beside < ON_A_NODE {
            chosen.push(launcher);
        }
    }
    chosen
}

/// Whether the supervisor of a pod is outdated and can be replaced. One that its kubelet does not start may be cured by it.
fn is_able(world: &World, launcher: &Launcher) -> bool {
    launcher.image != world.wanted
        && launcher.guest_runs
        && (launcher.state == Sidecar::Runs || is_broken(launcher))
        && world.agents.contains(&launcher.node)
}

fn is_broken(launcher: &Launcher) -> bool {
    matches!(launcher.state, Sidecar::Waits { .. })
}

fn begin(world: &World, round: &mut Decision) {
    let chosen: Vec<Launcher> = candidates(world, &round.memory).into_iter().cloned().collect();
    for launcher in chosen {
        let uid = &launcher.pod_uid;
        let supervisor = match world.instances.get(uid) {
            None if !world.unreadable.contains(uid) => continue,
            // It reports nothing of its supervisor: only the pod shows how that is, when the turn comes after all others.
            None if round.memory.unread.insert(uid.clone()) => continue,
            None => None,
            Some(view) => {
                round.memory.unread.remove(uid);
                view.supervisor.clone()
            }
        };
        let underway = Underway {
            from: Some(launcher.image.clone()),
            restarts: Some(launcher.restarts),
            supervisor,
            since: world.now,
            is_seen: false,
            run: None,
            reported_at: None,
            was_broken: is_broken(&launcher),
        };
        round.memory.underway.insert(uid.clone(), underway);
        round.steps.push(Step::SetImage { pod_uid: launcher.pod_uid, image: world.wanted.clone() });
    }
}

/// What the KubeVirt object should report.
fn state(world: &World, memory: &RoundMemory) -> Option<Reported> {
    let is_idle = |launcher: &&Launcher| !memory.underway.contains_key(&launcher.pod_uid);
    let outdated = world.launchers.values().filter(|launcher| launcher.image != world.wanted).filter(is_idle).count();
    let outdated = outdated + memory.underway.len();
    let reported = |reason, message: String| Some(Reported { outdated, reason: Some(reason), message });
    let waits = world.launchers.values().any(|launcher| !world.agents.contains(&launcher.node));
    match &memory.stop {
        _ if outdated == 0 => None,
        _ if !world.is_on => {
            let message = "supervisors of running pods keep their image, because the annotation garboard.dev/launcher-update of this \
                           object is Disabled; remove it, and they are replaced";
            reported(SWITCHED_OFF, message.to_owned())
        }
        Some(stop) => reported(
            STOPPED,
            format!(
                "{}: {}; no other supervisor is replaced until this one can be: correct what is wrong on its node, it is tried \
                 again at {:.0}, or install another image",
                stop.instance, stop.why, stop.again_at
            ),
        ),
        None if waits && memory.underway.is_empty() => {
            let message =
                "on nodes with outdated supervisors the node agent is not ready, or not yet of the installed version";
            reported(WAITS_FOR_AGENTS, message.to_owned())
        }
        None => reported(
            IN_PROGRESS,
            format!("supervisors of running pods get the image {}; guests are not touched", world.wanted),
        ),
    }
}

/// Another reason is reported at once, another number now and then.
fn report(world: &World, round: &mut Decision, is_alarm: bool) {
    let reported = state(world, &round.memory);
    let texts = |of: &Option<Reported>| of.as_ref().map(|each| (each.reason, each.message.clone()));
    let is_other = texts(&reported) != texts(&world.reported);
    let is_due = round.memory.reported_at.is_none_or(|at| elapsed(at, world.now) >= REPORT_INTERVAL);
    if is_other || is_alarm || (reported != world.reported && is_due) {
        round.memory.reported_at = Some(world.now);
        round.steps.push(Step::Report { reported, is_alarm });
    }
}
