//! Which instancetype or preference a volume names, by labels of what is behind it. Pure: it says what is to be looked at, and the
//! caller looks, in a cluster or in files.
//!
//! ```text
//! volume ─► claim
//!        ─► DataVolume, of the machine's templates or by its name ─► claim or snapshot that it copies
//!                                                                ─► DataSource ─► claim or snapshot
//! ```
//!
//! KubeVirt follows snapshots from its 1.8 on.

use serde_json::Value;

use super::matcher::{self, Matcher, Role};
use crate::fault::{Fault, FaultCode};
use crate::metadata::label;
use crate::v1::{VirtualMachine, VolumeSource};
use crate::validate::printable;

/// How many objects are looked at for one name at most: a DataVolume, its claim, snapshot or DataSource, and the claim or snapshot of that.
pub const MOST_LOOKS: usize = 4;
/// The policy that goes on without a name.
const IGNORE: &str = "Ignore";

/// A kind of objects that may have the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A PersistentVolumeClaim.
    Claim,
    /// A DataVolume of the Containerized Data Importer.
    DataVolume,
    /// A DataSource of the Containerized Data Importer.
    DataSource,
    /// A VolumeSnapshot of the storage.
    Snapshot,
}

impl Source {
    /// The kind, as a manifest has it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::DataVolume => "DataVolume",
            Self::DataSource => "DataSource",
            Self::Snapshot => "VolumeSnapshot",
        }
    }
}

/// An object that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its kind.
    pub source: Source,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at this.
    Look(Look),
    /// This is named.
    Named {
        /// The name.
        name: String,
        /// The kind; empty if the labels have none.
        kind: String,
    },
    /// Nothing is named.
    Nothing(Problem),
}

/// Why nothing is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For people.
    pub message: String,
    /// Whether the policy `Ignore` is about it: not about an object that does not exist.
    pub is_ignorable: bool,
}

fn ignorable(message: String) -> Next {
    Next::Nothing(Problem { message, is_ignorable: true })
}

fn wrong(message: String) -> Next {
    Next::Nothing(Problem { message, is_ignorable: false })
}

/// The matcher of a machine that is still to be inferred. One that is wrong the rules refuse.
#[must_use]
pub fn is_due(vm: &VirtualMachine, role: Role) -> Option<Matcher<'_>> {
    let matcher = Matcher::of(vm, role)?;
    let is_right = matcher.name.is_empty() && matcher.kind.is_empty();
    Some(matcher).filter(|matcher| is_right && !matcher.infer_from_volume.is_empty())
}

/// The first object to be looked at.
#[must_use]
pub fn begin(vm: &VirtualMachine, matcher: &Matcher<'_>) -> Next {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let named = matcher.infer_from_volume;
    let mut volumes = vm.spec.template.spec.iter().flat_map(|spec| &spec.volumes);
    let Some(volume) = volumes.find(|volume| volume.name == named) else {
        return wrong(format!("there is no volume `{named}` in the template"));
    };
    if let Some(claim) = &volume.persistent_volume_claim {
        return look(Source::Claim, namespace, &claim.claim_name);
    }
    let Some(data) = &volume.data_volume else {
        let source = volume.source().map_or("no source", VolumeSource::field);
        return ignorable(format!("the volume `{named}` has `{source}`, and only claims and DataVolumes have labels"));
    };
    let is_of_name = |metadata: Option<&str>| metadata == Some(data.name.as_str());
    let mut brought = vm.spec.data_volume_templates.iter();
    match brought.find(|each| is_of_name(each.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()))) {
        Some(template) => of_data_volume(&serde_json::to_value(&template.spec).unwrap_or_default(), namespace),
        None => look(Source::DataVolume, namespace, &data.name),
    }
}

/// What an object that was looked at leads to; `namespace` is the machine's.
#[must_use]
pub fn follow(looked: &Look, object: Option<&Value>, role: Role, namespace: &str) -> Next {
    let Some(object) = object else {
        return match looked.source {
            // The importer removes those that are filled, and the claim of their name stays.
            Source::DataVolume => look(Source::Claim, &looked.namespace, &looked.name),
            Source::Claim | Source::DataSource | Source::Snapshot => wrong(format!("{} does not exist", shown(looked))),
        };
    };
    if let Some(named) = labelled(object, role) {
        return named;
    }
    match looked.source {
        Source::Claim | Source::Snapshot => ignorable(format!("{} has no label `{}`", shown(looked), name_label(role))),
        Source::DataVolume => of_data_volume(&object["spec"], namespace),
        Source::DataSource => match copied(&object["spec"]["source"], &looked.namespace) {
            Some(next) => next,
            None => ignorable(format!("{} names no claim and no snapshot", shown(looked))),
        },
    }
}

