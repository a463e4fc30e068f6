//! What a shim does for its supervisor on a bare host, done by the supervisor's own container in a pod: the machine's
//! directory is filled from the pod's order, from what is mounted, and from what the node agent reports of its node.
//!
//! ```text
//!   annotation (downward API) ─┐                      ┌─► vmi.json options.json volumes.json stored.json
//!   garboard-facts (QEMU here) ┼─► populate ──────────┼─► facts.json   (KVM and network as in node.json)
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

use garboard_machine::facts::{HostFacts, KvmState};
use garboard_machine::features::Accelerator;
use garboard_plan::{AcceleratorChoice, InterfaceFacts, PlanOptions, Shares};
use garboard_protocol::agent::{UPLINK, VolumePlace, VolumeTable};
use garboard_protocol::paths::Layout;
use garboard_protocol::pod::{self, DiskImage, NodeFacts, PodOrder};
use garboard_protocol::text::DecoderError;
use garboard_protocol::volumes::SCRATCH_VOLUME;
use garboard_protocol::{PROTOCOL_VERSION, common_version, paths};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, OpenError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::supervisor::journal;

/// Why a pod cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A file that the pod or the agent should have brought.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The file system's error.
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
        source: DecoderError,
    },
    /// The controller is of another version.
    #[error(
        "the order has protocol version {theirs}, this launcher supports {PROTOCOL_VERSION}; use images of one release"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The machine's directory cannot be filled.
    #[error("could not write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: std::io::Error,
    },
    /// The image of a volume cannot be made.
    #[error(transparent)]
    Image(#[from] OpenError),
    /// QEMU of this image could not be probed.
    #[error("garboard-facts failed: {message}")]
    Facts {
        /// Its message.
        message: String,
    },
}

/// Where things are in a pod. A value, so that a test can have a pod in a directory.
#[derive(Clone, Debug)]
pub struct PodPlaces {
    /// The downward API's file.
    pub order: PathBuf,
    /// What the machine's container may keep on the node's disk; another file of the downward API.
    pub storage_limit: PathBuf,
    /// The machine's directory, which exists.
    pub layout: Layout,
    /// Overlays and empty disks.
    pub scratch: PathBuf,
    /// The node agent's directory.
    pub agent: PathBuf,
    /// The program that probes QEMU and prints [`HostFacts`].
    pub facts: PathBuf,
    /// What the kernel reports of the pod's link to the cluster's network: `address` and `mtu`.
    pub link: PathBuf,
}

impl PodPlaces {
    /// As the controller makes them ([`garboard_protocol::pod`]).
    #[must_use]
    pub fn real() -> Self {
        Self {
            order: Path::new(pod::ORDER_DIRECTORY).join(pod::ORDER_FILE),
            storage_limit: Path::new(pod::ORDER_DIRECTORY).join(pod::STORAGE_LIMIT_FILE),
            layout: Layout::new(pod::RUN_DIRECTORY),
            scratch: pod::SCRATCH_DIRECTORY.into(),
            agent: pod::AGENT_DIRECTORY.into(),
            facts: pod::FACTS_PROGRAM.into(),
            link: Path::new("/sys/class/net").join(UPLINK),
        }
    }
}

