//! Which conditions of an instance are looked at. A new one does not compile here until that is decided.

use garboard_api::conditions::VmiConditionType;

use super::super::diagnose::{REMARKS, RULES};
use super::super::facts::Facts;
use super::all_situations;

/// What `why` makes of a condition.
enum Use {
    /// These rules and remarks look at it.
    Of(&'static [&'static str]),
    /// None does, for this reason.
    Unused(&'static str),
}

fn use_of(kind: VmiConditionType) -> Use {
    match kind {
        VmiConditionType::Ready => Use::Of(&["running::not_ready"]),
        VmiConditionType::PodScheduled => Use::Unused("scheduling::unschedulable looks at the pod's own"),
        VmiConditionType::Synchronized => {
            Use::Of(&["data_volumes::unfilled", "containers::rejected", "refused::field_or_claim", "refused::pod"])
        }
        VmiConditionType::DataVolumesReady => Use::Of(&["data_volumes::unfilled"]),
        VmiConditionType::Paused => Use::Of(&["running::storage_failed", "running::paused"]),
        VmiConditionType::AgentConnected => Use::Unused("a guest need not have an agent"),
        VmiConditionType::UnsupportedAgent => {
            Use::Unused("the guest runs without; what it lacks for its credentials is in without_credentials")
        }
        VmiConditionType::AccessCredentialsSynchronized => Use::Of(&["remarks::without_credentials"]),
        VmiConditionType::LiveMigratable => Use::Unused("it is always False: no guest is moved"),
        VmiConditionType::StorageLiveMigratable => Use::Unused("it is always False: no volume is moved"),
        VmiConditionType::Provisioning => Use::Unused("DataVolumesReady has the message"),
        VmiConditionType::EvictionRequested => Use::Of(&["remarks::evicted", "ending::displaced"]),
        VmiConditionType::SoftwareEmulation => {
            Use::Of(&["running::interpreted", "remarks::emulated", "ending::failed"])
        }
        VmiConditionType::Unresponsive => Use::Of(&["running::unresponsive"]),
        VmiConditionType::NetworkLost => Use::Of(&["running::network_lost"]),
        VmiConditionType::Ended => Use::Of(&["ending::failed", "ending::over"]),
        VmiConditionType::OutdatedLauncher => Use::Of(&["remarks::launcher_update"]),
    }
}

/// What a rule or a remark answers.
fn answer(name: &str, facts: &Facts) -> Option<String> {
    if let Some((_, rule)) = RULES.iter().find(|(each, _)| *each == name) {
        return rule(facts).map(|finding| format!("{finding:?}"));
    }
    let (_, remark) = REMARKS.iter().find(|(each, _)| *each == name).unwrap_or_else(|| panic!("no rule {name}"));
    remark(facts)
}

/// The facts without the conditions of this type, if the instance has one.
fn without(facts: &Facts, kind: VmiConditionType) -> Option<Facts> {
    facts.of_vmi(kind)?;
    let mut facts = facts.clone();
    let status = facts.vmi.as_mut()?.status.as_mut()?;
    status.conditions.retain(|each| each.r#type != kind.name());
    Some(facts)
}

/// A rule looks at a condition if it answers differently without it, in a situation of the tests.
#[test]
fn each_condition_is_looked_at_by_the_rules_that_are_named_here() {
    let situations = all_situations();
    let uses = |name: &str, kind| {
        situations
            .iter()
            .any(|facts| without(facts, kind).is_some_and(|less| answer(name, &less) != answer(name, facts)))
    };
    for kind in VmiConditionType::ALL.iter().copied() {
        match use_of(kind) {
            Use::Of(names) => {
                for name in names {
                    assert!(uses(name, kind), "{name} makes nothing of {} in any situation", kind.name());
                }
            }
            Use::Unused(reason) => {
                let all = RULES.iter().map(|(name, _)| *name).chain(REMARKS.iter().map(|(name, _)| *name));
                let used: Vec<&str> = all.filter(|name| uses(name, kind)).collect();
                assert!(used.is_empty(), "{used:?} look at {}, although {reason}", kind.name());
            }
        }
    }
}
