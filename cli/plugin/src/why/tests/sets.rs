//! Sets and pools: what is wrong with them, and with which of their members.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::Seen;
use super::super::diagnosis::{Diagnosis, DiagnosisVerdict, Health};
use super::super::sets::{self, Member, MemberState, RULES, SetFacts};
use super::super::text::screen;
use super::{AGO, NOW, merge, situation, unscheduled, vmi, with};
use crate::failure::Failure;
use crate::look::{Look, Question};
use crate::set_kind::SetKind;

/// A set or a pool, of what differs from one with two members that are both ready.
fn set(kind: SetKind, differs: Value) -> SetFacts {
    let mut facts = json!({
        "now": NOW, "namespace": "tenant", "kind": kind, "name": "web",
        "set": {
            "metadata": {"namespace": "tenant", "uid": "s"}, "spec": {"replicas": 2},
            "status": {"replicas": 2, "readyReplicas": 2},
        },
        "members": [member("web-0", "ready"), member("web-1", "ready")],
        "parts": {
            "controller": {"spec": {"replicas": 2, "selector": {}, "template": {}}, "status": {"availableReplicas": 2}},
        },
    });
    merge(&mut facts, differs);
    serde_json::from_value(facts).unwrap()
}

fn member(name: &str, state: &str) -> Value {
    json!({"name": name, "state": state})
}

fn holding(kind: &str, reason: &str, message: &str) -> Value {
    let condition =
        json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": AGO});
    json!({"set": {"status": {"conditions": [condition]}}})
}

fn failure(reason: &str, message: &str) -> Value {
    holding("ReplicaFailure", reason, message)
}

fn paused() -> Value {
    with(holding("ReplicaPaused", "Paused", "spec.paused is true"), json!({"set": {"spec": {"paused": true}}}))
}

/// The second member is an instance without a machine, which is not ready for this reason.
fn of_member(mut differs: Value) -> Value {
    differs["vm"] = Value::Null;
    let looked_at = serde_json::to_value(situation(differs)).unwrap();
    json!({"members": [member("web-0", "ready"), member("hello", "notReady")], "lookedAt": [looked_at]})
}

fn without_room() -> Value {
    of_member(unscheduled("0/2 nodes are available: 2 Insufficient memory."))
}

fn waiting() -> Value {
    of_member(json!({"vmi": vmi("Pending", json!([]))}))
}

fn situations() -> Vec<(SetFacts, DiagnosisVerdict, Health, &'static str)> {
    let of_set = |differs: Value| set(SetKind::ReplicaSet, differs);
    let of_pool = |differs: Value| set(SetKind::Pool, differs);
    let deleted = |finalizer: &str| json!({"set": {"metadata": {"deletionTimestamp": AGO, "finalizers": [finalizer]}}});
    let one = json!({"members": [member("web-0", "ready")]});
    let no_controller = json!({"parts": {"controller": {"status": null}}});
    let half_ready = json!({"members": [member("web-0", "ready"), member("web-1", "notReady")]});
    vec![
        (of_set(json!({})), DiagnosisVerdict::Running, Health::Well, "its 2 instances are ready"),
        (of_pool(json!({})), DiagnosisVerdict::Running, Health::Well, "its 2 machines are ready"),
        (
            of_pool(json!({"members": [member("web-0", "ready"), member("web-1", "halted")]})),
            DiagnosisVerdict::Running,
            Health::Well,
            "1 of its 2 machines are ready, and the others are not to run",
        ),
        (
            of_set(json!({"set": null, "near": ["wob"]})),
            DiagnosisVerdict::NotFound,
            Health::Wrong,
            "there is no replica set `web` in this namespace; did you mean wob?",
        ),
        (of_pool(deleted("foregroundDeletion")), DiagnosisVerdict::Stopping, Health::Waiting, "it is being deleted"),
        (of_set(deleted("example.com/keep")), DiagnosisVerdict::DeletionStuck, Health::Wrong, "example.com/keep"),
        (
            of_set(with(failure("FailedCreate", "could not create: exceeded quota: small"), one.clone())),
            DiagnosisVerdict::QuotaExceeded,
            Health::Wrong,
            "exceeded quota: small",
        ),
        (
            of_set(with(failure("FailedCreate", "could not create: denied:\n spec.domain"), one.clone())),
            DiagnosisVerdict::ReplicaFailure,
            Health::Wrong,
            "could not create: denied: spec.domain",
        ),
        (
            of_pool(failure("FailedScaleIn", "could not delete: forbidden")),
            DiagnosisVerdict::ReplicaFailure,
            Health::Wrong,
            "could not delete: forbidden",
        ),
        (
            of_set(with(no_controller.clone(), one.clone())),
            DiagnosisVerdict::ControllerDown,
            Health::Wrong,
            "no controller works, so no instance is created or deleted",
        ),
        (of_set(no_controller), DiagnosisVerdict::Running, Health::Well, "its 2 instances are ready"),
        (of_set(without_room()), DiagnosisVerdict::NoRoom, Health::Wrong, "its instance hello: "),
        (of_set(with(paused(), without_room())), DiagnosisVerdict::NoRoom, Health::Wrong, "its instance hello: "),
        (of_set(with(paused(), one.clone())), DiagnosisVerdict::Paused, Health::Well, "neither created nor deleted"),
        (of_set(with(paused(), waiting())), DiagnosisVerdict::Paused, Health::Well, "neither created nor deleted"),
        (
            of_set(waiting()),
            DiagnosisVerdict::Starting,
            Health::Waiting,
            "its instance hello: its pod is about to be made",
        ),
        (of_set(one), DiagnosisVerdict::Starting, Health::Waiting, "1 of 2 instances are there"),
        (of_set(half_ready), DiagnosisVerdict::NotReady, Health::Waiting, "1 of its 2 instances are ready"),
        (
            of_pool(json!({"members": null, "set": {"status": {"readyReplicas": 1}}})),
            DiagnosisVerdict::NotReady,
            Health::Waiting,
            "1 of its 2 machines are ready",
        ),
        (
            of_set(json!({"set": {"spec": {"replicas": 0}}, "members": [member("web-0", "leaving")]})),
            DiagnosisVerdict::Halted,
            Health::Well,
            "no instance is wanted",
        ),
    ]
}

