//! Where the volumes of a machine on a bare host come from, as the command has resolved them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum HostVolumeSource {
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
    /// A file or block device only the shim may open: the stand-in of a claim.
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

impl HostVolumeSource {
    /// The path that the machine's own user has to reach.
    #[must_use]
    pub fn read_by_path(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory { path } | Self::File { path } => Some(path),
            Self::Opened { .. } | Self::HostDisk { .. } | Self::Projected { .. } | Self::Made => None,
        }
    }
}
