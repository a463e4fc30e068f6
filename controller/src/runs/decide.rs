//! Which records of runs are deleted, and when they are looked through. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::stores::ObjectKey;

/// The most records of one machine that stay.
pub(super) const OF_A_MACHINE: usize = 10;
/// The most of one namespace: instances without a VirtualMachine have names of their own, each with one run.
pub(super) const OF_A_NAMESPACE: usize = 1000;
/// How long one stays.
pub(super) const LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);
/// After how many runs of a machine its records are looked through, and so how many it has at most beyond [`OF_A_MACHINE`].
pub(super) const RUNS_OF_A_MACHINE: usize = 5;
/// The same of a namespace and [`OF_A_NAMESPACE`].
pub(super) const RUNS_OF_A_NAMESPACE: usize = 100;

/// Which records are looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Everything,
    /// Those of a namespace.
    Namespace(String),
    /// Those of a machine.
    Machine(ObjectKey),
}

/// Runs that are over, each of which may have left a record, since those of their machines and namespaces were looked through.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<String, OfNamespace>);

#[derive(Debug, Default)]
struct OfNamespace {
    all: usize,
    of_machines: BTreeMap<String, usize>,
}

impl Runs {
    /// Counts one; what is to be looked through then.
    pub(super) fn count(&mut self, instance: &ObjectKey) -> Option<Scope> {
        let runs = self.0.entry(instance.namespace.clone()).or_default();
        runs.all += 1;
        if runs.all >= RUNS_OF_A_NAMESPACE {
            self.0.remove(&instance.namespace);
            return Some(Scope::Namespace(instance.namespace.clone()));
        }
        let own = runs.of_machines.entry(instance.name.clone()).or_default();
        *own += 1;
        if *own < RUNS_OF_A_MACHINE {
            return None;
        }
        *own = 0;
        Some(Scope::Machine(instance.clone()))
    }
}

/// A record, by its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) made: Timestamp,
}

/// The machine of a record: what is before the last hyphen of its name.
fn machine(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(machine, _)| machine)
}

/// Those that are too old, and of each machine and each namespace the oldest that are too many.
pub(super) fn superfluous(mut all: Vec<Kept>, now: Timestamp) -> Vec<Kept> {
    all.sort_by_key(|each| std::cmp::Reverse(each.made));
    let mut of_machines: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut of_namespaces: BTreeMap<String, usize> = BTreeMap::new();
    let is_superfluous = |each: &Kept| {
        if now.duration_since(each.made) > LIFETIME {
            return true;
        }
        let own = of_machines.entry((each.namespace.clone(), machine(&each.name).to_owned())).or_default();
        *own += 1;
        if *own > OF_A_MACHINE {
            return true;
        }
        let all = of_namespaces.entry(each.namespace.clone()).or_default();
        *all += 1;
        *all > OF_A_NAMESPACE
    };
    all.retain(is_superfluous);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000_000;

    fn kept(namespace: &str, name: &str, hours_ago: i64) -> Kept {
        let made = Timestamp::from_second(NOW - hours_ago * 3600).unwrap();
        Kept { namespace: namespace.to_owned(), name: name.to_owned(), made }
    }

    fn names(all: Vec<Kept>) -> Vec<String> {
        let mut names: Vec<String> = superfluous(all, Timestamp::from_second(NOW).unwrap())
            .into_iter()
            .map(|each| format!("{}/{}", each.namespace, each.name))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_machine_keeps_its_newest_and_none_that_is_old() {
        let mut all: Vec<Kept> = (0..12).map(|hours| kept("a", &format!("web-{hours:08}"), hours)).collect();
        all.push(kept("a", "web-2-00000000", 20));
        all.push(kept("b", "web-00000000", 100));
        all.push(kept("b", "old-00000000", 7 * 24 + 1));
        all.push(kept("b", "young-00000000", 7 * 24));
        all.reverse();
        assert_eq!(names(all), ["a/web-00000010", "a/web-00000011", "b/old-00000000"]);
    }

    #[test]
    fn a_machine_that_ends_again_and_again_is_looked_at_and_no_other_one() {
        let (mut runs, machine) = (Runs::default(), ObjectKey::new("a", "web"));
        for _ in 0..3 {
            for _ in 1..RUNS_OF_A_MACHINE {
                assert_eq!(runs.count(&machine), None);
            }
            assert_eq!(runs.count(&ObjectKey::new("b", "web")), None, "that of another namespace is another one");
            assert_eq!(runs.count(&machine), Some(Scope::Machine(machine.clone())));
        }
    }

    #[test]
    fn instances_of_one_run_each_have_their_namespace_looked_at() {
        let mut runs = Runs::default();
        let mut asked = (0..2 * RUNS_OF_A_NAMESPACE).filter_map(|number| {
            let scope = runs.count(&ObjectKey::new("a", &format!("vmi{number}")))?;
            Some((number, scope))
        });
        let expected = |number: usize| Some((number, Scope::Namespace("a".to_owned())));
        assert_eq!(asked.next(), expected(RUNS_OF_A_NAMESPACE - 1));
        assert_eq!(asked.next(), expected(2 * RUNS_OF_A_NAMESPACE - 1));
        assert_eq!(asked.next(), None);
        assert!(runs.0.is_empty(), "nothing is kept of names that come once");
    }

    #[test]
    fn a_namespace_of_many_short_lives_has_an_end() {
        let all: Vec<Kept> =
            (0..1002).map(|number| kept("a", &format!("vmi{number}-0"), i64::from(number > 900))).collect();
        assert_eq!(names(all).len(), 2);
    }
}
