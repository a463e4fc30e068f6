//! The machine that a VirtualMachine keeps from one run to the next, as a cluster keeps it in `status.storedMachine`:
//! machine type, places on PCI, MAC addresses. An instance is one run and keeps nothing.

use std::path::{Path, PathBuf};

use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, PlanOptions, StoredMachine, plan};
use garboard_shim_client::places::Places;
use garboard_shim_client::stored;

use crate::exit::{BAD_INPUT, exit_error};
use crate::subject::Subject;

/// The advice when the kept machine cannot be used.
const WAY_OUT: &str = "leave it out with --forget-machine";

/// Where a machine is kept, and what was found there.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The file; `None` if the machine is not to be kept.
    pub(crate) file: Option<PathBuf>,
    /// What an earlier run decided.
    pub(crate) machine: Option<StoredMachine>,
}

impl Kept {
    /// What `subject` keeps: of its last run here, else of a cluster whose manifest it is. With `forget` it is as if there had been
    /// no run.
    pub(crate) fn find(places: &Places, subject: &Subject, forget: bool) -> anyhow::Result<Self> {
        let file = subject.is_kept.then(|| places.kept_machine(&subject.id));
        let machine = file.as_deref().filter(|_| !forget).map(read).transpose()?.flatten();
        let machine = machine.or_else(|| subject.annotated.clone().filter(|_| !forget));
        Ok(Self { file, machine })
    }

    /// Plans the next run. A refusal that is due to the stored machine names its file.
    pub(crate) fn plan(
        &self,
        subject: &Subject,
        facts: &HostFacts,
        options: &PlanOptions,
    ) -> anyhow::Result<LaunchPlan> {
        let with = |machine: Option<&StoredMachine>| plan(&subject.vmi, facts, options, machine);
        with(self.machine.as_ref()).map_err(|error| match &self.file {
            Some(file) if self.machine.is_some() && with(None).is_ok() => {
                let text = format!("{error}; {} has the machine of the last run: {WAY_OUT}", file.display());
                exit_error(BAD_INPUT, text)
            }
            Some(_) | None => exit_error(BAD_INPUT, error.to_string()),
        })
    }
}

/// What is kept in a file, if it is there.
pub(crate) fn read(file: &Path) -> anyhow::Result<Option<StoredMachine>> {
    stored::read(file).map_err(|error| {
        let text = format!("{}, the machine of the last run, cannot be read: {error}; {WAY_OUT}", file.display());
        exit_error(BAD_INPUT, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stored.json");
        for bad in ["", "{", "{\"version\": 1}", "[]"] {
            std::fs::write(&file, bad).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(
                error.contains(&file.display().to_string()) && error.contains("--forget-machine"),
                "{bad}: {error}"
            );
        }
    }
}
