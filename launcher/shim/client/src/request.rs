//! The launch request of a machine on a bare host: what a command has decided and a shim carries out. It is a file of the
//! machine's directory, so that it can be read as long as the machine is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use garboard_api::RunStrategy;
use garboard_common::private;
use garboard_machine::facts::HostFacts;
use garboard_plan::{PlanOptions, Resources, StoredMachine};
use garboard_protocol::paths::Layout;
use serde::{Deserialize, Serialize};

use crate::ShimError;
use crate::places::MachineId;
use crate::volume_source::HostVolumeSource;

/// Its name.
const REQUEST: &str = "launch-request.json";
/// Its name in builds before the shim was a program of its own. A machine that one of them started has this one.
const EARLIER_REQUEST: &str = "order.json";

/// Everything the shim of one machine needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchRequest {
    /// Namespace of the machine.
    pub namespace: String,
    /// Name of the machine.
    pub name: String,
    /// UID of the machine.
    pub uid: String,
    /// The machine's directory.
    pub machine: PathBuf,
    /// The user and group that the machine's processes run as; without one they are the shim's user.
    #[serde(default)]
    pub machine_uid: Option<u32>,
    /// Where this run's record goes when it is over.
    pub record: PathBuf,
    /// Directory for what is lost at the stop, on a disk rather than in memory.
    pub scratch: PathBuf,
    /// The VirtualMachineInstance, defaulted.
    pub vmi: serde_json::Value,
    /// What the host offers.
    pub facts: HostFacts,
    /// The planner's other input.
    pub options: PlanOptions,
    /// cgroup limits, as the same plan decided them.
    pub resources: Resources,
    /// Where each volume is.
    pub volumes: BTreeMap<String, HostVolumeSource>,
    /// Files of `kernelBoot` by their absolute path in its image.
    pub kernel_files: BTreeMap<String, PathBuf>,
    /// Where UEFI variables that must survive are kept.
    pub firmware_vars: Option<FirmwareVars>,
    /// How long a guest may take to power down, seconds.
    pub grace_seconds: u64,
    /// When the machine is started again after this run.
    pub strategy: RunStrategy,
    /// What the run before decided, from the second run on: the guest finds the same machine again.
    pub stored: Option<StoredMachine>,
    /// Where that is kept for another `run`, if it is.
    pub kept: Option<PathBuf>,
}

/// The name of a record: when its run began. Names sort as the runs do.
#[must_use]
pub fn record_name() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

impl LaunchRequest {
    /// The machine's namespace and name.
    #[must_use]
    pub fn id(&self) -> MachineId {
        MachineId { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The directories of the supervisor and PID 1.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(&self.machine)
    }

    /// The directory of projected volumes.
    #[must_use]
    pub fn volumes_directory(&self) -> PathBuf {
        self.machine.join("volumes")
    }

    /// Writes it into the machine's directory, in the place of the one before.
    ///
    /// # Errors
    /// [`ShimError`]: the file system's error.
    pub fn write(&self) -> Result<(), ShimError> {
        let path = self.machine.join(REQUEST);
        let bytes = serde_json::to_vec_pretty(self);
        let bytes = bytes.map_err(|source| ShimError::Document { path: path.clone(), source })?;
        private::replace(&self.machine, REQUEST, &bytes).map_err(ShimError::file("write", &path))
    }

    /// Reads the one of a machine, also one that an earlier build wrote.
    ///
    /// # Errors
    /// [`ShimError`] if there is none, or it cannot be understood.
    pub fn read(machine: &Path) -> Result<Self, ShimError> {
        let path = path(machine).unwrap_or_else(|| machine.join(REQUEST));
        let bytes = std::fs::read(&path).map_err(ShimError::file("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|source| ShimError::Document { path, source })
    }
}

/// The file of a machine's launch request, if it has one.
#[must_use]
pub fn path(machine: &Path) -> Option<PathBuf> {
    [REQUEST, EARLIER_REQUEST].map(|name| machine.join(name)).into_iter().find(|path| path.exists())
}

/// UEFI variables that survive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareVars {
    /// Where they are kept.
    pub path: PathBuf,
    /// What they start from.
    pub template: PathBuf,
}
