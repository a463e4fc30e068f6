//! Objects of an older version of `kubevirt.io`, as those of the stored one and back. Pure.
//!
//! ```text
//!   v1alpha2 ── volumeName, registryDisk ──► v1 (stored) ◄── the same fields ── v1alpha3
//! ```
//!
//! What v1 has no place for, and an object of v1alpha2 has to read back, is in an annotation ([`WRITTEN_AS_V1ALPHA2`]) that is seen in v1
//! alone. Nothing here judges: a field that is misspelt stays as it is, and admission names it.

#[cfg(test)]
mod tests;
mod v1alpha2;

use serde_json::Value;

use crate::crd::{FIRST_VERSION, GROUP, OLD_VERSION, STORED_VERSION};

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
}

/// A version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// v1, and v1alpha3, which has the same fields.
    Same,
    /// v1alpha2
    V1Alpha2,
}

impl Version {
    fn of(text: &str) -> Result<Self, ConversionError> {
        match text.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) {
            Some(STORED_VERSION | OLD_VERSION) => Ok(Self::Same),
            Some(FIRST_VERSION) => Ok(Self::V1Alpha2),
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
/// [`ConversionError`]: one of the two is not served.
pub fn convert(object: &Value, to: &str) -> Result<Value, ConversionError> {
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let (from, target) = (Version::of(from)?, Version::of(to)?);
    let mut object = object.clone();
    match (from, target) {
        (Version::V1Alpha2, Version::Same) => v1alpha2::to_stored(&mut object),
        (Version::Same, Version::V1Alpha2) => v1alpha2::from_stored(&mut object),
        (Version::Same, Version::Same) | (Version::V1Alpha2, Version::V1Alpha2) => {}
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), to.into());
    }
    Ok(object)
}

/// A manifest of an older version as one of the stored version; every other one as it is.
#[must_use]
pub fn to_stored(manifest: Value) -> Value {
    let kind = manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_first = manifest.get("apiVersion").and_then(Value::as_str) == Some(format!("{GROUP}/{FIRST_VERSION}").as_str());
    if is_first && matches!(kind, "VirtualMachine" | "VirtualMachineInstance") {
        let stored = convert(&manifest, &format!("{GROUP}/{STORED_VERSION}"));
        return stored.unwrap_or(manifest);
    }
    manifest
}