/// The same for an object of a kind that the cluster does not have.
#[must_use]
pub fn unserved(looked: &Look, role: Role, namespace: &str) -> Next {
    let lacking = match looked.source {
        // The claim of its name may be there all the same.
        Source::Claim | Source::DataVolume => return follow(looked, None, role, namespace),
        Source::DataSource => "Containerized Data Importer",
        Source::Snapshot => {
            "definition volumesnapshots.snapshot.storage.k8s.io, which comes with a storage driver that takes snapshots"
        }
    };
    wrong(format!("{} cannot exist: this cluster has no {lacking}", shown(looked)))
}

/// Puts what was found into the matcher of a machine.
///
/// # Errors
/// Nothing was found, and the machine does not go on without.
pub fn settle(vm: &mut VirtualMachine, role: Role, found: Next) -> Result<(), Fault> {
    let Some(matcher) = Matcher::of(vm, role) else { return Ok(()) };
    let (at, ignores) = (matcher.path().child("inferFromVolume"), matcher.failure_policy == IGNORE);
    let problem = match found {
        Next::Named { name, kind } => {
            // A manifest for both cases has a size for the one without a name.
            if ignores
                && role == Role::Instancetype
                && let Some(spec) = &mut vm.spec.template.spec
            {
                spec.domain.memory = None;
            }
            matcher::replace(vm, role, &name, &kind);
            return Ok(());
        }
        Next::Nothing(problem) if problem.is_ignorable && ignores => {
            matcher::clear(vm, role);
            return Ok(());
        }
        Next::Nothing(problem) => problem.message,
        Next::Look(looked) => format!("{} leads no further", shown(&looked)),
    };
    let fault = Fault::new(at, FaultCode::NotFound, format!("the {} cannot be inferred: {problem}", role.field()));
    Err(printable(fault.instead("write `name`, or label the volume's claim or snapshot")))
}

fn shown(looked: &Look) -> String {
    format!("{} {}/{}", looked.source.kind(), looked.namespace, looked.name)
}

fn look(source: Source, namespace: &str, name: &str) -> Next {
    Next::Look(Look { source, namespace: namespace.to_owned(), name: name.to_owned() })
}

const fn name_label(role: Role) -> &'static str {
    match role {
        Role::Instancetype => label::DEFAULT_INSTANCETYPE,
        Role::Preference => label::DEFAULT_PREFERENCE,
    }
}

const fn kind_label(role: Role) -> &'static str {
    match role {
        Role::Instancetype => label::DEFAULT_INSTANCETYPE_KIND,
        Role::Preference => label::DEFAULT_PREFERENCE_KIND,
    }
}

fn labelled(object: &Value, role: Role) -> Option<Next> {
    let text = |key: &str| object["metadata"]["labels"][key].as_str();
    let name = text(name_label(role)).filter(|name| !name.is_empty())?;
    Some(Next::Named { name: name.to_owned(), kind: text(kind_label(role)).unwrap_or_default().to_owned() })
}

/// By the specification of a DataVolume.
fn of_data_volume(spec: &Value, namespace: &str) -> Next {
    if let Some(next) = copied(&spec["source"], namespace) {
        return next;
    }
    let reference = &spec["sourceRef"];
    match (reference["kind"].as_str(), reference["name"].as_str()) {
        (Some("DataSource"), Some(name)) => {
            let namespace =
                reference["namespace"].as_str().filter(|namespace| !namespace.is_empty()).unwrap_or(namespace);
            look(Source::DataSource, namespace, name)
        }
        (Some(kind), _) => ignorable(format!("the DataVolume is filled from a {kind}, which has no labels for it")),
        (None, _) => ignorable("the DataVolume copies neither claim nor snapshot, and has no labels for it".to_owned()),
    }
}

/// The claim or the snapshot that is copied; one without a namespace is of the same as what names it.
fn copied(sources: &Value, namespace: &str) -> Option<Next> {
    [("pvc", Source::Claim), ("snapshot", Source::Snapshot)].into_iter().find_map(|(field, kind)| {
        let source = &sources[field];
        let own = source["namespace"].as_str().filter(|own| !own.is_empty());
        Some(look(kind, own.unwrap_or(namespace), source["name"].as_str()?))
    })
}
