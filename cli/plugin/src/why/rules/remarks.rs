//! What is worth a remark beside the verdict, of machines whose guest runs.

use garboard_api::Quantity;
use garboard_api::conditions::{Reason, VmiConditionType};
use garboard_protocol::exit::Account;
use jiff::SignedDuration;

use super::last_end::stopped;
use super::refused::bounded;
use super::running::{interpreted, is_running};
use crate::why::facts::{Facts, age, when};

/// An end that is older does not explain how a machine is today.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// Its vCPUs are interpreted. Where that is the verdict, it is no remark.
pub(crate) fn emulated(facts: &Facts) -> Option<String> {
    let slow = facts.of_vmi(VmiConditionType::SoftwareEmulation).filter(|each| each.status == "True")?;
    if interpreted(facts).is_some() {
        return None;
    }
    Some(if slow.message.is_empty() {
        "its vCPUs are interpreted by software; a node with KVM runs it at full speed".to_owned()
    } else {
        format!("{}; a node with KVM runs it at full speed", bounded(&slow.message))
    })
}

/// The cluster has it leave its node.
pub(crate) fn evicted(facts: &Facts) -> Option<String> {
    let evicted = facts
        .of_vmi(VmiConditionType::EvictionRequested)
        .filter(|each| each.status == "True" && !matches!(facts.phase(), Some("Succeeded" | "Failed")))?;
    let detail = if evicted.message.is_empty() { evicted.reason } else { bounded(&evicted.message) };
    Some(format!("the cluster has it leave its node: {detail}"))
}

/// Its node is to be emptied, and that waits for it.
pub(crate) fn drained(facts: &Facts) -> Option<String> {
    let vmi = facts.vmi.as_ref().filter(|_| is_running(facts))?;
    let own = vmi.spec.eviction_strategy.as_deref().filter(|strategy| !strategy.is_empty());
    let usual = || facts.kubevirts.iter().find_map(|each| each["spec"]["configuration"]["evictionStrategy"].as_str());
    let is_cordoned = || facts.node().and_then(|node| node.spec.as_ref()?.unschedulable) == Some(true);
    let asked = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
    let (node, name) = (facts.node_name()?, &facts.name);
    match (own.or_else(usual)?, asked) {
        ("LiveMigrate", _) if is_cordoned() => Some(format!(
            "node {node} is cordoned, and a drain of it waits for this machine: its evictionStrategy LiveMigrate keeps it there, and \
             no guest is moved; `kubectl garboard stop {name}` lets the drain go on"
        )),
        ("External", Some(node)) => Some(format!(
            "node {node} is being drained and waits until another controller has moved or stopped it (evictionStrategy External); \
             `kubectl garboard stop {name}` lets the drain go on"
        )),
        _ => None,
    }
}

/// Its file systems are frozen.
pub(crate) fn frozen(facts: &Facts) -> Option<String> {
    let status = facts.vmi.as_ref()?.status.as_ref()?;
    let is_frozen = status.fs_freeze_status.as_deref() == Some("frozen");
    is_frozen.then(|| {
        let name = &facts.name;
        format!(
            "its file systems are frozen, so that its programs may wait; `kubectl garboard unfreeze {name}` thaws them"
        )
    })
}

/// Its guest lacks keys or passwords that its specification has.
pub(crate) fn without_credentials(facts: &Facts) -> Option<String> {
    let kind = VmiConditionType::AccessCredentialsSynchronized;
    let lacking = facts.of_vmi(kind).filter(|each| each.status == "False" && is_running(facts))?;
    Some(format!("not all access credentials are in its guest: {}", bounded(&lacking.message)))
}

/// An earlier run of it ended badly, not long ago.
pub(crate) fn started_again(facts: &Facts) -> Option<String> {
    if !is_running(facts) {
        return None;
    }
    let event = stopped(facts).filter(|event| event.type_.as_deref() == Some("Warning"))?;
    let at = when(event).filter(|at| facts.now.duration_since(*at) < RECENT)?;
    let message = bounded(Account::read(event.message.as_deref().unwrap_or_default()).message);
    Some(format!("it was started again: its last run ended {} ago: {message}", age(at, facts.now)))
}

/// Its processors may use less time than it has vCPUs.
pub(crate) fn limited(facts: &Facts) -> Option<String> {
    let pod = facts.pod().filter(|_| is_running(facts))?;
    let compute = pod.spec.as_ref()?.containers.iter().find(|each| each.name == "compute")?;
    let limit = compute.resources.as_ref()?.limits.as_ref()?.get("cpu")?;
    let milli = limit.0.parse::<Quantity>().ok()?.milli();
    let topology = facts.vmi.as_ref()?.status.as_ref()?.current_cpu_topology.as_ref()?;
    let part = |number: Option<u32>| i64::from(number.unwrap_or(1).max(1));
    let vcpus = part(topology.cores).saturating_mul(part(topology.sockets)).saturating_mul(part(topology.threads));
    (milli < vcpus.saturating_mul(1000)).then(|| {
        format!(
            "its {vcpus} vCPUs together may use {} CPU, so that the kernel makes it wait: raise spec.domain.resources.limits.cpu, \
             or look at the namespace's LimitRange",
            limit.0
        )
    })
}

/// Its supervisor is not the one of the installed version, because that one did not come up.
pub(crate) fn launcher_update(facts: &Facts) -> Option<String> {
    let outdated = facts
        .of_vmi(VmiConditionType::OutdatedLauncher)
        .filter(|each| each.status == "True" && each.reason == Reason::LauncherUpdateFailed.name())?;
    let detail = bounded(&outdated.message);
    Some(format!(
        "its supervisor could not be replaced by that of the installed version, and the one before goes on: {detail}"
    ))
}
