//! The structure of manifests: which fields there are, of which type, and which must be there.
//!
//! [`check`] compares raw JSON with the schema of its kind and names everything that is wrong at once; [`inspect`] also
//! returns what is left when the wrong parts are taken out, which always decodes, so that the rules can judge the rest.
//! What a value means is not judged here.
//!
//! Two things follow KubeVirt 1.9 rather than the letter of its schema. A missing text or number is not a fault even where
//! the schema requires it, because KubeVirt decodes it as empty before it looks, and its rules judge that. Unknown
//! fields are tolerated below `status`, which newer controllers may have written.
//!
//! ```text
//! Rust types ─ schemars ─ structural (no references, enums of Kubernetes) ─ Shape ─ walk(JSON) ─ faults
//! ```

mod core_enums;
mod kinds;
mod message;
mod shape;
mod structural;
mod walk;

use serde_json::Value;

use crate::fault::Fault;
use crate::kind::{Kind, kind_of};

/// What a structural check found.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Everything that is wrong, in the order of the manifest's fields.
    pub faults: Vec<Fault>,
    /// The object without the parts that are wrong. It decodes as the type of its kind.
    pub rest: Value,
}

/// Everything that is structurally wrong with an object, by the kind that it names.
///
/// Objects of unknown kinds have no faults.
pub fn check(object: &Value) -> Vec<Fault> {
    inspect(object.clone()).faults
}

/// Everything that is structurally wrong with an object; takes the wrong parts out.
pub fn inspect(object: Value) -> Inspection {
    let kind = kind_of(&object);
    inspect_as(kind, object)
}

/// The same as [`inspect`] for an object that is known to be of a kind, whatever it names.
pub fn inspect_as(kind: Kind, object: Value) -> Inspection {
    let mut rest = object;
    let faults = kinds::shape_of(kind).map_or_else(Vec::new, |shape| walk::faults(shape, &mut rest));
    Inspection { faults, rest }
}

/// The structural schema of a kind (OpenAPI v3 as CustomResourceDefinitions take it: no references, no nulls), or nothing
/// for [`Kind::Other`]. Made again at each call.
pub fn json_schema(kind: Kind) -> Option<Value> {
    kinds::structural_of(kind, structural::Descriptions::Kept)
}

#[cfg(test)]
mod tests;