#[test]
fn every_situation_of_a_set_has_its_verdict() {
    for (facts, verdict, health, text) in situations() {
        let diagnosis = sets::judge(&facts);
        assert_eq!((diagnosis.verdict, diagnosis.health), (verdict, health), "{diagnosis:#?}");
        assert!(diagnosis.cause.contains(text), "{text}: {diagnosis:#?}");
        let is_shown = verdict == DiagnosisVerdict::NotFound || !diagnosis.evidence.is_empty();
        assert!(is_shown, "nothing shows it: {diagnosis:#?}");
        assert!(health == Health::Well || verdict == DiagnosisVerdict::Stopping || !diagnosis.next.is_empty());
    }
}

#[test]
fn each_rule_of_sets_answers_first_in_a_situation() {
    let first = |facts: &SetFacts| {
        let set = facts.set.as_ref()?;
        RULES.iter().find(|(_, rule)| rule(facts, set).is_some()).map(|(name, _)| *name)
    };
    let answered: BTreeSet<&str> = situations().iter().filter_map(|(facts, ..)| first(facts)).collect();
    let all: BTreeSet<&str> = RULES.iter().map(|(name, _)| *name).collect();
    assert_eq!(answered, all);
}

/// The advice of a member is there, after the command that shows the member alone.
#[test]
fn what_is_wrong_with_a_member_is_what_is_to_be_done() {
    use clap::Parser;
    let diagnosis = sets::judge(&set(SetKind::ReplicaSet, with(paused(), without_room())));
    assert_eq!(diagnosis.next[0], "kubectl garboard why vmi/hello");
    assert!(diagnosis.next.len() > 1 && diagnosis.evidence.iter().any(|each| each.object.starts_with("pod/")));
    assert_eq!(diagnosis.also, ["it is paused: instances are neither created nor deleted"]);
    for advice in situations().iter().flat_map(|(facts, ..)| sets::judge(facts).next) {
        let Some(line) = advice.strip_prefix("kubectl garboard ") else { continue };
        let arguments = ["kubectl-garboard"].into_iter().chain(line.split("    #").next().unwrap().split_whitespace());
        assert!(crate::args::Plugin::try_parse_from(arguments).is_ok(), "{advice}");
    }
}

#[test]
fn the_screen_of_a_set_names_its_kind_and_how_many_are_ready() {
    let mut facts = set(SetKind::ReplicaSet, without_room());
    facts.unseen = vec!["events: you may not see them".to_owned()];
    facts.looked_at[0].unseen = ["events", "nodes"].map(|what| format!("{what}: you may not see them")).to_vec();
    let diagnosis: Diagnosis = sets::judge(&facts);
    let screen = screen(&diagnosis, facts.now);
    assert!(screen.starts_with("tenant/vmirs/web: 1 of 2 ready"), "{screen}");
    assert_eq!(screen.matches("you may not see them").count(), 2, "{screen}");
}

