//! The annotations that a descheduler reads of a pod: they follow the template of the machine, and those of the instance, also while it
//! runs, as under KubeVirt. Pure.

use std::collections::BTreeMap;

use garboard_api::metadata::annotation;

/// Annotations of an object.
pub type Annotations = BTreeMap<String, String>;
/// New values of annotations; nothing for one that is to go.
pub type Changes = BTreeMap<String, Option<String>>;

/// What is to change of an object so that it has these annotations as the object that it was made from has them.
#[must_use]
pub fn changes(wanted: Option<&Annotations>, found: Option<&Annotations>) -> Changes {
    let keys = annotation::OF_DESCHEDULER.into_iter();
    let value = |all: Option<&Annotations>, key: &str| all.and_then(|all| all.get(key)).cloned();
    let differs = keys.filter(|key| value(wanted, key) != value(found, key));
    differs.map(|key| (key.to_owned(), value(wanted, key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_changed_and_what_is_not_wanted_goes() {
        let [evict, keep] = annotation::OF_DESCHEDULER;
        let of = |all: &[(&str, &str)]| -> Annotations {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let change = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        let table = [
            (of(&[]), of(&[]), vec![]),
            (of(&[(evict, "")]), of(&[(evict, "")]), vec![]),
            (of(&[(evict, "")]), of(&[]), vec![change(evict, Some(""))]),
            (of(&[(evict, "a")]), of(&[(evict, "b")]), vec![change(evict, Some("a"))]),
            (of(&[]), of(&[(evict, ""), ("other", "1")]), vec![change(evict, None)]),
            (of(&[(keep, ""), ("other", "1")]), of(&[(evict, "")]), vec![change(evict, None), change(keep, Some(""))]),
        ];
        for (wanted, found, expected) in table {
            let expected: Changes = expected.into_iter().collect();
            assert_eq!(changes(Some(&wanted), Some(&found)), expected, "{wanted:?} {found:?}");
        }
        assert_eq!(changes(None, None), Changes::new());
        assert_eq!(changes(None, Some(&of(&[(keep, "")]))), Changes::from([change(keep, None)]));
    }
}
