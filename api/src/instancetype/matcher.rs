//! How a machine names its instancetype and its preference.

use crate::fault::{Fault, FaultCode, FieldPath};
use crate::kind::Kind;
use crate::suggest::one_of;
use crate::v1::{
    ControllerRevisionRef, InstancetypeMatcher, InstancetypeStatusRef, PreferenceMatcher, VirtualMachine, non_empty,
};

/// The most characters of the name of an object.
const LONGEST_NAME: usize = 253;

/// What of the two is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `spec.instancetype`.
    Instancetype,
    /// `spec.preference`.
    Preference,
}

impl Role {
    /// Both, in the order in which they are applied.
    pub const BOTH: [Self; 2] = [Self::Instancetype, Self::Preference];

    /// The field of `spec` of a VirtualMachine.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Instancetype => "instancetype",
            Self::Preference => "preference",
        }
    }

    /// The kind that belongs to a namespace.
    #[must_use]
    pub const fn namespaced(self) -> Kind {
        match self {
            Self::Instancetype => Kind::VirtualMachineInstancetype,
            Self::Preference => Kind::VirtualMachinePreference,
        }
    }

    /// The kind that belongs to the cluster.
    #[must_use]
    pub const fn of_cluster(self) -> Kind {
        match self {
            Self::Instancetype => Kind::VirtualMachineClusterInstancetype,
            Self::Preference => Kind::VirtualMachineClusterPreference,
        }
    }

    /// What of the two a kind is.
    #[must_use]
    pub fn of_kind(kind: Kind) -> Option<Self> {
        Self::BOTH.into_iter().find(|role| [role.namespaced(), role.of_cluster()].contains(&kind))
    }

    /// What the status of a machine has of it.
    #[must_use]
    pub fn status(self, vm: &VirtualMachine) -> Option<&InstancetypeStatusRef> {
        let status = vm.status.as_ref()?;
        match self {
            Self::Instancetype => status.instancetype_ref.as_ref(),
            Self::Preference => status.preference_ref.as_ref(),
        }
    }
}

/// `spec.instancetype` or `spec.preference`; an empty text is a field that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matcher<'a> {
    /// Which of the two.
    pub role: Role,
    /// Name of the object.
    pub name: &'a str,
    /// Its kind as it is written.
    pub kind: &'a str,
    /// The volume whose labels name the object.
    pub infer_from_volume: &'a str,
    /// `Reject` or `Ignore`.
    pub failure_policy: &'a str,
    /// The revision that is used instead of the object.
    pub revision_name: &'a str,
}

