//! What is set, what stays.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{Phase, PrintableStatus};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ready(status: ConditionStatus, message: &str) -> NewCondition<'_, VmiConditionType> {
    NewCondition::new(VmiConditionType::Ready, status, Reason::GuestNotRunning, message)
}

/// Conditions of this version, of another program, and one with a field that only another program fills in.
fn stored() -> Vec<VirtualMachineInstanceCondition> {
    serde_json::from_value(json!([
        {"type": "example.com/Backup", "status": "Sometimes", "reason": "Weekly", "lastTransitionTime": "1970-01-01T00:00:01Z"},
        {"type": "Ready", "status": "True", "lastProbeTime": "1970-01-01T00:00:02Z", "lastTransitionTime": "1970-01-01T00:00:03Z"},
        {"type": "HotVCPUChange", "status": "True"},
    ]))
    .unwrap()
}

#[test]
fn the_transition_time_changes_with_the_status_alone() {
    let mut conditions = stored();
    set(&mut conditions, &ready(ConditionStatus::True, "one"), at(10));
    assert_eq!(conditions[1].last_transition_time, Some(Time(at(3))));
    assert_eq!(
        (conditions[1].reason.as_deref(), conditions[1].message.as_deref()),
        (Some("GuestNotRunning"), Some("one"))
    );
    set(&mut conditions, &ready(ConditionStatus::False, "two"), at(20));
    assert_eq!((conditions[1].status.as_str(), &conditions[1].last_transition_time), ("False", &Some(Time(at(20)))));
    set(&mut conditions, &NewCondition::bare(VmiConditionType::Ready, false), at(30));
    assert_eq!((&conditions[1].reason, &conditions[1].message), (&None, &None), "an empty text is none");
    assert_eq!(conditions[1].last_transition_time, Some(Time(at(20))));
    assert_eq!(conditions[1].last_probe_time, Some(Time(at(2))), "what another program fills in stays");
}

#[test]
fn a_time_has_whole_seconds() {
    let mut conditions: Vec<VirtualMachineInstanceCondition> = Vec::new();
    set(&mut conditions, &ready(ConditionStatus::True, ""), Timestamp::from_millisecond(7_999).unwrap());
    assert_eq!(conditions[0].last_transition_time, Some(Time(at(7))));
}

#[test]
fn conditions_of_others_stay_as_they_are() {
    let (mut conditions, before) = (stored(), stored());
    set(&mut conditions, &ready(ConditionStatus::False, ""), at(10));
    remove(&mut conditions, VmiConditionType::Ready);
    assert_eq!(conditions, [before[0].clone(), before[2].clone()]);
    set(&mut conditions, &ready(ConditionStatus::False, ""), at(10));
    assert_eq!(
        (&conditions[..2], conditions[2].r#type.as_str()),
        (&[before[0].clone(), before[2].clone()][..], "Ready")
    );
    assert_eq!(serde_json::to_value(&conditions[0]).unwrap(), serde_json::to_value(&before[0]).unwrap());
}

#[test]
fn every_name_belongs_to_one_variant() {
    let names: BTreeSet<&str> = Reason::ALL.iter().map(|each| each.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    assert!(Reason::ALL.iter().all(|each| Reason::from_name(each.name()) == Some(*each)));
    assert_eq!(VmiConditionType::from_name("HotVCPUChange"), None);
}

proptest! {
    /// Whatever was set and removed: one condition of each type, and those that were not named are untouched.
    #[test]
    fn a_list_has_each_condition_once(steps in prop::collection::vec((any::<bool>(), 0..VmiConditionType::ALL.len(), any::<bool>()), 0..20)) {
        let mut conditions = stored();
        for (second, (sets, kind, holds)) in (100..).zip(steps) {
            let kind = VmiConditionType::ALL[kind];
            let new = NewCondition::bare(kind, holds);
            let step = if sets { ConditionChange::Set(new) } else { ConditionChange::Remove(kind) };
            change(&mut conditions, [step], at(second));
            prop_assert_eq!(find_with(&conditions, kind, holds.into()).is_some(), sets);
        }
        let kinds: BTreeSet<&str> = conditions.iter().map(|each| each.r#type.as_str()).collect();
        prop_assert_eq!(kinds.len(), conditions.len());
        let (other, hotplug) = (conditions.first(), conditions.iter().find(|each| each.r#type == "HotVCPUChange"));
        let before = stored();
        prop_assert_eq!((other, hotplug), (before.first(), before.last()));
    }
}

/// The names in the first cells of the table below a heading of `docs/states.md`.
fn documented(heading: &str) -> BTreeSet<&'static str> {
    let (_, section) = include_str!("../../../docs/states.md").split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> BTreeSet<&'static str> {
    all.iter().map(|each| name(*each)).collect()
}

#[test]
fn the_documents_have_a_row_for_each_state_and_for_nothing_else() {
    assert_eq!(documented("printableStatus of a VirtualMachine"), names(PrintableStatus::ALL, PrintableStatus::name));
    assert_eq!(documented("Phases of an instance"), names(&Phase::ALL, Phase::name));
    assert_eq!(documented("Conditions of an instance"), names(VmiConditionType::ALL, VmiConditionType::name));
    assert_eq!(documented("Conditions of a VirtualMachine"), names(VmConditionType::ALL, VmConditionType::name));
    let of_sets = names(ReplicaSetConditionType::ALL, ReplicaSetConditionType::name);
    assert_eq!(documented("Conditions of a replica set"), of_sets);
    let of_pools = names(PoolConditionType::ALL, PoolConditionType::name);
    assert_eq!(documented("Conditions of a pool"), of_pools);
    let of_settings = names(KubeVirtConditionType::ALL, KubeVirtConditionType::name);
    assert_eq!(documented("Conditions of the KubeVirt object"), of_settings);
}

#[test]
fn the_documents_have_a_row_for_each_reason() {
    let (of_conditions, mut of_events) = (documented("Reasons of conditions"), documented("Events"));
    // How a run ended is a reason as well, of the event of an end that the pod alone explains.
    assert!(of_events.remove("OutOfMemory"));
    let events: Vec<Reason> = Reason::ALL.iter().copied().filter(|reason| reason.is_of_event()).collect();
    assert_eq!(of_events, names(&events, Reason::name));
    let all = names(Reason::ALL, Reason::name);
    assert_eq!(of_conditions.difference(&all).collect::<Vec<_>>(), [] as [&&str; 0], "the program has no such reason");
    let missing: Vec<_> =
        all.iter().filter(|name| !of_conditions.contains(*name) && !of_events.contains(*name)).collect();
    assert_eq!(missing, [] as [&&str; 0]);
}
