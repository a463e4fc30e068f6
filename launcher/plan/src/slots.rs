//! Numbered places on a bus: a device has the one it had at the last start, any other the lowest that is free.

use std::collections::{BTreeMap, BTreeSet};

use garboard_machine::id::DeviceId;

/// No bus of ours has more places, so a larger number was not ours.
const MOST: u32 = 1024;

/// The places of one bus.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// Of the last start, each number once. One whose device has left stays free until the next start.
    stored: BTreeMap<String, u32>,
    given: BTreeMap<String, u32>,
}

impl Slots {
    /// With the places of an earlier start.
    pub(super) fn new(stored: Option<&BTreeMap<String, u32>>) -> Self {
        let mut seen = BTreeSet::new();
        let all = stored.into_iter().flatten();
        let sound = all.filter(|&(_, &slot)| slot < MOST && seen.insert(slot));
        Self { stored: sound.map(|(id, &slot)| (id.clone(), slot)).collect(), given: BTreeMap::new() }
    }

    /// The place of `device`.
    pub(super) fn of(&mut self, device: &DeviceId) -> u32 {
        let slot = self.stored.get(device.as_str()).copied().unwrap_or_else(|| self.lowest_free());
        self.given.insert(device.to_string(), slot);
        slot
    }

    fn lowest_free(&self) -> u32 {
        let taken: BTreeSet<u32> = self.stored.values().chain(self.given.values()).copied().collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(u32::MAX)
    }

    /// What was given, for the next start.
    pub(super) fn into_given(self) -> BTreeMap<String, u32> {
        self.given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(stored: &BTreeMap<String, u32>, ids: &[&'static str]) -> BTreeMap<String, u32> {
        let mut slots = Slots::new(Some(stored));
        for id in ids {
            slots.of(&DeviceId::constant(id));
        }
        slots.into_given()
    }

    #[test]
    fn a_device_keeps_its_place_when_another_leaves() {
        let first = given(&BTreeMap::new(), &["a", "b", "c"]);
        assert_eq!(first, [("a".into(), 0), ("b".into(), 1), ("c".into(), 2)].into());
        let second = given(&first, &["new", "c", "b"]);
        assert_eq!(second, [("new".into(), 3), ("c".into(), 2), ("b".into(), 1)].into());
        assert_eq!(given(&second, &["other", "new", "c", "b"])["other"], 0, "the place of the one that left");
    }

    #[test]
    fn a_number_that_cannot_be_ours_is_not_accepted() {
        let wrong = [("a".to_owned(), 5), ("b".to_owned(), 5), ("c".to_owned(), u32::MAX)].into();
        let now = given(&wrong, &["a", "b", "c"]);
        assert_eq!(now.values().collect::<BTreeSet<_>>().len(), 3);
        assert!(now.values().all(|&slot| slot < MOST));
    }
}