impl<'a> Matcher<'a> {
    /// Of a machine that has one.
    #[must_use]
    pub fn of(vm: &'a VirtualMachine, role: Role) -> Option<Self> {
        let text = |field: &'a Option<String>| non_empty(field).unwrap_or_default();
        match role {
            Role::Instancetype => vm.spec.instancetype.as_ref().map(|matcher| Self {
                role,
                name: text(&matcher.name),
                kind: text(&matcher.kind),
                infer_from_volume: text(&matcher.infer_from_volume),
                failure_policy: text(&matcher.infer_from_volume_failure_policy),
                revision_name: text(&matcher.revision_name),
            }),
            Role::Preference => vm.spec.preference.as_ref().map(|matcher| Self {
                role,
                name: text(&matcher.name),
                kind: text(&matcher.kind),
                infer_from_volume: text(&matcher.infer_from_volume),
                failure_policy: text(&matcher.infer_from_volume_failure_policy),
                revision_name: text(&matcher.revision_name),
            }),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn path(&self) -> FieldPath {
        FieldPath::from("spec").child(self.role.field())
    }

    /// The kind of the object. KubeVirt takes the names of resources for it, too, in any case; without one it is the cluster's.
    ///
    /// # Errors
    /// It is none of those.
    pub fn object_kind(&self) -> Result<Kind, Fault> {
        let written = self.kind.to_lowercase();
        let is = |kind: Kind| [singular(kind), resource(kind)].contains(&written);
        let (namespaced, of_cluster) = (self.role.namespaced(), self.role.of_cluster());
        if written.is_empty() || is(of_cluster) {
            return Ok(of_cluster);
        }
        if is(namespaced) {
            return Ok(namespaced);
        }
        let path = self.path().child("kind");
        let fault = Fault::new(path, FaultCode::NotSupported, format!("there is no kind `{}`", quoted(self.kind)));
        Err(fault.instead(one_of(self.kind, &[of_cluster.name(), namespaced.name()])))
    }

    /// The object in a message. What the manifest has for its name is escaped and cut.
    #[must_use]
    pub fn shown(&self) -> String {
        let kind = self.object_kind().map_or(self.role.field(), Kind::name);
        format!("{kind} {}", quoted(self.name))
    }

    /// The revision to use instead of the object: the one that is written, or the one in the status, if that is still of the object
    /// that is named.
    #[must_use]
    pub fn revision(&self, vm: &'a VirtualMachine) -> Option<&'a str> {
        if !self.revision_name.is_empty() {
            return Some(self.revision_name);
        }
        self.role.status(vm).filter(|status| self.is_of(status)).and_then(recorded)
    }

    /// What the status is to have of it once the revision is made: KubeVirt keeps what the matcher leaves out.
    #[must_use]
    pub fn status(&self, revision: Option<&str>, before: Option<&InstancetypeStatusRef>) -> InstancetypeStatusRef {
        let mut status = before.cloned().unwrap_or_default();
        let fields = [
            (&mut status.name, self.name),
            (&mut status.kind, self.kind),
            (&mut status.infer_from_volume, self.infer_from_volume),
            (&mut status.infer_from_volume_failure_policy, self.failure_policy),
        ];
        for (field, written) in fields {
            if !written.is_empty() {
                *field = Some(written.to_owned());
            }
        }
        status.controller_revision_ref = revision.map(|name| ControllerRevisionRef { name: Some(name.to_owned()) });
        status
    }

    /// Whether what the status has is of the object that is named now.
    #[must_use]
    pub fn is_of(&self, status: &InstancetypeStatusRef) -> bool {
        let is_same = |field: &Option<String>, written: &str| {
            written.is_empty() || non_empty(field).unwrap_or_default() == written
        };
        is_same(&status.name, self.name)
            && is_same(&status.kind, self.kind)
            && is_same(&status.infer_from_volume, self.infer_from_volume)
    }
}

/// What a manifest has for a name, for a message.
fn quoted(text: &str) -> String {
    text.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

/// The revision that a status names.
fn recorded(status: &InstancetypeStatusRef) -> Option<&str> {
    non_empty(&status.controller_revision_ref.as_ref()?.name)
}

/// The name of a kind as a resource has it, such as `virtualmachinepreferences`.
pub(super) fn resource(kind: Kind) -> String {
    singular(kind) + "s"
}

fn singular(kind: Kind) -> String {
    kind.name().to_lowercase()
}

/// Puts a name and a kind into a matcher, in the place of the volume that named them.
pub(super) fn replace(vm: &mut VirtualMachine, role: Role, name: &str, kind: &str) {
    let name = Some(name.to_owned());
    let kind = (!kind.is_empty()).then(|| kind.to_owned());
    match role {
        Role::Instancetype => {
            vm.spec.instancetype = Some(InstancetypeMatcher { name, kind, ..InstancetypeMatcher::default() });
        }
        Role::Preference => {
            vm.spec.preference = Some(PreferenceMatcher { name, kind, ..PreferenceMatcher::default() });
        }
    }
}

/// Takes a matcher out.
pub(super) fn clear(vm: &mut VirtualMachine, role: Role) {
    match role {
        Role::Instancetype => vm.spec.instancetype = None,
        Role::Preference => vm.spec.preference = None,
    }
}
