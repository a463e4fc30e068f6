//! From what was seen of a set or a pool to a diagnosis. Pure.
//!
//! As of a machine, rules are asked in order, and the first that applies is the verdict.

use garboard_api::conditions::{ConditionStatus, PoolConditionType, Reason, ReplicaSetConditionType};

use super::facts::{Counts, Set, SetFacts, StoredCondition};
use crate::set_kind::SetKind;
use crate::why::diagnose::diagnose;
use crate::why::diagnosis::{Diagnosis, DiagnosisVerdict, Finding, Health, seen};
use crate::why::text::shortened;

/// The most characters of a condition's message.
const LONGEST: usize = 400;
/// Finalizers that Kubernetes takes away by itself.
const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];

pub(in crate::why) type Rule = fn(&SetFacts, &Set) -> Option<Finding>;

/// In this order. What is wrong comes before a pause, and that before what it may be waited for.
pub(in crate::why) const RULES: &[(&str, Rule)] = &[
    ("deletion", deletion),
    ("failed", failed),
    ("controller_down", controller_down),
    ("member_wrong", member_wrong),
    ("paused", paused),
    ("member_waiting", member_waiting),
    ("too_few", too_few),
    ("not_ready", not_ready),
    ("none_wanted", none_wanted),
];

/// Diagnoses a set or a pool.
pub(crate) fn judge(facts: &SetFacts) -> Diagnosis {
    let Some(set) = &facts.set else {
        return diagnosis(facts, "not found".to_owned(), not_found(facts), Vec::new());
    };
    let mut findings = RULES.iter().filter_map(|(_, rule)| rule(facts, set));
    let main = findings.next().unwrap_or_else(|| as_wanted(facts, set));
    let others = findings.filter(|each| each.health == Health::Wrong && each.cause != main.cause);
    let mut also: Vec<String> = others.map(|each| each.cause).collect();
    also.extend(remarks(facts, set, &main));
    diagnosis(facts, format!("{} of {} ready", facts.counts(set).ready, set.wanted()), main, also)
}

fn diagnosis(facts: &SetFacts, state: String, main: Finding, also: Vec<String>) -> Diagnosis {
    let mut unseen = facts.unseen.clone();
    for each in facts.looked_at.iter().flat_map(|member| &member.unseen) {
        if !unseen.contains(each) {
            unseen.push(each.clone());
        }
    }
    Diagnosis {
        machine: format!("{}/{}", facts.namespace, facts.object()),
        state,
        verdict: main.verdict,
        health: main.health,
        since: main.since,
        cause: main.cause,
        node: None,
        evidence: main.evidence,
        next: main.next,
        also,
        unseen,
    }
}

fn not_found(facts: &SetFacts) -> Finding {
    let absent = format!("there is no {} `{}` in this namespace", facts.kind.title(), facts.name);
    let cause = match facts.near.as_slice() {
        [] => absent,
        near => format!("{absent}; did you mean {}?", near.join(" or ")),
    };
    Finding::wrong(DiagnosisVerdict::NotFound, cause).then(format!("kubectl get {} -A", facts.kind.short()))
}

/// The object is to go.
fn deletion(facts: &SetFacts, set: &Set) -> Option<Finding> {
    let since = Some(set.metadata.deletion_timestamp?);
    let finalizers = &set.metadata.finalizers;
    let evidence = seen(facts.object(), "metadata.finalizers", finalizers.join(", "), since);
    let foreign = finalizers.iter().find(|name| !OF_KUBERNETES.contains(&name.as_str()));
    let finding = match foreign {
        Some(foreign) => {
            let cause = format!("it is deleted as soon as the owner of its finalizer {foreign} removes it");
            Finding::wrong(DiagnosisVerdict::DeletionStuck, cause)
                .then(format!("find out who owns {foreign}, and why it is not removed"))
        }
        None => Finding::waiting(DiagnosisVerdict::Stopping, "it is being deleted"),
    };
    Some(finding.since(since).shown_by(evidence))
}