/// Fills the machine's directory, unless that was done before.
///
/// # Errors
/// [`PodError`] names the file that is wrong or missing.
pub fn populate(places: &PodPlaces) -> Result<(), PodError> {
    // Written last: without it an earlier attempt was cut short.
    if places.layout.order().join(paths::VMI).exists() {
        return Ok(());
    }
    let order: PodOrder = read(&places.order)?;
    if common_version(order.version, order.version).is_none() {
        return Err(PodError::Version { theirs: order.version });
    }
    let node: NodeFacts = read(&places.agent.join(pod::NODE_FACTS))?;
    make_directory(&places.layout.order())?;
    make_directory(&places.layout.supervisor())?;
    make_images(&order.images, &order.volumes)?;
    let accelerator = if order.emulation { AcceleratorChoice::Tcg } else { AcceleratorChoice::Kvm };
    write(places, paths::FACTS, &facts(places, node)?)?;
    // Before the node agent has changed it for that of a guest. A pod without such a link has no bridge either.
    let of_link = |name: &str| std::fs::read_to_string(places.link.join(name)).ok().map(|text| text.trim().to_owned());
    let mtu = of_link("mtu").and_then(|text| text.parse().ok());
    let interfaces = interfaces(&order.vmi).map(|name| (name, InterfaceFacts { mtu })).collect();
    let options = PlanOptions {
        accelerator,
        link_mac: of_link("address"),
        interfaces,
        scratch_limit_bytes: scratch_limit(&places.storage_limit),
        shares: shares(&order),
        ..PlanOptions::default()
    };
    write(places, paths::OPTIONS, &options)?;
    write(places, paths::VOLUMES, &with_scratch(order.volumes, &places.scratch))?;
    if let Some(stored) = &order.stored {
        write(places, paths::STORED, stored)?;
    }
    link_agent(places)?;
    write(places, paths::VMI, &order.vmi)
}

/// What the pod has beside the guest's memory, which the instance's status reports. The requests themselves are the pod's.
fn shares(order: &PodOrder) -> Shares {
    let usual = Shares::default();
    Shares { overhead_permille: order.overhead_permille.unwrap_or(usual.overhead_permille), ..usual }
}

/// What layers and empty disks may take, bytes. A pod of an older controller has no such file, and a node that does not report
/// how large its disk is has 0 in it.
fn scratch_limit(file: &Path) -> Option<u64> {
    let limit: u64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit > 0).then(|| limit.saturating_sub(pod::LOGS_BYTES))
}

/// Names of the instance's interfaces, all of which leave by the pod's one link.
fn interfaces(vmi: &serde_json::Value) -> impl Iterator<Item = String> {
    let listed = vmi["spec"]["domain"]["devices"]["interfaces"].as_array().into_iter().flatten();
    listed.filter_map(|interface| interface["name"].as_str().map(str::to_owned))
}