/// What `-o facts` writes is judged again elsewhere.
#[test]
fn facts_of_a_set_are_not_read_as_those_of_a_machine() {
    let facts = set(SetKind::Pool, without_room());
    let written = serde_json::to_vec(&facts).unwrap();
    let Seen::Set(read) = Seen::read(&written).unwrap() else { panic!("no set") };
    assert_eq!(*read, facts);
    let machine = situation(json!({}));
    let Seen::Machine(read) = Seen::read(&serde_json::to_vec(&machine).unwrap()).unwrap() else { panic!("no machine") };
    assert_eq!(*read, machine);
    assert!(Seen::read(br#"{"kind": "Pod"}"#).is_err());
}

/// A cluster with one set or pool.
struct Played {
    kind: SetKind,
    set: Value,
    machines: Vec<Value>,
}

impl Look for Played {
    fn look(&self, question: Question<'_>) -> Result<Vec<Value>, Failure> {
        Ok(match question {
            Question::Set(kind, "web") | Question::Sets(kind) if kind == self.kind => vec![self.set.clone()],
            Question::Machines => self.machines.clone(),
            Question::Machine(name) => {
                self.machines.iter().filter(|each| each["metadata"]["name"] == name).cloned().collect()
            }
            Question::Set(..)
            | Question::Sets(_)
            | Question::LauncherPods
            | Question::Claims(_)
            | Question::DataVolumes(_)
            | Question::EventsOf(_)
            | Question::RunsOf(_)
            | Question::Nodes
            | Question::KubeVirts
            | Question::Controller
            | Question::Controllers
            | Question::Agents => Vec::new(),
        })
    }

    fn looked_at(&self) -> String {
        "tenant".to_owned()
    }
}

fn played(kind: SetKind, machines: Vec<Value>) -> Played {
    let template = json!({"spec": {"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": "hunter2"}}]}});
    let metadata = json!({"name": "web", "namespace": "tenant", "uid": "s", "annotations": {"a": "hunter2"}});
    Played { kind, set: json!({"metadata": metadata, "spec": {"replicas": 2, "template": template}}), machines }
}

fn owned(kind: &str, name: &str, owner: &str, more: Value) -> Value {
    let owners = json!([{"apiVersion": "v1", "kind": "X", "name": "web", "uid": owner, "controller": true}]);
    let object = json!({
        "kind": kind, "metadata": {"name": name, "namespace": "tenant", "ownerReferences": owners},
        "spec": {"domain": {"devices": {}}, "template": {"spec": {"domain": {"devices": {}}}}},
    });
    with(object, more)
}

fn members(facts: &SetFacts) -> Vec<(&str, MemberState)> {
    let all = facts.members.iter().flatten();
    all.map(|Member { name, state }| (name.as_str(), *state)).collect()
}

#[test]
fn a_set_is_seen_with_what_it_controls_and_without_secrets() {
    let instance = |name: &str, owner: &str, status: Value| {
        owned("VirtualMachineInstance", name, owner, json!({"spec": {"template": null}, "status": status}))
    };
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let cluster = played(
        SetKind::ReplicaSet,
        vec![
            instance("web-c", "s", json!({"phase": "Pending"})),
            instance("web-a", "s", ready.clone()),
            instance("web-b", "s", json!({"phase": "Unknown"})),
            instance("other", "another", ready),
            owned("VirtualMachine", "web", "s", json!({})),
        ],
    );
    let now = NOW.parse().unwrap();
    let facts = sets::gather(&cluster, SetKind::ReplicaSet, "web", now).unwrap();
    let expected = [("web-a", MemberState::Ready), ("web-b", MemberState::Over), ("web-c", MemberState::NotReady)];
    assert_eq!(members(&facts), expected);
    let looked_at: Vec<&str> = facts.looked_at.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(looked_at, ["web-b", "web-c"], "those that are over first");
    assert!(!serde_json::to_string(&facts).unwrap().contains("hunter2"));
    let absent = sets::gather(&cluster, SetKind::ReplicaSet, "wob", now).unwrap();
    assert_eq!((absent.set, absent.near), (None, vec!["web".to_owned()]));
}

#[test]
fn machines_of_a_pool_are_in_the_order_of_their_numbers_and_some_are_not_to_run() {
    let machine = |name: &str, strategy: &str, more: Value| {
        let spec = json!({"runStrategy": strategy, "domain": null});
        with(owned("VirtualMachine", name, "s", json!({ "spec": spec })), more)
    };
    let stopped = json!({"status": {"printableStatus": "Stopped"}});
    let cluster = played(
        SetKind::Pool,
        vec![
            machine("web-10", "Always", stopped.clone()),
            machine("web-2", "Manual", stopped),
            machine("web-1", "Always", json!({"metadata": {"deletionTimestamp": AGO}})),
            machine("web-0", "Always", json!({"status": {"ready": true}})),
        ],
    );
    let facts = sets::gather(&cluster, SetKind::Pool, "web", NOW.parse().unwrap()).unwrap();
    let expected = [
        ("web-0", MemberState::Ready),
        ("web-1", MemberState::Leaving),
        ("web-2", MemberState::Halted),
        ("web-10", MemberState::NotReady),
    ];
    assert_eq!(members(&facts), expected);
    assert_eq!(facts.looked_at.len(), 1, "what leaves, or is not to run, is not looked at");
}
