//! Which records of runs are deleted. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// The most records of one machine that stay.
pub(super) const OF_A_MACHINE: usize = 10;
/// The most of one namespace: instances without a VirtualMachine have names of their own, each with one run.
pub(super) const OF_A_NAMESPACE: usize = 1000;
/// How long one stays.
pub(super) const LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

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
    fn a_namespace_of_many_short_lives_has_an_end() {
        let all: Vec<Kept> =
            (0..1002).map(|number| kept("a", &format!("vmi{number}-0"), i64::from(number > 900))).collect();
        assert_eq!(names(all).len(), 2);
    }
}