/// QEMU and firmware are this image's; devices are the node's, as its agent reports them: this container has none of them.
fn facts(places: &PodPlaces, node: NodeFacts) -> Result<HostFacts, PodError> {
    let facts_error = |message: String| PodError::Facts { message };
    let output = Command::new(&places.facts)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| facts_error(format!("{} does not start: {error}", places.facts.display())))?;
    if !output.status.success() {
        return Err(facts_error(format!("it ended with {}", output.status)));
    }
    let mut facts: HostFacts = serde_json::from_slice(&output.stdout)
        .map_err(|error| PodError::Undecodable { path: places.facts.clone(), source: error.into() })?;
    // Each of them: a new one does not compile until something is done with it.
    let NodeFacts { version: _, tap, vhost_net, kvm } = node;
    facts.network.tap = tap;
    facts.network.vhost_net = vhost_net;
    facts.kvm = KvmState::Native;
    if let Some(kvm) = kvm {
        facts.kvm = kvm.state;
        facts.kvm_max_vcpus = kvm.max_vcpus;
        // During an upgrade the agent's QEMU may be another: its features are not this one's.
        if kvm.qemu.as_ref() == Some(&facts.qemu.features.version) {
            facts.cpu.features.insert(Accelerator::Kvm, kvm.cpu_features);
        } else {
            facts.cpu.features.remove(&Accelerator::Kvm);
            tracing::warn!(
                asked = ?kvm.qemu,
                here = ?facts.qemu.features.version,
                "the node agent's CPU features are of another QEMU; required features are not checked, and none is pinned"
            );
        }
    }
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
    let link = places.layout.order().join(paths::AGENT_SOCKET);
    match std::os::unix::fs::symlink(places.agent.join(pod::AGENT_SOCKET), &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(PodError::Write { path: link, source: error }),
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, PodError> {
    let bytes = std::fs::read(path).map_err(|source| PodError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| PodError::Undecodable { path: path.to_owned(), source: error.into() })
}

fn write<T: Serialize>(places: &PodPlaces, name: &str, value: &T) -> Result<(), PodError> {
    let bytes = serde_json::to_vec(value).map_err(std::io::Error::from);
    let written = bytes.and_then(|bytes| journal::replace(&places.layout.order(), name, &bytes));
    written.map_err(|source| PodError::Write { path: places.layout.order().join(name), source })
}

#[cfg(test)]
mod tests {
    use garboard_machine::facts::KvmFacts;

    use super::*;

    /// Makes a program. Not with this process's own hands: while it is open for writing another test may fork, and as long as
    /// its child has not executed anything the program cannot be executed (`ETXTBSY`).
    fn program(path: &Path, script: &str) {
        let make = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
        assert!(Command::new("sh").args(["-c", make]).arg(path).arg(script).status().unwrap().success());
    }

    /// A pod in a directory; the facts are those of the reference host.
    fn pod(directory: &Path, order: &PodOrder) -> PodPlaces {
        let places = PodPlaces {
            order: directory.join("order.json"),
            storage_limit: directory.join("limit"),
            layout: Layout::new(directory),
            scratch: directory.join("scratch"),
            agent: directory.join("agent"),
            facts: directory.join("facts"),
            link: directory.join("link"),
        };
        std::fs::create_dir(&places.link).unwrap();
        std::fs::write(places.link.join("address"), "02:0a:f4:01:02:03\n").unwrap();
        std::fs::write(places.link.join("mtu"), "1450\n").unwrap();
        std::fs::create_dir(&places.agent).unwrap();
        let node = NodeFacts { version: PROTOCOL_VERSION, tap: true, vhost_net: false, kvm: None };
        std::fs::write(places.agent.join(pod::NODE_FACTS), serde_json::to_vec(&node).unwrap()).unwrap();
        std::fs::write(&places.order, serde_json::to_vec(order).unwrap()).unwrap();
        let known = directory.join("facts.json");
        std::fs::write(&known, serde_json::to_vec(&HostFacts::reference()).unwrap()).unwrap();
        program(&places.facts, &format!("#!/bin/sh\nexec cat {}\n", known.display()));
        places
    }

    fn order(directory: &Path) -> PodOrder {
        let claim = VolumePlace::Directory { path: directory.display().to_string() };
        PodOrder {
            version: PROTOCOL_VERSION,
            vmi: serde_json::json!({
                "metadata": {"name": "vm"},
                "spec": {"domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}},
            }),
            volumes: VolumeTable { places: [("data".to_owned(), claim)].into() },
            images: vec![DiskImage { volume: "data".into(), file: "disk.img".into(), bytes: 4096 }],
            emulation: true,
            overhead_permille: None,
            stored: None,
        }
    }

    #[test]
    fn a_pod_is_populated_once() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &order(directory.path()));
        populate(&places).unwrap();
        assert_eq!(std::fs::metadata(directory.path().join("disk.img")).unwrap().len(), 4096);
        let facts: HostFacts = read(&places.layout.order().join(paths::FACTS)).unwrap();
        assert!(facts.network.tap && !facts.network.vhost_net);
        let options: PlanOptions = read(&places.layout.order().join(paths::OPTIONS)).unwrap();
        assert_eq!(options.link_mac.as_deref(), Some("02:0a:f4:01:02:03"));
        assert_eq!(options.interfaces["default"].mtu, Some(1450));
        assert_eq!(options.scratch_limit_bytes, None, "as in a pod of an older controller");
        std::fs::remove_file(&places.order).unwrap();
        populate(&places).unwrap();
    }

    #[test]
    fn the_memory_beside_the_guests_is_multiplied_as_in_the_pods_requests() {
        let overhead = |overhead_permille| {
            let directory = tempfile::tempdir().unwrap();
            let mut order = PodOrder { overhead_permille, ..order(directory.path()) };
            order.vmi["spec"]["domain"]["memory"] = serde_json::json!({"guest": "64Mi"});
            let places = pod(directory.path(), &order);
            populate(&places).unwrap();
            let options: PlanOptions = read(&places.layout.order().join(paths::OPTIONS)).unwrap();
            let vmi: garboard_api::VirtualMachineInstance = serde_json::from_value(order.vmi).unwrap();
            let plan = garboard_plan::plan(&vmi, &HostFacts::reference(), &options, None).unwrap();
            plan.resources.overhead.total_bytes
        };
        let usual = overhead(Some(1000));
        assert_eq!(overhead(None), usual, "as by a controller of before");
        let more = overhead(Some(1500));
        assert!(more > usual + usual / 3 && more <= usual * 2, "{usual} {more}");
    }

    #[test]
    fn layers_may_take_what_the_container_may_less_its_logs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("limit");
        for (content, expected) in [("150000000\n", Some(100_000_000)), ("1000", Some(0)), ("0", None), ("much", None)]
        {
            std::fs::write(&file, content).unwrap();
            assert_eq!(scratch_limit(&file), expected, "{content}");
        }
    }

    /// The sidecar has no `/dev/kvm`: facts gathered there always report it as missing.
    #[test]
    fn kvm_is_as_the_node_reports_and_not_as_the_sidecar_sees() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &PodOrder { emulation: false, ..order(directory.path()) });
        let here = HostFacts { kvm: KvmState::Missing, ..HostFacts::reference() };
        std::fs::write(directory.path().join("facts.json"), serde_json::to_vec(&here).unwrap()).unwrap();
        let features = std::collections::BTreeSet::from(["sse2".to_owned(), "arch-capabilities".to_owned()]);
        let measured = KvmFacts {
            state: KvmState::Emulated,
            qemu: Some(here.qemu.features.version.clone()),
            cpu_features: features.clone(),
            max_vcpus: Some(8),
            nested: Some(false),
        };
        let mut other = here.qemu.features.version.clone();
        other.major += 1;
        let another = KvmFacts { qemu: Some(other), ..measured.clone() };
        let earlier = KvmFacts { qemu: None, ..measured.clone() };
        for reported in [&measured, &another, &earlier] {
            let node = NodeFacts { version: PROTOCOL_VERSION, tap: true, vhost_net: true, kvm: Some(reported.clone()) };
            let offered = facts(&places, node).unwrap().cpu.features.get(&Accelerator::Kvm).cloned();
            assert_eq!(
                offered,
                (reported == &measured).then(|| features.clone()),
                "only the QEMU of this image counts"
            );
        }
        for (reported, state) in [(Some(measured), KvmState::Emulated), (None, KvmState::Native)] {
            let node = NodeFacts { version: PROTOCOL_VERSION, tap: true, vhost_net: true, kvm: reported };
            let found = facts(&places, node).unwrap();
            assert_eq!(found.kvm, state);
            let accelerator = AcceleratorChoice::Kvm;
            let vmi: garboard_api::VirtualMachineInstance = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "vm", "namespace": "default"},
                "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}},
            }))
            .unwrap();
            let plan = garboard_plan::plan(&vmi, &found, &PlanOptions { accelerator, ..PlanOptions::default() }, None);
            assert!(plan.unwrap().argv.join(" ").contains("-accel kvm"));
        }
        populate(&places).unwrap();
        let options: PlanOptions = read(&places.layout.order().join(paths::OPTIONS)).unwrap();
        assert_eq!(options.accelerator, AcceleratorChoice::Kvm);
    }

    #[test]
    fn an_image_that_cannot_have_its_size_is_not_left_empty() {
        let directory = tempfile::tempdir().unwrap();
        let mut order = order(directory.path());
        order.images[0].bytes = u64::MAX;
        let error = populate(&pod(directory.path(), &order)).unwrap_err();
        assert!(matches!(error, PodError::Image(_)) && error.to_string().contains("disk.img"), "{error}");
        assert!(!directory.path().join("disk.img").exists());
    }

    #[test]
    fn an_order_of_another_time_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &PodOrder { version: 99, ..order(directory.path()) });
        assert!(matches!(populate(&places), Err(PodError::Version { theirs: 99 })));
    }

    #[test]
    fn a_missing_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let places = pod(directory.path(), &order(directory.path()));
        std::fs::remove_file(places.agent.join(pod::NODE_FACTS)).unwrap();
        let error = populate(&places).unwrap_err();
        assert!(error.to_string().contains("node.json"), "{error}");
    }
}
