//! What is set, what stays.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

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

#[test]
fn the_documentation_names_every_type() {
    let document = include_str!("../../../docs/monitoring.md");
    let (of_instances, rest) = document.split_once("| condition of a VirtualMachine |").unwrap();
    let (of_machines, of_settings) = rest.split_once("\n\n").unwrap();
    let missing = |names: Vec<&'static str>, part: &str| {
        names.into_iter().filter(|name| !part.contains(&format!("`{name}`"))).collect::<Vec<_>>()
    };
    let missing = [
        missing(VmiConditionType::ALL.iter().map(|each| each.name()).collect(), of_instances),
        missing(VmConditionType::ALL.iter().map(|each| each.name()).collect(), of_machines),
        missing(KubeVirtConditionType::ALL.iter().map(|each| each.name()).collect(), of_settings),
    ];
    assert!(missing.iter().all(Vec::is_empty), "docs/monitoring.md does not name {missing:?}");
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

#[test]
fn the_documents_name_every_reason_of_an_event() {
    let (_, table) = include_str!("../../../docs/monitoring.md").split_once("| event | on | it means |\n").unwrap();
    let table = table.split("\n\n").next().unwrap();
    let cells = table.lines().filter_map(|row| row.split('|').nth(1));
    let named: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    // How a run ended is a reason as well, of the event of an end that the pod alone explains.
    let named: BTreeSet<&str> = named.into_iter().filter(|name| *name != "OutOfMemory").collect();
    let events = Reason::ALL.iter().filter(|reason| reason.is_of_event());
    assert_eq!(named, events.map(|reason| reason.name()).collect());
}
