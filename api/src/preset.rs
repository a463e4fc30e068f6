//! What presets give a new instance, by KubeVirt's rules (`pkg/virt-api/webhooks/mutating-webhook/mutators/preset.go`). Pure.
//!
//! A preset has up to seven parts: `resources.requests`, `cpu`, `firmware`, `clock` (offset and timers apart), `features`,
//! `devices.watchdog` and `ioThreadsPolicy`. The instance gets each part as a whole where it has none of its own; a part of its own
//! stays as it is. Two presets that select one instance and differ in a part give it nothing: the instance is refused.
//!
//! KubeVirt takes presets in any order; here it is that of their names.

use std::collections::BTreeMap;
use std::fmt;

use crate::metadata::annotation;
use crate::names::label_key_problem;
use crate::quantity::Quantity;
use crate::selector::{self, Labels};
use crate::v1::{
    API_VERSION, Clock, DomainSpec, VirtualMachineInstance, VirtualMachineInstancePreset,
    VirtualMachineInstancePresetSpec,
};

/// Two presets that select an instance and do not agree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the presets {one} and {other} both select it, and differ in {parts}")]
pub struct PresetConflict {
    /// The name of one.
    pub one: String,
    /// The name of the other.
    pub other: String,
    /// Where they differ.
    pub parts: Parts,
}

/// Paths of parts, from the root of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub Vec<&'static str>);

impl fmt::Display for Parts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(", "))
    }
}

/// A preset of which an instance did not get everything, because it has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overridden {
    /// The preset's name.
    pub preset: String,
    /// What the instance has of its own.
    pub parts: Parts,
}

impl fmt::Display for Overridden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.preset, self.parts)
    }
}

/// Gives a new instance what the presets of its namespace have for it, and annotates it with those that it has something of. Says
/// what it has of its own instead.
///
/// # Errors
/// Two of the presets do not agree. The instance is as it was.
pub fn apply(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<Vec<Overridden>, PresetConflict> {
    if is_excluded(vmi) {
        return Ok(Vec::new());
    }
    let nothing = Labels::new();
    let labels = vmi.metadata.labels.as_ref().unwrap_or(&nothing);
    let mut selected: Vec<Selected<'_>> = presets.iter().filter_map(|preset| Selected::of(preset, labels)).collect();
    selected.sort_by_key(|preset| preset.name);
    agree(&selected)?;
    let mut overridden = Vec::new();
    for Selected { name, domain } in selected {
        let parts = merge(domain, &mut vmi.spec.domain);
        let key = format!("{}{name}", annotation::PRESET);
        // Names may be longer than what follows the slash of a key may be: the API server would refuse the instance.
        if parts.iter().any(|(_, fill)| *fill == Fill::Has) && label_key_problem(&key).is_none() {
            vmi.metadata.annotations.get_or_insert_default().insert(key, API_VERSION.to_owned());
        }
        let own: Vec<&'static str> =
            parts.into_iter().filter(|(_, fill)| *fill == Fill::Differs).map(|(part, _)| part).collect();
        if !own.is_empty() {
            overridden.push(Overridden { preset: name.to_owned(), parts: Parts(own) });
        }
    }
    Ok(overridden)
}

/// Whether an instance takes nothing of presets.
fn is_excluded(vmi: &VirtualMachineInstance) -> bool {
    let annotations = vmi.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(annotation::EXCLUDE_PRESETS)).is_some_and(|value| value == "true")
}

/// A preset that selects an instance.
struct Selected<'a> {
    name: &'a str,
    domain: &'a DomainSpec,
}

impl<'a> Selected<'a> {
    fn of(preset: &'a VirtualMachineInstancePreset, labels: &Labels) -> Option<Self> {
        let VirtualMachineInstancePresetSpec { domain, selector } = preset.spec.as_ref()?;
        let name = preset.metadata.name.as_deref()?;
        let domain = domain.as_ref().filter(|_| selector::matches(selector, labels))?;
        Some(Self { name, domain })
    }
}

