//! The supervisor's input, read from the directory of the machine's order.

use std::path::{Path, PathBuf};

use garboard_api::metadata::annotation;
use garboard_api::v1::VirtualMachineInstance;
use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, PlanOptions, StoredMachine};
use garboard_protocol::agent::VolumeTable;
use garboard_protocol::paths;
use garboard_protocol::text::DecoderError;
use serde::de::DeserializeOwned;

/// Why it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// A file is missing or unreadable.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} is not what this version of the supervisor expects")]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// What serde found.
        #[source]
        source: DecoderError,
    },
}

/// The supervisor's input.
pub(crate) struct Order {
    /// The machine, defaulted and validated.
    pub(crate) vmi: VirtualMachineInstance,
    /// What the host offers.
    pub(crate) facts: HostFacts,
    /// The planner's other input.
    pub(crate) options: PlanOptions,
    /// Where volumes are.
    pub(crate) volumes: VolumeTable,
    /// What an earlier start decided and this one keeps.
    pub(crate) stored: Option<StoredMachine>,
}

impl Order {
    /// Reads everything.
    pub(crate) fn read(directory: &Path) -> Result<Self, OrderError> {
        Ok(Self {
            vmi: read(directory, paths::VMI)?,
            facts: read(directory, paths::FACTS)?,
            options: read(directory, paths::OPTIONS)?,
            volumes: read(directory, paths::VOLUMES)?,
            stored: if directory.join(paths::STORED).exists() { Some(read(directory, paths::STORED)?) } else { None },
        })
    }

    /// Whether the start is to fail: a test of what follows upon failed starts asks for that, by an annotation with any value.
    pub(crate) fn is_to_fail(&self) -> bool {
        let annotations = self.vmi.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(annotation::FAIL_FAST))
    }
}

/// Reads the plan an earlier supervisor executed.
pub(crate) fn read_plan(directory: &Path) -> Result<LaunchPlan, OrderError> {
    read(directory, paths::PLAN)
}

fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<T, OrderError> {
    let path = directory.join(name);
    let bytes = std::fs::read(&path).map_err(|source| OrderError::Read { path: path.clone(), source })?;
    serde_json::from_slice(&bytes).map_err(|error| OrderError::Undecodable { path, source: error.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_to_fail_where_the_annotation_is_there_whatever_its_value() {
        let mut order = Order {
            vmi: VirtualMachineInstance::default(),
            facts: HostFacts::reference(),
            options: PlanOptions::default(),
            volumes: VolumeTable::default(),
            stored: None,
        };
        assert!(!order.is_to_fail());
        for value in ["", "false"] {
            order.vmi.metadata.annotations = Some([(annotation::FAIL_FAST.to_owned(), value.to_owned())].into());
            assert!(order.is_to_fail(), "{value:?}");
        }
    }
}