/// Something could not be done to a member.
fn failed(facts: &SetFacts, set: &Set) -> Option<Finding> {
    let kind = match facts.kind {
        SetKind::ReplicaSet => ReplicaSetConditionType::ReplicaFailure.name(),
        SetKind::Pool => PoolConditionType::ReplicaFailure.name(),
    };
    let condition = holding(set, kind)?;
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or(reason);
    let message = shortened(&message.split_whitespace().collect::<Vec<_>>().join(" "), LONGEST);
    let since = condition.last_transition_time;
    let evidence = seen(facts.object(), format!("conditions[{kind}] {reason}"), message.clone(), since);
    let (short, name, namespace) = (facts.kind.short(), &facts.name, &facts.namespace);
    let finding = if message.contains("exceeded quota") {
        let cause = format!("the namespace's quota is used up: {message}");
        Finding::wrong(DiagnosisVerdict::QuotaExceeded, cause)
            .then(format!("kubectl describe quota -n {namespace}"))
            .then("stop something else in the namespace, have the quota raised, or ask for fewer")
    } else {
        let finding = Finding::wrong(DiagnosisVerdict::ReplicaFailure, message);
        match is_of_what_is_written(reason) {
            true => finding.then(format!("kubectl edit {short} {name}    # what the message names")),
            false => finding.then(format!("kubectl describe {short} {name}    # it is tried again")),
        }
    };
    Some(finding.since(since).shown_by(evidence))
}

/// Whether it may be the object itself that has to be corrected: its template is refused, or it cannot be read.
fn is_of_what_is_written(reason: &str) -> bool {
    let reasons = [Reason::FailedCreate, Reason::FailedScaleOut, Reason::FailedUpdate, Reason::Unreadable];
    reasons.iter().any(|each| each.name() == reason)
}

/// Members are missing or too many, and no controller works.
fn controller_down(facts: &SetFacts, set: &Set) -> Option<Finding> {
    let deployment = facts.parts.as_ref()?.controller.as_ref()?;
    let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    if available > 0 || facts.counts(set).there == set.wanted() {
        return None;
    }
    let member = facts.kind.member();
    let cause = format!("no controller works, so no {member} is created or deleted; what runs goes on");
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
    let evidence =
        seen("deployment/garboard-controller", "status.availableReplicas", format!("{available} of {wanted}"), None);
    let finding = Finding::wrong(DiagnosisVerdict::ControllerDown, cause).shown_by(evidence);
    Some(finding.then("kubectl garboard cluster status"))
}

fn member_wrong(facts: &SetFacts, _: &Set) -> Option<Finding> {
    member(facts, Health::Wrong)
}

fn member_waiting(facts: &SetFacts, _: &Set) -> Option<Finding> {
    member(facts, Health::Waiting)
}

/// The first member that is so. One that is gone meanwhile is replaced.
fn member(facts: &SetFacts, health: Health) -> Option<Finding> {
    let mut all = facts.looked_at.iter().map(|each| (each.name.as_str(), diagnose(each)));
    let is_it = |found: &Diagnosis| found.health == health && found.verdict != DiagnosisVerdict::NotFound;
    let (name, found) = all.find(|(_, found)| is_it(found))?;
    let Diagnosis { verdict, health, since, cause, evidence, next: advice, .. } = found;
    let why = format!("kubectl garboard why {}/{name}", facts.kind.member_short());
    let template = format!("kubectl edit {} {}    # what all have of the template", facts.kind.short(), facts.name);
    let template = (health == Health::Wrong).then_some(template);
    let next = std::iter::once(why).chain(advice).chain(template).collect();
    let cause = format!("its {} {name}: {cause}", facts.kind.member());
    Some(Finding { verdict, health, since, cause, evidence, next })
}

