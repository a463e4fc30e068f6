//! Which supervisors of running pods are replaced, and what is told of it. Pure.
//!
//! ```text
//!   outdated ──turn──► image set ──sidecar started again, ready, its report passed on──► done
//!      ▲                   │
//!      └── image put back ◄┴── cannot be pulled, ends, says nothing ──► roll-out stops; the same one again after a pause
//! ```
//!
//! The first supervisor of an image is replaced alone; once it has come up, some at a time. Guests notice nothing in either case:
//! QEMU is in another container, whose image is never touched.

use std::collections::BTreeSet;

use garboard_api::conditions::Reason;
use garboard_api::v1::SupervisorStatus;
use jiff::Timestamp;

use super::names::{
    AT_ONCE, DEADLINE, FIRST_PAUSE, IN_PROGRESS, LONGEST_PAUSE, MARKS, ON_A_NODE, OTHER_IMAGE, PUT_BACK_EVERY, SETTLED,
    STOPPED, SWITCHED_OFF, TOLD_EVERY, UPDATE_FAILED, UPDATED, WAITS_FOR_AGENTS,
};
use super::world::{InstanceView, Launcher, Memory, Sidecar, Step, Stop, Told, Underway, World};
use crate::time::elapsed;

/// Reasons of a kubelet that do not pass by themselves soon enough: the guest has no supervisor meanwhile.
const FATAL: [&str; 8] = [
    Reason::ErrImagePull.word(),
    Reason::ImagePullBackOff.word(),
    Reason::ErrImageNeverPull.word(),
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// What is to be done, and what is to be remembered if it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// From now on.
    pub memory: Memory,
}

/// Decides one round.
#[must_use]
pub fn decide(world: &World, memory: &Memory) -> Decision {
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
    tell(world, &mut round, is_alarm);
    round
}

/// An image that the API server did not take is written again, now and then: until it is there the guest has no supervisor.
fn put_back_again(world: &World, round: &mut Decision) {
    let is_due = round.memory.put_back_at.is_none_or(|at| elapsed(at, world.now) >= PUT_BACK_EVERY);
    let set: BTreeSet<&str> = round.steps.iter().filter_map(image_set).collect();
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

/// The pod whose image a step sets.
fn image_set(step: &Step) -> Option<&str> {
    match step {
        Step::SetImage { pod_uid, .. } => Some(pod_uid),
        Step::Mark { .. } | Step::Unmark { .. } | Step::Tell { .. } | Step::TellAll { .. } => None,
    }
}

/// Of pods that are gone nothing is remembered.
fn forget_gone(world: &World, memory: &mut Memory) {
    memory.underway.retain(|uid, _| world.launchers.contains_key(uid));
    memory.marked.retain(|uid| world.launchers.contains_key(uid));
    memory.put_back.retain(|uid, _| world.launchers.get(uid).is_some_and(|each| each.image == world.wanted));
}

/// What has the image already, and nobody here has given it: an earlier leader did, or it is the image from before again.
/// Of one that failed nothing is expected until it runs.
fn adopt(world: &World, memory: &mut Memory) {
    let replaced = world.launchers.values().filter(|launcher| launcher.image == world.wanted && launcher.guest_runs);
    let hopeful = replaced.filter(|each| !memory.put_back.contains_key(&each.pod_uid) || each.state == Sidecar::Runs);
    for uid in hopeful.map(|each| &each.pod_uid).collect::<Vec<_>>() {
        memory.underway.entry(uid.clone()).or_insert_with(|| Underway {
            from: None,
            restarts: None,
            supervisor: world.instances.get(uid).and_then(|view| view.supervisor.clone()),
            since: world.now,
            is_seen: true,
            runs_since: None,
        });
    }
}

/// How far a supervisor is that is being replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Waits,
    CameUp,
    Failed(String),
}

fn follow(world: &World, uid: &str, underway: &Underway, round: &mut Decision) {
    let Some(launcher) = world.launchers.get(uid) else { return };
    if !launcher.guest_runs {
        // Its pod is going: a kubelet starts nothing in it any more, and nothing can be said of the image.
        round.memory.underway.remove(uid);
        return;
    }
    let is_overdue = elapsed(underway.since, world.now) >= DEADLINE;
    if launcher.image != world.wanted {
        // The watch may have to deliver it yet; or somebody has set another image, and it is outdated again.
        if underway.is_seen || is_overdue {
            round.memory.underway.remove(uid);
        }
        return;
    }
    let restarted = underway.restarts.is_none_or(|before| launcher.restarts > before);
    let runs = launcher.state == Sidecar::Runs && restarted;
    let runs_since = runs.then(|| underway.runs_since.unwrap_or(world.now));
    let now = Underway { runs_since, is_seen: true, ..underway.clone() };
    match progress(launcher, &now, world.instances.get(uid), world.now) {
        Progress::Waits => {
            round.memory.underway.insert(uid.to_owned(), now);
        }
        Progress::CameUp => came_up(world, uid, underway, round),
        Progress::Failed(why) => failed(world, launcher, (underway, why), round),
    }
}

