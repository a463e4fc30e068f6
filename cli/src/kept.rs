//! The machine that a VirtualMachine keeps from one run to the next, as a cluster keeps it in `status.storedMachine`:
//! machine type, places on PCI, MAC addresses. An instance is one run and keeps nothing.

use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_machine::facts::HostFacts;
use garboard_plan::{LaunchPlan, PlanOptions, StoredMachine, plan};

use crate::exit::{BAD_INPUT, complaint};
use crate::places::Places;
use crate::subject::Subject;

/// What helps when the kept machine is of no use.
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
    /// What `subject` keeps. With `forget` it is as if there had been no run.
    pub(crate) fn find(places: &Places, subject: &Subject, forget: bool) -> anyhow::Result<Self> {
        let file = subject.is_kept.then(|| places.kept_machine(&subject.id));
        let machine = file.as_deref().filter(|_| !forget).map(read).transpose()?.flatten();
        Ok(Self { file, machine })
    }

    /// Plans the next run. A refusal that is due to what is kept says so.
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
                complaint(BAD_INPUT, text)
            }
            Some(_) | None => complaint(BAD_INPUT, error.to_string()),
        })
    }
}

/// What is kept in a file, if it is there.
pub(crate) fn read(file: &Path) -> anyhow::Result<Option<StoredMachine>> {
    let useless = |why: &dyn Display| {
        let text = format!("{}, the machine of the last run, cannot be read: {why}; {WAY_OUT}", file.display());
        complaint(BAD_INPUT, text)
    };
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| useless(&error)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(useless(&error)),
    }
}

/// Keeps a machine, whole or not at all, also when the host loses its power.
pub(crate) fn write(file: &Path, machine: &StoredMachine) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(machine)?;
    replace(file, &text).with_context(|| format!("keep the machine in {}", file.display()))
}

fn replace(file: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let unfinished = file.with_extension("json.new");
    let mut out = File::create(&unfinished)?;
    out.write_all(text)?;
    out.sync_all()?;
    std::fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> StoredMachine {
        let machine = serde_json::json!({"version": 2, "machineType": "pc-q35-7.2", "cpu": "max",
            "pci": {"ports": [], "devices": {}}, "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {}});
        serde_json::from_value(machine).unwrap()
    }

    #[test]
    fn what_is_kept_is_found_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("machines/default/vm/stored.json");
        assert_eq!(read(&file).unwrap(), None);
        write(&file, &machine()).unwrap();
        assert_eq!(read(&file).unwrap(), Some(machine()));
        let other = StoredMachine { machine_type: "pc-q35-10.0".to_owned(), ..machine() };
        write(&file, &other).unwrap();
        assert_eq!(read(&file).unwrap(), Some(other));
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stored.json");
        for bad in ["", "{", "{\"version\": 1}", "[]"] {
            std::fs::write(&file, bad).unwrap();
            let said = read(&file).unwrap_err().to_string();
            assert!(said.contains(&file.display().to_string()) && said.contains("--forget-machine"), "{bad}: {said}");
        }
    }
}
