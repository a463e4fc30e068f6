//! What becomes of every field: the one table that admission, the controller, the launcher, `garboard validate` and
//! `docs/compatibility.md` read.
//!
//! KubeVirt 1.9 publishes some thousand fields (`tests/conformance/corpus/fields.tsv`). Each leaf of VirtualMachine,
//! VirtualMachineInstance, VirtualMachineInstanceReplicaSet, VirtualMachineInstancePreset, VirtualMachinePool and KubeVirt
//! is covered by exactly one line here: a file reads it, or it is refused, or it is accepted with a warning;
//! `api/tests/table.rs` fails for a leaf without a line, and for a line whose file does not name the field. Whether a
//! *value* makes sense is for the rules in `crate::validate`, not for the table.

mod annotations;
mod devices;
mod domain;
mod find;
mod gates;
mod instance;
mod machine;
mod ours;
mod pool;
mod preset;
mod replica_set;
mod settings;
mod status;

use crate::cluster::ClusterConfig;

pub use annotations::{ANNOTATIONS, Annotation, OF_MACHINES};
pub use find::{Judgement, judge, judge_annotations, lines_at, refused};
pub use gates::{Behind, gate, gates};
pub use ours::OURS;

/// Where a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// In a pod.
    Cluster,
    /// By `garboard run`.
    BareHost,
}

impl Setting {
    /// The setting of a configuration: without a cluster it is a bare host.
    #[must_use]
    pub const fn of(config: &ClusterConfig) -> Self {
        if config.is_cluster { Self::Cluster } else { Self::BareHost }
    }
}

/// Which values of a field a line is about. A field that is not there, `null`, or an empty list is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The field is there, with any value.
    Written,
    /// The field has a value: not `false`, not an empty text, not an object of nothing but these.
    Filled,
    /// The field is `true`.
    True,
    /// The field is `false`.
    False,
    /// The field is an object without `enabled: false`.
    Enabled,
    /// The field is this text.
    Is(&'static str),
    /// The field is another text.
    OtherThan(&'static str),
    /// The field is a map with other keys.
    OtherKeys(&'static [&'static str]),
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is implemented, by this file (from the root of the repository).
    Read(&'static str),
    /// It is handed on with everything below it, by this file.
    Handed(&'static str),
    /// A name that other fields or people use; nothing is done with it.
    Name,
    /// These values are refused; every other one has the meaning KubeVirt gives it.
    Refused {
        /// Which values.
        when: When,
        /// Why, without a full stop.
        why: &'static str,
        /// What to do about it.
        instead: &'static str,
    },
    /// These values are accepted, and mean less than under KubeVirt.
    Warned {
        /// Which values.
        when: When,
        /// What happens, without a full stop.
        what: &'static str,
        /// What to do about it.
        instead: &'static str,
    },
    /// A field of a status that is never written.
    NeverWritten,
}

/// Fields that share a fate, and the object they are in.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The object, from the root of the manifest's `spec` or `status`; `[]` stands for every element of a list. Empty:
    /// the root itself.
    pub under: &'static str,
    /// The fields below it, separated by blanks. Empty: the object itself.
    pub fields: &'static str,
    /// What becomes of them in a cluster.
    pub cluster: Fate,
    /// What becomes of them on a bare host.
    pub bare_host: Fate,
}

impl Line {
    /// The whole paths of its fields.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let under = self.under;
        self.below().map(move |field| match (under, field) {
            (path, "") | ("", path) => path.to_owned(),
            (under, field) => format!("{under}.{field}"),
        })
    }

    /// Its fields, each as a path below [`Line::under`]; an empty one is the object itself.
    pub(crate) fn below(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.fields.is_empty().then_some("").into_iter().chain(self.fields.split_whitespace())
    }

    /// What becomes of its fields in a setting.
    #[must_use]
    pub const fn fate(&self, setting: Setting) -> Fate {
        match setting {
            Setting::Cluster => self.cluster,
            Setting::BareHost => self.bare_host,
        }
    }
}

/// The object a table is about, its part, and its lines.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The kind, as a manifest has it.
    pub kind: &'static str,
    /// `spec` or `status`.
    pub part: &'static str,
    /// The lines, from several files.
    pub lines: &'static [&'static [Line]],
}

impl Table {
    /// Every line.
    pub fn all(&self) -> impl Iterator<Item = &'static Line> + use<> {
        self.lines.iter().copied().flatten()
    }
}

/// `spec` of an instance, and of a template.
pub const INSTANCE: Table = Table {
    kind: "VirtualMachineInstance",
    part: "spec",
    lines: &[instance::POD, instance::VOLUMES, domain::DOMAIN, devices::DEVICES, devices::INTERFACES],
};
/// `spec` of a machine beside its template.
pub const MACHINE: Table = Table { kind: "VirtualMachine", part: "spec", lines: &[machine::MACHINE] };
/// `spec` of a set of instances beside its template.
pub const REPLICA_SET: Table =
    Table { kind: "VirtualMachineInstanceReplicaSet", part: "spec", lines: &[replica_set::SPEC] };
/// `spec` of a preset.
pub const PRESET: Table = Table { kind: "VirtualMachineInstancePreset", part: "spec", lines: &[preset::SPEC] };
/// `spec` of a pool beside the template of its machines.
pub const POOL: Table = Table { kind: "VirtualMachinePool", part: "spec", lines: &[pool::SPEC] };
/// `spec` of the settings of a cluster.
pub const SETTINGS: Table =
    Table { kind: "KubeVirt", part: "spec", lines: &[settings::INSTALLATION, settings::CONFIGURATION] };
/// Every table.
pub const TABLES: [Table; 11] = [
    INSTANCE,
    MACHINE,
    REPLICA_SET,
    PRESET,
    POOL,
    SETTINGS,
    Table { kind: "VirtualMachineInstance", part: "status", lines: &[status::INSTANCE] },
    Table { kind: "VirtualMachine", part: "status", lines: &[status::MACHINE] },
    Table { kind: "VirtualMachineInstanceReplicaSet", part: "status", lines: &[replica_set::STATUS] },
    Table { kind: "VirtualMachinePool", part: "status", lines: &[pool::STATUS] },
    Table { kind: "KubeVirt", part: "status", lines: &[status::SETTINGS] },
];

/// Why a field is refused that has no other reason.
const NOT_YET: &str = "this is valid, but this version of Garboard does not support it";
const REMOVE: &str = "remove it";

const fn both(under: &'static str, fields: &'static str, fate: Fate) -> Line {
    Line { under, fields, cluster: fate, bare_host: fate }
}

/// What is read, by one file in both settings.
const fn read(under: &'static str, fields: &'static str, file: &'static str) -> Line {
    both(under, fields, Fate::Read(file))
}

/// What is supported nowhere.
const fn not_yet(under: &'static str, fields: &'static str, when: When, instead: &'static str) -> Line {
    both(under, fields, Fate::Refused { when, why: NOT_YET, instead })
}

const fn warned(when: When, what: &'static str, instead: &'static str) -> Fate {
    Fate::Warned { when, what, instead }
}
