//! What `run` has decided and the keeper does: written to a file, so that what was decided can be read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use garboard_machine::facts::HostFacts;
use garboard_plan::{PlanOptions, Resources, StoredMachine};
use garboard_protocol::paths::Layout;
use serde::{Deserialize, Serialize};

use super::decide::RunStrategy;
use crate::places::MachineId;

/// Everything the keeper of one machine needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    /// Namespace of the machine.
    pub(crate) namespace: String,
    /// Name of the machine.
    pub(crate) name: String,
    /// UID of the machine.
    pub(crate) uid: String,
    /// The machine's directory.
    pub(crate) machine: PathBuf,
    /// The user and group that the machine's processes run as; without one they are the keeper's user.
    #[serde(default)]
    pub(crate) machine_uid: Option<u32>,
    /// Where this run's record goes when it is over.
    pub(crate) record: PathBuf,
    /// Directory for what is lost at the stop, on a disk rather than in memory.
    pub(crate) scratch: PathBuf,
    /// The VirtualMachineInstance, defaulted.
    pub(crate) vmi: serde_json::Value,
    /// What the host offers.
    pub(crate) facts: HostFacts,
    /// The planner's other input.
    pub(crate) options: PlanOptions,
    /// cgroup limits, as the same plan decided them.
    pub(crate) resources: Resources,
    /// Where each volume is.
    pub(crate) volumes: BTreeMap<String, VolumeOrder>,
    /// Files of `kernelBoot` by their absolute path in its image.
    pub(crate) kernel_files: BTreeMap<String, PathBuf>,
    /// Where UEFI variables that must survive are kept.
    pub(crate) firmware_vars: Option<FirmwareVars>,
    /// How long a guest may take to power down, seconds.
    pub(crate) grace_seconds: u64,
    /// When the machine is started again after this run.
    pub(crate) strategy: RunStrategy,
    /// What the run before decided, from the second run on: the guest finds the same machine again.
    pub(crate) stored: Option<StoredMachine>,
    /// Where that is kept for another `run`, if it is.
    pub(crate) kept: Option<PathBuf>,
}

/// The name of a record: when its run began. Names sort as the runs do.
pub(crate) fn record_name() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

impl Order {
    /// Whose order it is.
    pub(crate) fn id(&self) -> MachineId {
        MachineId { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The directories of the supervisor and PID 1.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.machine)
    }

    /// The directory of projected volumes.
    pub(crate) fn volumes_directory(&self) -> PathBuf {
        self.machine.join("volumes")
    }
}

/// UEFI variables that survive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FirmwareVars {
    /// Where they are kept.
    pub(crate) path: PathBuf,
    /// What they start from.
    pub(crate) template: PathBuf,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(crate) enum VolumeOrder {
    /// A directory the supervisor may read: an unpacked image.
    Directory {
        /// Its path.
        path: PathBuf,
    },
    /// A file the supervisor may read: a disk image given instead of a container image.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// A file or block device only the keeper may open: the stand-in of a claim.
    Opened {
        /// Its path.
        path: PathBuf,
        /// Whether the guest may write.
        writable: bool,
    },
    /// A file of the host, made by its plan if it is missing.
    HostDisk {
        /// Its path.
        path: PathBuf,
    },
    /// Files to project, as the kubelet does for ConfigMaps and Secrets.
    Projected {
        /// Content by relative path, base64.
        files: BTreeMap<String, String>,
    },
    /// Nothing to bring: the supervisor makes it (emptyDisk, inline cloud-init).
    Made,
}
