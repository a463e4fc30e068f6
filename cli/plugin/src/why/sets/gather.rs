//! Looking at a set or a pool, and at some of its members, as far as the user may.

use garboard_api::conditions::{ConditionStatus, VmiConditionType};
use garboard_api::run_strategy::RunStrategy;
use garboard_api::{Phase, PrintableStatus, VirtualMachine};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::facts::{Member, MemberState, Set, SetFacts};
use crate::failure::Failure;
use crate::find;
use crate::look::{Look, Question};
use crate::set_kind::SetKind;
use crate::why::diagnose::diagnose;
use crate::why::diagnosis::{Diagnosis, DiagnosisVerdict, Health};
use crate::why::facts::Parts;
use crate::why::gather::{gather as gather_machine, list, noted, strip_deployment};

/// Members that are looked at one by one: each is some ten questions.
const MOST_LOOKED_AT: usize = 3;

/// Looks. What the user may not see is noted, and is no failure; but for the object itself.
pub(crate) fn gather(cluster: &impl Look, kind: SetKind, name: &str, now: Timestamp) -> Result<SetFacts, Failure> {
    let (object, machines, controller) = std::thread::scope(|scope| {
        let machines = scope.spawn(|| cluster.look(Question::Machines));
        let controller = scope.spawn(|| list::<Deployment>(cluster, Question::Controller));
        let object = cluster.look(Question::Set(kind, name));
        let lost = || Failure::Other("the query failed".to_owned());
        let machines = machines.join().unwrap_or_else(|_| Err(lost()));
        (object, machines, controller.join().unwrap_or_else(|_| Err(lost())))
    });
    let set = object?.into_iter().next().map(|object| read(kind, object)).transpose()?;
    let namespace = set.as_ref().and_then(|set| set.metadata.namespace.clone());
    let mut facts = SetFacts {
        now,
        namespace: namespace.unwrap_or_else(|| cluster.looked_at()),
        kind,
        name: name.to_owned(),
        set: None,
        members: None,
        looked_at: Vec::new(),
        parts: None,
        near: Vec::new(),
        unseen: Vec::new(),
    };
    let Some(set) = set else {
        let others = cluster.look(Question::Sets(kind)).unwrap_or_default();
        facts.near = find::nearest(name, others.iter().filter_map(|each| each["metadata"]["name"].as_str()));
        return Ok(facts);
    };
    let what = format!("its {}s", kind.member());
    facts.members = noted(machines, &what, &mut facts.unseen).map(|objects| members(kind, &set, &objects));
    if let Some(mut controller) = noted(controller, "the controller", &mut facts.unseen) {
        controller.iter_mut().for_each(strip_deployment);
        facts.parts = Some(Parts { controller: controller.pop(), controllers: Vec::new(), agents: Vec::new() });
    }
    facts.set = Some(set);
    look_at_members(cluster, &mut facts);
    Ok(facts)
}

/// Only what counts of it.
fn read(kind: SetKind, object: Value) -> Result<Set, Failure> {
    let unreadable = |error: serde_json::Error| {
        Failure::Other(format!("the {} is not what this version of garboard reads: {error}", kind.title()))
    };
    serde_json::from_value(object).map_err(unreadable)
}

/// Those that the object controls, in the order of their names: of numbers, 2 before 10.
fn members(kind: SetKind, set: &Set, objects: &[Value]) -> Vec<Member> {
    let is_of = |object: &&Value| {
        let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        object["kind"].as_str() == Some(kind.member_kind().name())
            && owners.any(|owner| owner["controller"] == true && owner["uid"].as_str() == set.metadata.uid.as_deref())
    };
    let member = |object: &Value| {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        Some(Member { name, state: state(kind, object) })
    };
    let mut all: Vec<Member> = objects.iter().filter(is_of).filter_map(member).collect();
    all.sort_by(|one, other| (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name)));
    all
}

fn state(kind: SetKind, object: &Value) -> MemberState {
    let is_ready = match kind {
        SetKind::ReplicaSet => has_ready(object),
        SetKind::Pool => object["status"]["ready"] == true,
    };
    match kind {
        _ if !object["metadata"]["deletionTimestamp"].is_null() => MemberState::Leaving,
        SetKind::ReplicaSet if is_over(object) => MemberState::Over,
        SetKind::Pool if is_halted(object) => MemberState::Halted,
        SetKind::ReplicaSet | SetKind::Pool if is_ready => MemberState::Ready,
        SetKind::ReplicaSet | SetKind::Pool => MemberState::NotReady,
    }
}

fn has_ready(instance: &Value) -> bool {
    let mut conditions = instance["status"]["conditions"].as_array().into_iter().flatten();
    let ready =
        |each: &Value| each["type"] == VmiConditionType::Ready.name() && each["status"] == ConditionStatus::True.name();
    conditions.any(ready)
}

fn is_over(instance: &Value) -> bool {
    let phase = instance["status"]["phase"].as_str();
    Phase::from_name(phase).is_final() || phase == Some(Phase::Unknown.name())
}

/// A machine that stays down by its strategy. One that is to run shows `Stopped`, too, between two instances.
fn is_halted(machine: &Value) -> bool {
    let strategy = serde_json::from_value::<VirtualMachine>(machine.clone()).ok().and_then(|vm| RunStrategy::of(&vm));
    let may_rest = matches!(strategy, Some(RunStrategy::Halted | RunStrategy::Manual | RunStrategy::RerunOnFailure));
    may_rest && machine["status"]["printableStatus"] == PrintableStatus::Stopped.name()
}

/// Those that are not ready, until one of them has something wrong; those that are over first, for they go soon.
fn look_at_members(cluster: &impl Look, facts: &mut SetFacts) {
    let members = facts.members.clone().unwrap_or_default();
    let of = |state: MemberState| members.iter().filter(move |member| member.state == state);
    for member in of(MemberState::Over).chain(of(MemberState::NotReady)).take(MOST_LOOKED_AT) {
        match gather_machine(cluster, &member.name, facts.now) {
            Ok(seen) => {
                let Diagnosis { health, verdict, .. } = diagnose(&seen);
                // One that is gone meanwhile explains nothing.
                let is_wrong = health == Health::Wrong && verdict != DiagnosisVerdict::NotFound;
                facts.looked_at.push(seen);
                if is_wrong {
                    return;
                }
            }
            Err(failure) => facts.unseen.push(format!("{}: {failure}", member.name)),
        }
    }
}
