//! The kinds whose objects make instances or machines of one template, by the names that people, kubectl and the API server have for
//! them. Pure.

use garboard_api::Kind;
use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetKind {
    /// It makes instances.
    #[serde(rename = "VirtualMachineInstanceReplicaSet")]
    ReplicaSet,
    /// It makes machines.
    #[serde(rename = "VirtualMachinePool")]
    Pool,
}

impl SetKind {
    /// That of `KIND/NAME`, by what stands before the slash: a name that kubectl takes, too.
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text {
            "vmirs" | "vmirss" | "virtualmachineinstancereplicaset" | "virtualmachineinstancereplicasets" => {
                Some(Self::ReplicaSet)
            }
            "vmpool" | "vmpools" | "virtualmachinepool" | "virtualmachinepools" => Some(Self::Pool),
            _ => None,
        }
    }

    /// The kind of its objects.
    const fn kind(self) -> Kind {
        match self {
            Self::ReplicaSet => Kind::ReplicaSet,
            Self::Pool => Kind::Pool,
        }
    }

    /// The kind of what they make.
    pub(crate) const fn member_kind(self) -> Kind {
        match self {
            Self::ReplicaSet => Kind::VirtualMachineInstance,
            Self::Pool => Kind::VirtualMachine,
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::ReplicaSet => "virtualmachineinstancereplicasets",
            Self::Pool => "virtualmachinepools",
        }
    }

    /// Its short name.
    pub(crate) const fn short(self) -> &'static str {
        match self {
            Self::ReplicaSet => "vmirs",
            Self::Pool => "vmpool",
        }
    }

    /// For a person.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replica set",
            Self::Pool => "pool",
        }
    }

    /// What its objects make, for a person.
    pub(crate) const fn member(self) -> &'static str {
        match self {
            Self::ReplicaSet => "instance",
            Self::Pool => "machine",
        }
    }

    /// The short name of what its objects make.
    pub(crate) const fn member_short(self) -> &'static str {
        match self {
            Self::ReplicaSet => "vmi",
            Self::Pool => "vm",
        }
    }

    /// As kubectl names it whatever other kinds a cluster has.
    pub(crate) fn resource(self) -> String {
        let group = self.kind().group().map(|group| group.name).unwrap_or_default();
        format!("{}.{group}", self.plural())
    }

    /// The path of its objects in a namespace.
    pub(crate) fn path(self, namespace: &str) -> String {
        format!("/apis/{}/namespaces/{namespace}/{}", self.kind().api_version(), self.plural())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_the_names_of_its_definition() {
        let all = [
            (SetKind::ReplicaSet, "virtualmachineinstancereplicasets.kubevirt.io", "/apis/kubevirt.io/v1"),
            (SetKind::Pool, "virtualmachinepools.pool.kubevirt.io", "/apis/pool.kubevirt.io/v1beta1"),
        ];
        for (kind, resource, version) in all {
            assert_eq!(kind.resource(), resource);
            assert_eq!(kind.path("tenant"), format!("{version}/namespaces/tenant/{}", kind.plural()));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.kind().name());
            let names = [kind.short(), kind.plural(), kind.plural().trim_end_matches('s')];
            assert_eq!(names.map(SetKind::named), [Some(kind); 3]);
        }
        assert_eq!(["vm", "vmi", "pod", "", "vmirsx"].map(SetKind::named), [None; 5]);
    }
}