fn progress(launcher: &Launcher, underway: &Underway, view: Option<&InstanceView>, now: Timestamp) -> Progress {
    if let Sidecar::Waits { reason, message } = &launcher.state
        && FATAL.contains(&reason.as_str())
    {
        return Progress::Failed(format!("{reason}: {message}"));
    }
    let said: Option<&SupervisorStatus> = view.and_then(|view| view.supervisor.as_ref());
    let has_reported = said != underway.supervisor.as_ref();
    // Supervisors that say nothing of themselves follow each other, or the report came before this leader.
    let cannot_be_told = said.is_none() || underway.restarts.is_none();
    match underway.runs_since {
        Some(_) if has_reported => Progress::CameUp,
        Some(since) if cannot_be_told && elapsed(since, now) >= SETTLED => Progress::CameUp,
        Some(_) if elapsed(underway.since, now) >= DEADLINE => {
            Progress::Failed("it runs, and its node agent has passed on no report of it".to_owned())
        }
        None if elapsed(underway.since, now) >= DEADLINE => {
            // Of a sidecar that has ended well a kubelet does not say in the pod's status why it cannot start the next one.
            let pod = format!("kubectl -n {} describe pod {}", launcher.namespace, launcher.pod);
            Progress::Failed(format!("its kubelet has not started it; the events of the pod say why ({pod})"))
        }
        Some(_) | None => Progress::Waits,
    }
}

fn came_up(world: &World, uid: &str, underway: &Underway, round: &mut Decision) {
    let memory = &mut round.memory;
    memory.underway.remove(uid);
    memory.marked.remove(uid);
    memory.put_back.remove(uid);
    // One that was under way already when another failed says nothing of that failure.
    let ends = |stop: &Stop| stop.pod_uid == uid || (underway.from.is_some() && underway.since >= stop.again_at);
    if memory.stop.as_ref().is_some_and(ends) {
        memory.stop = None;
    }
    if underway.from.is_some() {
        memory.is_proven = true;
        let note = format!("the supervisor is of the image {} now; the guest was not touched", world.wanted);
        round.steps.push(Step::Tell { pod_uid: uid.to_owned(), reason: UPDATED, note });
    }
    round.steps.push(Step::Unmark { pod_uid: uid.to_owned() });
}

fn failed(world: &World, launcher: &Launcher, (underway, why): (&Underway, String), round: &mut Decision) {
    let uid = &launcher.pod_uid;
    let back = underway.from.clone().unwrap_or_else(|| launcher.first_image.clone());
    let failures = failures(round.memory.stop.as_ref(), world.now);
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE);
    let sentence = format!("a supervisor of the image {} did not come up: {why}; {back} was put back", world.wanted);
    round.memory.underway.remove(uid);
    round.memory.stop = Some(Stop {
        pod_uid: uid.clone(),
        instance: format!("{}/{}", launcher.namespace, launcher.instance),
        why: sentence.clone(),
        again_at: world.now.checked_add(pause).unwrap_or(Timestamp::MAX),
        failures,
    });
    round.memory.marked.insert(uid.clone());
    // Where `compute` is of the wanted image itself there is nothing to go back to.
    if back != world.wanted {
        round.steps.push(Step::SetImage { pod_uid: uid.clone(), image: back.clone() });
    }
    round.memory.put_back.insert(uid.clone(), back);
    round.steps.push(Step::Mark { pod_uid: uid.clone(), reason: UPDATE_FAILED, message: sentence.clone() });
    round.steps.push(Step::Tell { pod_uid: uid.clone(), reason: UPDATE_FAILED, note: sentence });
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
pub fn to_mark<'a>(world: &'a World, memory: &'a Memory) -> impl Iterator<Item = &'a Launcher> {
    let outdated = world.launchers.values().filter(|launcher| launcher.image != world.wanted);
    outdated.filter(|launcher| !memory.marked.contains(&launcher.pod_uid)).take(MARKS)
}