/// Whether all agree. Each is compared with what those before it give together, for a namespace may have thousands.
fn agree(selected: &[Selected<'_>]) -> Result<(), PresetConflict> {
    let mut together = DomainSpec::default();
    for (index, other) in selected.iter().enumerate() {
        if !differences(&together, other.domain).is_empty() {
            conflict(&selected[..index], other)?;
        }
        add(other.domain, &mut together);
    }
    Ok(())
}

/// The first of those before that contradicts this one.
fn conflict(before: &[Selected<'_>], other: &Selected<'_>) -> Result<(), PresetConflict> {
    for one in before {
        let parts = differences(one.domain, other.domain);
        if !parts.is_empty() {
            let [one, other] = [one.name, other.name].map(str::to_owned);
            return Err(PresetConflict { one, other, parts: Parts(parts) });
        }
    }
    Ok(())
}

/// Adds what a preset gives to what others give; single requests, too.
fn add(preset: &DomainSpec, together: &mut DomainSpec) {
    merge(preset, together);
    for (key, request) in requests_of(preset).into_iter().flatten() {
        let requests = &mut together.resources.get_or_insert_default().requests;
        requests.entry(key.clone()).or_insert_with(|| request.clone());
    }
}

fn requests_of(domain: &DomainSpec) -> Option<&BTreeMap<String, Quantity>> {
    domain.resources.as_ref().map(|all| &all.requests)
}

const REQUESTS: &str = "spec.domain.resources.requests";
const CPU: &str = "spec.domain.cpu";
const FIRMWARE: &str = "spec.domain.firmware";
const CLOCK: &str = "spec.domain.clock";
const TIMER: &str = "spec.domain.clock.timer";
const FEATURES: &str = "spec.domain.features";
const WATCHDOG: &str = "spec.domain.devices.watchdog";
const IO_THREADS: &str = "spec.domain.ioThreadsPolicy";

/// Where two presets contradict each other: parts that both have, of requests the single ones.
fn differences(one: &DomainSpec, other: &DomainSpec) -> Vec<&'static str> {
    let known = |key: &String| requests_of(one).and_then(|all| all.get(key));
    let mut requests = requests_of(other).into_iter().flatten();
    let (clock, other_clock) = (one.clock.as_ref(), other.clock.as_ref());
    let timers = [clock, other_clock].map(|clock| clock.and_then(|clock| clock.timer.as_ref()));
    let found = [
        (REQUESTS, requests.any(|(key, request)| known(key).is_some_and(|known| known != request))),
        (CPU, differ(one.cpu.as_ref(), other.cpu.as_ref())),
        (FIRMWARE, differ(one.firmware.as_ref(), other.firmware.as_ref())),
        (CLOCK, differ(clock.map(offset).as_ref(), other_clock.map(offset).as_ref())),
        (TIMER, differ(timers[0], timers[1])),
        (FEATURES, differ(one.features.as_ref(), other.features.as_ref())),
        (WATCHDOG, differ(one.devices.watchdog.as_ref(), other.devices.watchdog.as_ref())),
        (IO_THREADS, differ(one.io_threads_policy.as_ref(), other.io_threads_policy.as_ref())),
    ];
    found.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
}

fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    one.is_some_and(|one| other.is_some_and(|other| one != other))
}

/// A clock without its timers.
fn offset(clock: &Clock) -> Clock {
    Clock { timer: None, ..clock.clone() }
}

/// What became of a part of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// The preset does not have it.
    Nothing,
    /// The instance has it now, or had the same.
    Has,
    /// The instance has another.
    Differs,
}

/// Fills what is missing, part by part.
fn merge(preset: &DomainSpec, domain: &mut DomainSpec) -> Vec<(&'static str, Fill)> {
    vec![
        (REQUESTS, requests(preset, domain)),
        (CPU, fill(&preset.cpu, &mut domain.cpu)),
        (FIRMWARE, fill(&preset.firmware, &mut domain.firmware)),
        (CLOCK, clock(preset, domain)),
        (TIMER, timer(preset, domain)),
        (FEATURES, fill(&preset.features, &mut domain.features)),
        (WATCHDOG, fill(&preset.devices.watchdog, &mut domain.devices.watchdog)),
        (IO_THREADS, fill(&preset.io_threads_policy, &mut domain.io_threads_policy)),
    ]
}

