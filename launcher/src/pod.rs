//! What a keeper does for its supervisor on a bare host, done by the supervisor's own container in a pod: the shared
//! directory is filled from the pod's order, from what is mounted, and from what the node agent says of its node.
//!
//! ```text
//!   annotation (downward API) ─┐                      ┌─► vmi.json options.json volumes.json stored.json
//!   garboard-facts (QEMU here) ┼─► furnish ───────────┼─► facts.json
//!   node.json (node agent)    ─┘                      └─► agent.sock ─► the agent's socket
//! ```
//!
//! Once: a supervisor that is started again finds everything as the first one left it. QEMU is probed by a program of its
//! own, whose memory is gone when it has answered.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use garboard_machine::facts::HostFacts;
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::pod::{self, DiskImage, NodeFacts, PodOrder};
use garboard_protocol::{PROTOCOL_VERSION, paths};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, OpenError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::plan::{Emulation, PlanOptions};
use crate::supervisor::SCRATCH_VOLUME;
use crate::supervisor::journal;

/// Why a pod cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A file that the pod or the agent should have brought.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{path} is not what this version of the launcher expects")]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// What serde found.
        #[source]
        source: serde_json::Error,
    },
    /// The controller is of another time.
    #[error(
        "the order is of protocol version {theirs}, this launcher speaks {PROTOCOL_VERSION}; use images of one release"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The shared directory cannot be filled.
    #[error("could not write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: std::io::Error,
    },
    /// The image of a volume cannot be made.
    #[error(transparent)]
    Image(#[from] OpenError),
    /// QEMU of this image could not be probed.
    #[error("garboard-facts failed: {message}")]
    Facts {
        /// Its complaint.
        message: String,
    },
}

/// Where things are in a pod. A value, so that a test can have a pod in a directory.
#[derive(Clone, Debug)]
pub struct PodPlaces {
    /// The downward API's file.
    pub order: PathBuf,
    /// The shared directory; its parent exists.
    pub shared: PathBuf,
    /// Overlays and empty disks.
    pub scratch: PathBuf,
    /// The node agent's directory.
    pub agent: PathBuf,
    /// The program that probes QEMU and prints [`HostFacts`].
    pub facts: PathBuf,
    /// What the kernel says of the pod's link to the cluster's network: its MAC address.
    pub link_mac: PathBuf,
}

impl PodPlaces {
    /// As the controller makes them ([`garboard_protocol::pod`]).
    #[must_use]
    pub fn real() -> Self {
        Self {
            order: Path::new(pod::ORDER_DIRECTORY).join(pod::ORDER_FILE),
            shared: pod::SHARED_DIRECTORY.into(),
            scratch: pod::SCRATCH_DIRECTORY.into(),
            agent: pod::AGENT_DIRECTORY.into(),
            facts: "/usr/bin/garboard-facts".into(),
            link_mac: "/sys/class/net/eth0/address".into(),
        }
    }
}

/// Fills the shared directory, unless that was done before.
///
/// # Errors
/// [`PodError`] names the file that is wrong or missing.
pub fn furnish(places: &PodPlaces) -> Result<(), PodError> {
    // Written last: without it an earlier attempt was cut short.
    if places.shared.join(paths::VMI).exists() {
        return Ok(());
    }
    let order: PodOrder = read(&places.order)?;
    if order.version != PROTOCOL_VERSION {
        return Err(PodError::Version { theirs: order.version });
    }
    let node: NodeFacts = read(&places.agent.join(pod::NODE_FACTS))?;
    make_directory(&places.shared)?;
    make_images(&order.images, &order.volumes)?;
    let emulation = if order.emulation { Emulation::Allow } else { Emulation::Forbid };
    write(places, paths::FACTS, &facts(places, &node)?)?;
    // Before the node agent has changed it for that of a guest. A pod without such a link has no bridge either.
    let link_mac = std::fs::read_to_string(&places.link_mac).ok().map(|text| text.trim().to_owned());
    write(places, paths::OPTIONS, &PlanOptions { emulation, link_mac, ..PlanOptions::default() })?;
    write(places, paths::VOLUMES, &with_scratch(order.volumes, &places.scratch))?;
    if let Some(stored) = &order.stored {
        write(places, paths::STORED, stored)?;
    }
    link_agent(places)?;
    write(places, paths::VMI, &order.vmi)
}

/// QEMU and firmware are this image's, devices are the node's.
fn facts(places: &PodPlaces, node: &NodeFacts) -> Result<HostFacts, PodError> {
    let complaint = |message: String| PodError::Facts { message };
    let told = Command::new(&places.facts)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| complaint(format!("{} does not start: {error}", places.facts.display())))?;
    if !told.status.success() {
        return Err(complaint(format!("it ended with {}", told.status)));
    }
    let mut facts: HostFacts = serde_json::from_slice(&told.stdout)
        .map_err(|source| PodError::Undecodable { path: places.facts.clone(), source })?;
    facts.network.tap = node.tap;
    facts.network.vhost_net = node.vhost_net;
    Ok(facts)
}