fn mark(world: &World, round: &mut Decision) {
    let unmarked: Vec<&Launcher> = to_mark(world, &round.memory).collect();
    let mut marked = Vec::new();
    for launcher in unmarked {
        let Some(view) = world.instances.get(&launcher.pod_uid) else {
            // It cannot be read: it does not take the place of another one in each round.
            marked.push(launcher.pod_uid.clone());
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

/// Launchers whose supervisors may be replaced now, as far as their pods show it, in the order of their turns.
pub fn candidates<'a>(world: &'a World, memory: &'a Memory) -> Vec<&'a Launcher> {
    if !world.is_on {
        return Vec::new();
    }
    let stop = memory.stop.as_ref();
    let is_its_turn = |launcher: &&Launcher| match stop {
        None => true,
        Some(stop) if world.now < stop.again_at => false,
        // The one that failed shows whether its cause is gone; another one does if that one cannot be tried.
        Some(stop) => {
            launcher.pod_uid == stop.pod_uid
                || !world.launchers.get(&stop.pod_uid).is_some_and(|each| is_able(world, each))
        }
    };
    let limit = if memory.is_proven && stop.is_none() { AT_ONCE } else { 1 };
    let room = limit.saturating_sub(memory.underway.len());
    let able = world.launchers.values().filter(|each| is_able(world, each));
    let able = able.filter(|each| !memory.underway.contains_key(&each.pod_uid));
    let underway: Vec<&Launcher> = memory.underway.keys().filter_map(|uid| world.launchers.get(uid)).collect();
    let busy = |node: &str| underway.iter().filter(|each| each.node == node).count();
    let mut chosen: Vec<&Launcher> = Vec::new();
    for launcher in able.filter(is_its_turn) {
        let beside = chosen.iter().filter(|each| each.node == launcher.node).count();
        if chosen.len() < room && busy(&launcher.node) + beside < ON_A_NODE {
            chosen.push(launcher);
        }
    }
    chosen
}

/// Whether the supervisor of a pod is outdated and can be replaced.
fn is_able(world: &World, launcher: &Launcher) -> bool {
    launcher.image != world.wanted
        && launcher.guest_runs
        && launcher.state == Sidecar::Runs
        && world.agents.contains(&launcher.node)
}

fn begin(world: &World, round: &mut Decision) {
    let chosen: Vec<Launcher> = candidates(world, &round.memory).into_iter().cloned().collect();
    for launcher in chosen {
        // An instance that cannot be read says nothing of its supervisor: then the pod alone tells how it is.
        let view = world.instances.get(&launcher.pod_uid).cloned().unwrap_or_default();
        let underway = Underway {
            from: Some(launcher.image.clone()),
            restarts: Some(launcher.restarts),
            supervisor: view.supervisor,
            since: world.now,
            is_seen: false,
            runs_since: None,
        };
        round.memory.underway.insert(launcher.pod_uid.clone(), underway);
        round.steps.push(Step::SetImage { pod_uid: launcher.pod_uid, image: world.wanted.clone() });
    }
}

/// What the KubeVirt object should say.
fn state(world: &World, memory: &Memory) -> Option<Told> {
    let is_idle = |launcher: &&Launcher| !memory.underway.contains_key(&launcher.pod_uid);
    let outdated = world.launchers.values().filter(|launcher| launcher.image != world.wanted).filter(is_idle).count();
    let outdated = outdated + memory.underway.len();
    let told = |reason: &str, message: String| Some(Told { outdated, reason: reason.to_owned(), message });
    let waits = world.launchers.values().any(|launcher| !world.agents.contains(&launcher.node));
    match &memory.stop {
        _ if outdated == 0 => None,
        _ if !world.is_on => {
            let message = "supervisors of running pods keep their image, because the annotation garboard.dev/launcher-update of this \
                           object says Disabled; remove it, and they are replaced";
            told(SWITCHED_OFF, message.to_owned())
        }
        Some(stop) => told(
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
            told(WAITS_FOR_AGENTS, message.to_owned())
        }
        None => told(
            IN_PROGRESS,
            format!("supervisors of running pods get the image {}; guests are not touched", world.wanted),
        ),
    }
}

/// Another reason is told at once, another number now and then.
fn tell(world: &World, round: &mut Decision, is_alarm: bool) {
    let told = state(world, &round.memory);
    let words = |told: &Option<Told>| told.as_ref().map(|told| (told.reason.clone(), told.message.clone()));
    let is_other = words(&told) != words(&world.told);
    let is_due = round.memory.told_at.is_none_or(|at| elapsed(at, world.now) >= TOLD_EVERY);
    if is_other || is_alarm || (told != world.told && is_due) {
        round.memory.told_at = Some(world.now);
        round.steps.push(Step::TellAll { told, is_alarm });
    }
}