fn fill<T: Clone + PartialEq>(preset: &Option<T>, own: &mut Option<T>) -> Fill {
    match preset {
        None => Fill::Nothing,
        Some(part) if own.get_or_insert_with(|| part.clone()) == part => Fill::Has,
        Some(_) => Fill::Differs,
    }
}

fn requests(preset: &DomainSpec, domain: &mut DomainSpec) -> Fill {
    let Some(wanted) = requests_of(preset).filter(|all| !all.is_empty()) else { return Fill::Nothing };
    let own = &mut domain.resources.get_or_insert_default().requests;
    if own.is_empty() {
        own.clone_from(wanted);
    }
    if *own == *wanted { Fill::Has } else { Fill::Differs }
}

fn clock(preset: &DomainSpec, domain: &mut DomainSpec) -> Fill {
    let Some(wanted) = preset.clock.as_ref().map(offset) else { return Fill::Nothing };
    let own = domain.clock.get_or_insert_with(|| wanted.clone());
    if offset(own) == wanted { Fill::Has } else { Fill::Differs }
}

/// After [`clock`], so that there is one.
fn timer(preset: &DomainSpec, domain: &mut DomainSpec) -> Fill {
    let Some(clock) = &preset.clock else { return Fill::Nothing };
    fill(&clock.timer, &mut domain.clock.get_or_insert_default().timer)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn preset(name: &str, domain: Value) -> VirtualMachineInstancePreset {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"size": "small"}}, "domain": domain},
        }))
        .unwrap()
    }

    fn instance(domain: Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"size": "small"}}, "spec": {"domain": domain},
        }))
        .unwrap()
    }

    fn annotations(vmi: &VirtualMachineInstance) -> Vec<(&str, &str)> {
        let all = vmi.metadata.annotations.iter().flatten();
        all.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// One of each part.
    fn whole() -> Value {
        json!({
            "resources": {"requests": {"memory": "64Mi"}}, "cpu": {"cores": 2}, "firmware": {"serial": "s"},
            "clock": {"utc": {}, "timer": {"rtc": {"present": true}}}, "features": {"acpi": {}},
            "devices": {"watchdog": {"name": "dog"}}, "ioThreadsPolicy": "shared",
        })
    }

    #[test]
    fn an_instance_gets_every_part_that_it_does_not_have() {
        let mut vmi = instance(json!({"devices": {}}));
        assert_eq!(apply(&mut vmi, &[preset("small", whole())]), Ok(Vec::new()));
        let given: DomainSpec = serde_json::from_value(whole()).unwrap();
        assert_eq!(vmi.spec.domain, given);
        assert_eq!(annotations(&vmi), [("virtualmachinepreset.kubevirt.io/small", "kubevirt.io/v1")]);
        let once = vmi.clone();
        assert_eq!(apply(&mut vmi, &[preset("small", whole())]), Ok(Vec::new()), "the same is no difference");
        assert_eq!(vmi, once);
    }

    #[test]
    fn what_an_instance_has_stays_and_is_reported() {
        let own = json!({"cpu": {"cores": 8}, "devices": {}, "clock": {"timezone": "UTC"}, "resources": {"requests": {"cpu": 1}}});
        let mut vmi = instance(own);
        let overridden = apply(&mut vmi, &[preset("small", whole())]).unwrap();
        let [Overridden { preset: name, parts }] = overridden.as_slice() else { panic!("{overridden:?}") };
        assert_eq!((name.as_str(), parts.0.as_slice()), ("small", [REQUESTS, CPU, CLOCK].as_slice()));
        assert_eq!(overridden[0].to_string(), format!("small: {REQUESTS}, {CPU}, {CLOCK}"));
        let domain = &vmi.spec.domain;
        assert_eq!(
            (domain.cpu.as_ref().unwrap().cores, domain.io_threads_policy.as_deref()),
            (Some(8), Some("shared"))
        );
        let clock = domain.clock.as_ref().unwrap();
        assert!(
            clock.timer.is_some() && clock.timezone.as_deref() == Some("UTC"),
            "the timers are a part of their own"
        );
    }

    #[test]
    fn an_instance_that_got_nothing_is_not_annotated() {
        let mut vmi = instance(json!({"cpu": {"cores": 8}, "devices": {}}));
        let overridden = apply(&mut vmi, &[preset("small", json!({"cpu": {"cores": 2}, "devices": {}}))]).unwrap();
        assert_eq!((overridden.len(), annotations(&vmi)), (1, Vec::new()));
    }

    #[test]
    fn who_is_not_selected_or_excluded_gets_nothing() {
        let mut another = instance(json!({"devices": {}}));
        another.metadata.labels = None;
        let mut excluded = instance(json!({"devices": {}}));
        let exclusion = (annotation::EXCLUDE_PRESETS.to_owned(), "true".to_owned());
        excluded.metadata.annotations = Some([exclusion].into());
        for mut vmi in [another, excluded] {
            let before = vmi.clone();
            // Two that do not agree are nothing to it either.
            let presets = [preset("small", whole()), preset("other", json!({"cpu": {"cores": 3}, "devices": {}}))];
            assert_eq!((apply(&mut vmi, &presets), &vmi), (Ok(Vec::new()), &before));
        }
    }

    #[test]
    fn presets_that_do_not_agree_give_nothing() {
        let table = [
            (json!({"cpu": {"cores": 3}, "devices": {}}), Some(CPU)),
            (json!({"resources": {"requests": {"memory": "65536Ki", "cpu": 1}}, "devices": {}}), None),
            (json!({"resources": {"requests": {"memory": "1Gi"}}, "devices": {}}), Some(REQUESTS)),
            (json!({"clock": {"timezone": "UTC"}, "devices": {}}), Some(CLOCK)),
            (json!({"clock": {"utc": {}, "timer": {"rtc": {}}}, "devices": {}}), Some(TIMER)),
            (json!({"memory": {"guest": "1Gi"}, "devices": {"rng": {}}}), None),
        ];
        for (domain, part) in table {
            let mut vmi = instance(json!({"devices": {}}));
            let before = vmi.clone();
            let found = apply(&mut vmi, &[preset("zulu", whole()), preset("alpha", domain.clone())]);
            assert_eq!(
                found.as_ref().err().map(|conflict| conflict.parts.0.clone()),
                part.map(|part| vec![part]),
                "{domain}"
            );
            if let Err(conflict) = found {
                assert_eq!((conflict.one.as_str(), conflict.other.as_str()), ("alpha", "zulu"));
                assert_eq!(vmi, before);
            }
        }
    }

    #[test]
    fn of_many_presets_the_two_that_do_not_agree_are_named() {
        let request = |number: u32, count: &str| {
            let key = format!("example.org/{number}");
            json!({"resources": {"requests": {key: count}}, "devices": {}})
        };
        let mut presets: Vec<_> = (0..3000).map(|each| preset(&format!("p{each:04}"), request(each, "1"))).collect();
        let mut vmi = instance(json!({"devices": {}}));
        assert!(apply(&mut vmi.clone(), &presets).is_ok());
        presets.push(preset("q", request(1234, "2")));
        let conflict = apply(&mut vmi, &presets).unwrap_err();
        assert_eq!((conflict.one.as_str(), conflict.other.as_str()), ("p1234", "q"));
        assert_eq!(conflict.parts.0, [REQUESTS]);
    }

    #[test]
    fn a_name_that_no_key_of_an_annotation_can_end_with_is_left_out() {
        let mut vmi = instance(json!({"devices": {}}));
        assert_eq!(apply(&mut vmi, &[preset(&"x".repeat(64), whole())]), Ok(Vec::new()));
        assert!(vmi.spec.domain.cpu.is_some() && annotations(&vmi).is_empty());
    }

    #[test]
    fn presets_are_taken_in_the_order_of_their_names() {
        let request = |key: &str| json!({"resources": {"requests": {key: "1"}}, "devices": {}});
        let mut vmi = instance(json!({"devices": {}}));
        let overridden = apply(&mut vmi, &[preset("b", request("cpu")), preset("a", request("memory"))]).unwrap();
        let requests = &vmi.spec.domain.resources.as_ref().unwrap().requests;
        assert_eq!(requests.keys().collect::<Vec<_>>(), ["memory"]);
        assert_eq!(overridden.iter().map(|each| each.preset.as_str()).collect::<Vec<_>>(), ["b"]);
    }
}
