//! The groups of our kinds, and the two versions in which each is served with the same fields. Names and versions are KubeVirt's
//! (`staging/src/kubevirt.io/api`). Pure.
//!
//! Machines and instances are served in more versions, with other fields: [`crate::versions`].

use crate::{crd, instancetype};

/// A group of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// The newer version.
    pub newer: &'static str,
    /// The older version. Where it is the one that is stored, it is there for clients of either; otherwise it is deprecated.
    pub older: &'static str,
    /// The one of the two that is stored.
    pub stored: &'static str,
}

/// The group of machines, instances, sets, presets and settings.
pub const MACHINES: Group =
    Group { name: crd::GROUP, newer: crd::STORED_VERSION, older: crd::OLD_VERSION, stored: crd::STORED_VERSION };
/// The group of pools.
pub const POOLS: Group = Group { name: "pool.kubevirt.io", newer: "v1beta1", older: "v1alpha1", stored: "v1beta1" };
/// The group of instancetypes and preferences.
pub const SIZES: Group = Group {
    name: instancetype::GROUP,
    newer: instancetype::NEW_VERSION,
    older: instancetype::STORED_VERSION,
    stored: instancetype::STORED_VERSION,
};

impl Group {
    /// Group and stored version, as `apiVersion` of a manifest has them.
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{}/{}", self.name, self.stored)
    }

    /// Whether an `apiVersion` is this group in one of the two versions.
    #[must_use]
    pub fn serves(self, api_version: &str) -> bool {
        self.version_in(api_version).is_some_and(|version| version == self.newer || version == self.older)
    }

    /// The version in an `apiVersion` of this group.
    pub(crate) fn version_in(self, api_version: &str) -> Option<&str> {
        api_version.strip_prefix(self.name)?.strip_prefix('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_served_and_is_what_the_types_say() {
        assert_eq!(MACHINES.api_version(), crate::v1::API_VERSION);
        assert_eq!(POOLS.api_version(), crate::pool::API_VERSION);
        assert_eq!(SIZES.api_version(), "instancetype.kubevirt.io/v1beta1");
        for group in [MACHINES, POOLS, SIZES] {
            assert!(group.serves(&group.api_version()));
            let other = format!("{}s/{}", group.name, group.stored);
            assert!(!group.serves(&other) && !group.serves(group.name) && !group.serves(group.stored));
        }
    }
}
