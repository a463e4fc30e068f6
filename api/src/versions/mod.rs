//! Objects of an older version of `kubevirt.io`, as those of the stored one and back. Pure.
//!
//! ```text
//!   v1alpha2 ── volumeName, registryDisk ──► v1 (stored) ◄── the same fields ── v1alpha3
//!   v1alpha1 ── libvirt's domain, runs now ──►
//! ```
//!
//! What v1 has no place for, and an object of v1alpha2 has to read back, is in an annotation ([`WRITTEN_AS_V1ALPHA2`]) that is seen in v1
//! alone. Nothing here judges: a field that is misspelt stays as it is, and admission names it.

#[cfg(test)]
mod tests;
mod v1alpha1;
mod v1alpha2;

pub use v1alpha1::{STORED_SPEC, WRITTEN_AS_V1ALPHA1};

use serde_json::Value;

use crate::crd::{FIRST_VERSION, GROUP, LIBVIRT_VERSION, OLD_VERSION, STORED_VERSION};

/// On an object that was written in v1alpha2: names of its disks that differ from those of their volumes, and volumes that were called
/// `registryDisk`.
pub const WRITTEN_AS_V1ALPHA2: &str = "garboard.dev/written-as-v1alpha2";

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// No version that is served.
    #[error("apiVersion: `{version}` is not a version of {GROUP} that is served; write `{GROUP}/{STORED_VERSION}`")]
    Version {
        /// The version, bounded.
        version: String,
    },
    /// A field that the stored version has no place for, or a value that is wrong.
    #[error("{path}: {message}; {instead}")]
    Field {
        /// Its path.
        path: String,
        /// What is wrong with it, bounded and escaped.
        message: String,
        /// What to write.
        instead: String,
    },
}

/// A version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// v1, and v1alpha3, which has the same fields.
    Same,
    /// v1alpha2
    V1Alpha2,
    /// v1alpha1, of machines alone.
    V1Alpha1,
}

impl Version {
    fn of(text: &str, kind: &str) -> Result<Self, ConversionError> {
        match text.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) {
            Some(STORED_VERSION | OLD_VERSION) => Ok(Self::Same),
            Some(FIRST_VERSION) => Ok(Self::V1Alpha2),
            Some(LIBVIRT_VERSION) if kind == "VirtualMachine" => Ok(Self::V1Alpha1),
            Some(_) | None => {
                let version = text.chars().take(64).flat_map(char::escape_debug).collect();
                Err(ConversionError::Version { version })
            }
        }
    }
}

/// The object in another version, `GROUP/VERSION`.
///
/// # Errors
/// [`ConversionError`]: one of the two is not served, or the stored version has no place for a field.
pub fn convert(object: &Value, to: &str) -> Result<Value, ConversionError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (from, target) = (Version::of(text("apiVersion"), text("kind"))?, Version::of(to, text("kind"))?);
    let mut object = object.clone();
    if from != target {
        match from {
            Version::V1Alpha2 => v1alpha2::to_stored(&mut object),
            Version::V1Alpha1 => v1alpha1::to_stored(&mut object)?,
            Version::Same => {}
        }
        match target {
            Version::V1Alpha2 => v1alpha2::from_stored(&mut object),
            Version::V1Alpha1 => v1alpha1::from_stored(&mut object),
            Version::Same => {}
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), to.into());
    }
    Ok(object)
}

/// A manifest of an older version as one of the stored version; every other one as it is.
///
/// # Errors
/// [`ConversionError`]: the stored version has no place for a field.
pub fn to_stored(manifest: Value) -> Result<Value, ConversionError> {
    let text = |field: &str| manifest.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion").strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    let is_older = match version {
        Some(FIRST_VERSION) => matches!(text("kind"), "VirtualMachine" | "VirtualMachineInstance"),
        Some(LIBVIRT_VERSION) => text("kind") == "VirtualMachine",
        Some(_) | None => false,
    };
    if is_older { convert(&manifest, &format!("{GROUP}/{STORED_VERSION}")) } else { Ok(manifest) }
}