fn with_scratch(mut table: VolumeTable, scratch: &Path) -> VolumeTable {
    let place = VolumePlace::Directory { path: scratch.display().to_string() };
    table.places.insert(SCRATCH_VOLUME.to_owned(), place);
    table
}

fn make_directory(path: &Path) -> Result<(), PodError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(PodError::Write { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// A volume that is used for the first time gets its image; what is there stays as it is.
fn make_images(images: &[DiskImage], volumes: &VolumeTable) -> Result<(), PodError> {
    for image in images {
        let Some(VolumePlace::Directory { path }) = volumes.places.get(&image.volume) else { continue };
        let name = BeneathPath::parse(&image.file).map_err(|error| PodError::Write {
            path: Path::new(path).join(&image.file),
            source: std::io::Error::other(error),
        })?;
        Dir::open(Path::new(path))?.create_sized(&name, image.bytes, 0o660)?;
    }
    Ok(())
}

fn link_agent(places: &PodPlaces) -> Result<(), PodError> {
    let link = places.shared.join(paths::AGENT_SOCKET);
    match std::os::unix::fs::symlink(places.agent.join(pod::AGENT_SOCKET), &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(PodError::Write { path: link, source: error }),
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, PodError> {
    let bytes = std::fs::read(path).map_err(|source| PodError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes).map_err(|source| PodError::Undecodable { path: path.to_owned(), source })
}

fn write<T: Serialize>(places: &PodPlaces, name: &str, value: &T) -> Result<(), PodError> {
    let bytes = serde_json::to_vec(value).map_err(std::io::Error::from);
    let written = bytes.and_then(|bytes| journal::replace(&places.shared, name, &bytes));
    written.map_err(|source| PodError::Write { path: places.shared.join(name), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A pod in a directory; the facts are those of the reference host.
    fn pod(directory: &Path, order: &PodOrder) -> PodPlaces {
        let places = PodPlaces {
            order: directory.join("order.json"),
            shared: directory.join("shared"),
            scratch: directory.join("scratch"),
            agent: directory.join("agent"),
            facts: directory.join("facts"),
            link_mac: directory.join("address"),
        };
        std::fs::write(&places.link_mac, "02:0a:f4:01:02:03\n").unwrap();
        std::fs::create_dir(&places.agent).unwrap();
        let node = NodeFacts { version: PROTOCOL_VERSION, tap: true, vhost_net: false };
        std::fs::write(places.agent.join(pod::NODE_FACTS), serde_json::to_vec(&node).unwrap()).unwrap();
        std::fs::write(&places.order, serde_json::to_vec(order).unwrap()).unwrap();
        let known = directory.join("facts.json");
        std::fs::write(&known, serde_json::to_vec(&HostFacts::reference()).unwrap()).unwrap();
        std::fs::write(&places.facts, format!("#!/bin/sh\nexec cat {}\n", known.display())).unwrap();
        std::fs::set_permissions(&places.facts, std::fs::Permissions::from_mode(0o755)).unwrap();
        places
    }

    fn order(directory: &Path) -> PodOrder {
        let claim = VolumePlace::Directory { path: directory.display().to_string() };
        PodOrder {
            version: PROTOCOL_VERSION,
            vmi: serde_json::json!({"metadata": {"name": "vm"}}),
            volumes: VolumeTable { places: [("data".to_owned(), claim)].into() },
            images: vec![DiskImage { volume: "data".into(), file: "disk.img".into(), bytes: 4096 }],
            emulation: true,
            stored: None,
        }
    }

    #[test]
    fn a_pod_is_furnished_once() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &order(directory.path()));
        furnish(&places).unwrap();
        assert_eq!(std::fs::metadata(directory.path().join("disk.img")).unwrap().len(), 4096);
        let facts: HostFacts = read(&places.shared.join(paths::FACTS)).unwrap();
        assert!(facts.network.tap && !facts.network.vhost_net);
        let options: PlanOptions = read(&places.shared.join(paths::OPTIONS)).unwrap();
        assert_eq!(options.link_mac.as_deref(), Some("02:0a:f4:01:02:03"));
        std::fs::remove_file(&places.order).unwrap();
        furnish(&places).unwrap();
    }

    #[test]
    fn an_image_that_cannot_have_its_size_is_not_left_empty() {
        let directory = tempfile::tempdir().unwrap();
        let mut order = order(directory.path());
        order.images[0].bytes = u64::MAX;
        let error = furnish(&pod(directory.path(), &order)).unwrap_err();
        assert!(matches!(error, PodError::Image(_)) && error.to_string().contains("disk.img"), "{error}");
        assert!(!directory.path().join("disk.img").exists());
    }

    #[test]
    fn an_order_of_another_time_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &PodOrder { version: 99, ..order(directory.path()) });
        assert!(matches!(furnish(&places), Err(PodError::Version { theirs: 99 })));
    }

    #[test]
    fn a_missing_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &order(directory.path()));
        std::fs::remove_file(places.agent.join(pod::NODE_FACTS)).unwrap();
        let error = furnish(&places).unwrap_err();
        assert!(error.to_string().contains("node.json"), "{error}");
    }
}
