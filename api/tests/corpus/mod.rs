//! Reading the recorded answers of KubeVirt.

use std::path::PathBuf;

use serde_json::Value;

/// Where the recorded answers are.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from("../tests/conformance/corpus")
}

/// The text of one file.
pub(crate) fn text(name: &str) -> String {
    let path = directory().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The version in which the published schema has a kind: the one that is stored.
#[allow(dead_code, reason = "not every test reads it")]
pub(crate) fn version_of(kind: &str) -> &'static str {
    let kind = garboard_api::crd::KINDS.into_iter().find(|each| each.name() == kind).unwrap();
    kind.group().unwrap().stored
}

/// The lines of one file of JSON lines.
#[allow(dead_code, reason = "not every test reads them")]
pub(crate) fn lines(name: &str) -> Vec<Value> {
    text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
