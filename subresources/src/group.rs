//! The two groups that are served: KubeVirt's, and one of our own for what KubeVirt does not have. Pure.

use crate::GROUP;
use crate::routes::{FIRST_VERSION, Route, own_routes, routes};

/// The name of our own group.
pub const OWN_GROUP: &str = "subresources.garboard.dev";

/// A group of APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// `subresources.kubevirt.io`.
    KubeVirt,
    /// [`OWN_GROUP`].
    Garboard,
}

impl Group {
    /// Both.
    pub const ALL: [Self; 2] = [Self::KubeVirt, Self::Garboard];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeVirt => GROUP,
            Self::Garboard => OWN_GROUP,
        }
    }

    /// The versions that are served, the preferred one first. There are no objects: the first two of KubeVirt's answer alike, the
    /// last one has few routes.
    #[must_use]
    pub const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::KubeVirt => &["v1", "v1alpha3", FIRST_VERSION],
            Self::Garboard => &["v1"],
        }
    }

    /// The routes of a version.
    #[must_use]
    pub fn routes(self, version: &str) -> &'static [Route] {
        match self {
            Self::KubeVirt => routes(version),
            Self::Garboard => own_routes(),
        }
    }

    /// Finds one by its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}
