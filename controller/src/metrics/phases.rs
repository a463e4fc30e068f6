//! How long instances are in their phases, as the leader's watch sees them change. The times are those in the status.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garboard_api::Phase;
use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::{Exposition, Histogram, Labels};

use super::instances::InstanceView;
use super::machines::seconds;
use crate::stores::{Cached, Instances};

/// What was seen so far.
#[derive(Default)]
pub struct Phases(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// The phase of each instance, by UID.
    last: HashMap<String, Phase>,
    /// By phase, and by the phase before.
    between: BTreeMap<(Phase, Phase), Arc<Histogram>>,
    from_creation: BTreeMap<Phase, Arc<Histogram>>,
    from_deletion: BTreeMap<Phase, Arc<Histogram>>,
}

impl Phases {
    /// An instance is new, different or gone.
    pub fn changed(&self, object: &Cached<Instances>) {
        if let Ok(vmi) = object.read_part::<InstanceView>() {
            self.note(&vmi);
        }
    }

    /// The UIDs of which something is kept.
    #[must_use]
    pub fn known(&self) -> Vec<String> {
        self.lock().last.keys().cloned().collect()
    }

    /// Of these instances nothing is kept any more.
    pub fn forget<'a>(&self, uids: impl Iterator<Item = &'a String>) {
        let mut seen = self.lock();
        for uid in uids {
            seen.last.remove(uid);
        }
    }

    /// Nothing is known of any instance; what was counted stays.
    pub fn forget_all(&self) {
        self.lock().last.clear();
    }

    fn note(&self, vmi: &InstanceView) {
        let Some(uid) = vmi.metadata.uid.clone() else { return };
        let phase = Phase::from_name(vmi.status.phase.as_deref());
        let mut seen = self.lock();
        // Nothing comes after the last phase, and nobody need scrape for instances that are gone to be forgotten.
        let before = if phase.is_final() { seen.last.remove(&uid) } else { seen.last.insert(uid, phase) };
        let Some(before) = before.filter(|before| *before != phase) else { return };
        let Some(entered) = entered(vmi, phase) else { return };
        // An instance has no time for the phase that it began with.
        let created = vmi.metadata.creation_timestamp.as_ref().map(seconds);
        if let Some(since) = self::entered(vmi, before).or(created) {
            seen.between.entry((phase, before)).or_default().observe(entered - since);
        }
        if let Some(created) = created {
            seen.from_creation.entry(phase).or_default().observe(entered - created);
        }
        let deleted = vmi.metadata.deletion_timestamp.as_ref().map(seconds);
        if let Some(deleted) = deleted.filter(|_| phase.is_final()) {
            seen.from_deletion.entry(phase).or_default().observe(entered - deleted);
        }
    }

    /// Adds what was counted.
    pub(super) fn add(&self, to: &mut Exposition) {
        let seen = self.lock();
        for ((phase, before), histogram) in &seen.between {
            let labels = Labels::of(&[("phase", phase.name()), ("last_phase", before.name())]);
            to.add_histogram(&catalogue::VMI_PHASE_TRANSITION_TIME, &labels, &histogram.seen());
        }
        for (metric, histograms) in [
            (&catalogue::VMI_PHASE_TRANSITION_TIME_FROM_CREATION, &seen.from_creation),
            (&catalogue::VMI_PHASE_TRANSITION_TIME_FROM_DELETION, &seen.from_deletion),
        ] {
            for (phase, histogram) in histograms {
                to.add_histogram(metric, &Labels::of(&[("phase", phase.name())]), &histogram.seen());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entered(vmi: &InstanceView, phase: Phase) -> Option<f64> {
    let times = &vmi.status.phase_transition_timestamps;
    let found = times.iter().find(|each| each.phase.as_deref() == Some(phase.name()))?;
    found.phase_transition_timestamp.as_ref().map(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(phase: &str, deleted: Option<&str>, times: Value) -> InstanceView {
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z", "deletionTimestamp": deleted},
            "status": {"phase": phase, "phaseTransitionTimestamps": times},
        }))
        .unwrap()
    }

    fn entered(phase: &str, second: u32) -> Value {
        json!({"phase": phase, "phaseTransitionTimestamp": format!("1970-01-01T00:00:{second:02}Z")})
    }

    fn text(phases: &Phases) -> String {
        let mut to = Exposition::default();
        phases.add(&mut to);
        to.text()
    }

    #[test]
    fn each_change_of_a_phase_is_counted_once() {
        let phases = Phases::default();
        let times = json!([entered("Scheduling", 11), entered("Running", 14), entered("Succeeded", 40)]);
        phases.note(&vmi("Scheduling", None, times.clone()));
        assert_eq!(text(&phases), "", "what it was before is not known");
        for _ in 0..2 {
            phases.note(&vmi("Running", None, times.clone()));
        }
        let running = text(&phases);
        let sum = "kubevirt_vmi_phase_transition_time_seconds_sum{phase=\"Running\",last_phase=\"Scheduling\"} 3\n";
        assert!(running.contains(sum), "{running}");
        let name = "kubevirt_vmi_phase_transition_time_from_creation_seconds";
        assert!(running.contains(&format!("{name}_count{{phase=\"Running\"}} 1\n")), "{running}");
        assert!(running.contains(&format!("{name}_sum{{phase=\"Running\"}} 4\n")), "{running}");
        phases.note(&vmi("Succeeded", Some("1970-01-01T00:00:30Z"), times));
        let name = "kubevirt_vmi_phase_transition_time_from_deletion_seconds";
        assert!(text(&phases).contains(&format!("{name}_sum{{phase=\"Succeeded\"}} 10\n")));
        assert!(phases.known().is_empty(), "nothing comes after it");
    }

    #[test]
    fn of_instances_that_are_gone_nothing_is_kept_and_no_text_of_others_is_a_label() {
        let phases = Phases::default();
        phases.note(&vmi("Mine", None, json!([entered("Mine", 11)])));
        assert_eq!(phases.lock().last.get("u"), Some(&Phase::Unknown));
        phases.note(&vmi("Running", None, json!([entered("Mine", 11), entered("Running", 12)])));
        assert!(text(&phases).contains("phase=\"Running\",last_phase=\"Unknown\"") && !text(&phases).contains("Mine"));
        let known = phases.known();
        assert_eq!(known, ["u"]);
        phases.forget(known.iter());
        assert!(phases.known().is_empty());
    }
}