/// It is to be left as it is.
fn paused(facts: &SetFacts, set: &Set) -> Option<Finding> {
    if set.spec.paused != Some(true) {
        return None;
    }
    let kind = match facts.kind {
        SetKind::ReplicaSet => ReplicaSetConditionType::ReplicaPaused.name(),
        SetKind::Pool => PoolConditionType::ReplicaPaused.name(),
    };
    let since = holding(set, kind).and_then(|condition| condition.last_transition_time);
    let (short, name) = (facts.kind.short(), &facts.name);
    let finding = Finding::well(DiagnosisVerdict::Paused, paused_text(facts.kind)).since(since);
    let finding = finding.shown_by(seen(facts.object(), "spec.paused", "true", since));
    Some(finding.then(format!(r#"kubectl patch {short} {name} --type merge -p '{{"spec":{{"paused":false}}}}'"#)))
}

const fn paused_text(kind: SetKind) -> &'static str {
    match kind {
        SetKind::ReplicaSet => "it is paused: instances are neither created nor deleted",
        SetKind::Pool => "it is paused: machines are neither created nor deleted nor changed",
    }
}

/// Members are still to be created.
fn too_few(facts: &SetFacts, set: &Set) -> Option<Finding> {
    let (there, wanted) = (facts.counts(set).there, set.wanted());
    if there >= wanted {
        return None;
    }
    let cause = format!("{there} of {} are there", counted(wanted, facts.kind));
    let finding = Finding::waiting(DiagnosisVerdict::Starting, cause);
    let finding = finding.shown_by(seen(facts.object(), "spec.replicas", wanted.to_string(), None));
    Some(finding.then(format!("kubectl get {} {} -w", facts.kind.short(), facts.name)))
}

/// All are there, some are not ready, and nothing that was looked at says why.
fn not_ready(facts: &SetFacts, set: &Set) -> Option<Finding> {
    let Counts { there, ready, halted } = facts.counts(set);
    if ready + halted >= there {
        return None;
    }
    let cause = format!("{ready} of its {} are ready", counted(there, facts.kind));
    let finding = Finding::waiting(DiagnosisVerdict::NotReady, cause);
    let finding = finding.shown_by(seen(facts.object(), "status.readyReplicas", ready.to_string(), None));
    Some(finding.then(format!("kubectl get {}", facts.kind.member_short())))
}

/// It is to have none.
fn none_wanted(facts: &SetFacts, set: &Set) -> Option<Finding> {
    if set.wanted() > 0 || facts.counts(set).there > 0 {
        return None;
    }
    let finding = Finding::well(DiagnosisVerdict::Halted, format!("no {} is wanted", facts.kind.member()));
    let finding = finding.shown_by(seen(facts.object(), "spec.replicas", "0", None));
    Some(finding.then(format!("kubectl scale {} --replicas=1", facts.object())))
}

/// Nothing is wrong, and nothing is waited for.
fn as_wanted(facts: &SetFacts, set: &Set) -> Finding {
    let Counts { there, ready, halted } = facts.counts(set);
    let cause = match halted {
        0 => format!("its {} ready", with_verb(there, facts.kind)),
        _ => format!("{ready} of its {} are ready, and the others are not to run", counted(there, facts.kind)),
    };
    let finding = Finding::well(DiagnosisVerdict::Running, cause);
    finding.shown_by(seen(facts.object(), "status.readyReplicas", ready.to_string(), None))
}

/// What is so beside the verdict.
fn remarks(facts: &SetFacts, set: &Set, main: &Finding) -> Vec<String> {
    let Counts { there, ready, halted } = facts.counts(set);
    let waiting = there.saturating_sub(ready + halted);
    let (kind, wanted) = (facts.kind, set.wanted());
    let is_gone = set.metadata.deletion_timestamp.is_some();
    [
        (waiting > 1 && main.verdict != DiagnosisVerdict::NotReady)
            .then(|| format!("{waiting} of its {} are not ready", counted(there, kind))),
        (there > wanted && !is_gone).then(|| format!("{} there, and {wanted} wanted", with_verb(there, kind))),
        (set.spec.paused == Some(true) && main.verdict != DiagnosisVerdict::Paused)
            .then(|| paused_text(kind).to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The condition of this type, if it holds.
fn holding<'a>(set: &'a Set, kind: &str) -> Option<&'a StoredCondition> {
    let is_it = |each: &&StoredCondition| each.r#type == kind && each.status == ConditionStatus::True.name();
    set.status.conditions.iter().find(is_it)
}

/// `1 instance`, `3 instances`.
fn counted(count: usize, kind: SetKind) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {}{ending}", kind.member())
}

/// `1 instance is`, `3 instances are`.
fn with_verb(count: usize, kind: SetKind) -> String {
    format!("{} {}", counted(count, kind), if count == 1 { "is" } else { "are" })
}
