//! Executing the host part of a plan: look at volumes, plan, open everything, and put the launch together.
//!
//! ```text
//!   survey: open what exists, note formats ──► plan (pure) ──► disks: overlays, seeds, new images
//!                                                          ├─► firmware, kernel
//!                                                          ├─► agent: taps, sockets
//!                                                          └─► descriptors in the plan's order ──► Launch
//! ```
//!
//! Everything that was opened is a value: a failure drops them, and nothing is left.

mod container_disk_client;
mod descriptors;
mod disks;
mod firmware;
mod helpers;
mod iscsi;
mod order;
mod seeds;
pub(crate) mod sockets;
mod survey;
mod tags;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use order::OrderError;
pub(crate) use order::{Order, read_plan};

use super::journal;
use super::run::{Context, Environment};
use descriptors::{OpenedDescriptors, obtain};
use garboard_agent::client::{AgentClient, Ask, NodeAgentError, Plumbed, until_answered};
use garboard_api::metadata::annotation;
use garboard_plan::{BindingPlan, DescriptorPurpose, DiskSource, LaunchPlan, PlanError, PlanOptions, plan};
use garboard_protocol::agent::InterfaceReply;
use garboard_protocol::launch::{BASIC_DEVICES, KVM_DEVICE, LOADER_FILES, Launch, ProcessIdentity, SYSTEM_DIRECTORIES};
use garboard_protocol::paths;
use garboard_storage::open::OpenError;
use garboard_storage::qcow2::{CreateError, ProbeError};
use sockets::SocketError;

/// The user QEMU runs as when the supervisor may choose, that is never: PID 1 is configured to become the
/// supervisor's user. In no other group: the machine's /dev/kvm is its user's own.
fn own_identity() -> ProcessIdentity {
    ProcessIdentity { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw(), groups: Vec::new() }
}

/// Why a machine cannot be started. Each variant reads as one message with its causes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// Its annotation asks for a start that fails.
    #[error("metadata.annotations[{}] asks for a start that fails; remove it", annotation::FAIL_FAST)]
    AskedFor,
    /// No plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel gives no memory to share.
    #[error("could not create the guest's memory, a memfd of {bytes} bytes")]
    GuestMemory {
        /// Its size.
        bytes: u64,
        /// The kernel's error.
        #[source]
        source: nix::Error,
    },
    /// A volume cannot be opened.
    #[error("volume `{volume}` cannot be used")]
    Volume {
        /// Its name.
        volume: String,
        /// What is wrong with it.
        #[source]
        source: VolumeError,
    },
    /// The shim or node agent did not help.
    #[error("the shim (or node agent) failed")]
    Agent(#[from] NodeAgentError),
    /// A socket could not be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A file of ours could not be opened.
    #[error("could not open {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: std::io::Error,
    },
    /// A helper could not be given its socket.
    #[error("could not create the socket of interface `{interface}`")]
    HelperSocket {
        /// The interface it serves.
        interface: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The firmware could not be made ready.
    #[error("the firmware cannot be used")]
    Firmware(#[source] VolumeError),
    /// The plan asks for a descriptor that no step of the preparation brings.
    #[error("the plan needs {purpose}, which was not prepared")]
    Unprepared {
        /// The purpose.
        purpose: String,
    },
}

/// What can be wrong with a volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// Its place is not in the order.
    #[error("the volume table has no entry for it; the pod or the shim should have written one")]
    Nowhere,
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is in it is not acceptable.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// A new image cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The shim or node agent did not open it.
    #[error(transparent)]
    Agent(#[from] NodeAgentError),
    /// No process of its own container opened it.
    #[error(transparent)]
    ContainerDisk(#[from] container_disk_client::ContainerDiskError),
    /// A file of ours failed.
    #[error("could not {action}")]
    Io {
        /// What was being attempted.
        action: String,
        /// The file system's error.
        #[source]
        source: std::io::Error,
    },
    /// What the storage crate refuses: a container disk without a disk or with several, a foreign backing file.
    #[error(transparent)]
    Source(#[from] garboard_storage::source::SourceError),
    /// `blockSize.matchVolume` cannot be done.
    #[error(transparent)]
    BlockSize(#[from] garboard_storage::block_size::BlockSizeError),
    /// A seed cannot be made.
    #[error(transparent)]
    Seed(#[from] seeds::SeedError),
    /// The Secret of a disk on iSCSI lacks what CHAP needs.
    #[error("the Secret of `iscsi.secretRef` has no key `{key}` with a text of one line and at most 255 bytes; add it")]
    Chap {
        /// The key.
        key: &'static str,
    },
}

/// A machine that is ready to be executed.
pub(crate) struct Prepared {
    /// The plan, also written to [`paths::PLAN`].
    pub(crate) plan: LaunchPlan,
    /// What PID 1 is to execute.
    pub(crate) launch: Launch,
    /// The log, then the plan's descriptors, then one for each helper.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// What serves the guest's network.
    pub(crate) interfaces: Vec<Plumbed>,
}

/// Prepares a machine.
pub(crate) async fn prepare(context: &Context, order: Order) -> Result<Prepared, PrepareError> {
    let mut agent = shim(context).await?;
    if order.is_to_fail() {
        return Err(PrepareError::AskedFor);
    }
    let survey = survey::survey(&order, agent.as_mut()).await?;
    let options = PlanOptions { volumes: survey.facts(), ..order.options.clone() };
    let plan = plan(&order.vmi, &order.facts, &options, order.stored.as_ref())?;
    for note in &plan.notes {
        tracing::info!(field = note.field, note = note.text, "plan note");
    }
    log_plan(&plan);
    let own = context.layout.supervisor();
    keep(&own, &plan, &options)?;
    let mut stock = OpenedDescriptors::default();
    disks::fill(disks::Subject { order: &order, plan: &plan, environment: context.environment }, survey, &mut stock)?;
    firmware::fill(&order, &plan, agent.as_mut(), &mut stock).await?;
    let plumbed = match (&mut agent, context.environment) {
        (Some(shim), _) => shim.plumb(&plan.interfaces).await?,
        (None, Environment::Pod) => {
            let socket = context.layout.order().join(paths::AGENT_SOCKET);
            until_answered(&socket, Ask::Plumb, &plan.interfaces).await?
        }
        (None, Environment::Host) => Vec::new(),
    };
    for one in &plumbed {
        let InterfaceReply { name, taps, vhosts, addresses, .. } = &one.interface;
        tracing::info!(interface = name, taps, vhosts, ?addresses, "interface plumbed");
    }
    stock.interfaces = plumbed.into_iter().map(|one| (one.interface.name.clone(), one)).collect();
    let for_helpers = helpers::fill(&plan, &mut stock)?;
    let mut opened = vec![descriptors::append(&context.layout.init(), paths::QEMU_LOG)?];
    for descriptor in &plan.descriptors {
        opened.push(obtain(descriptor, &own, &mut stock)?);
    }
    opened.extend(plan.guest_memory.map(|memory| descriptors::guest_memory(memory.bytes)).transpose()?);
    opened.extend(for_helpers);
    let monitor = plan.descriptors.iter().any(|one| one.purpose == DescriptorPurpose::LastResortMonitorListener);
    if monitor {
        opened.push(sockets::connect_and_drop(&own, paths::LAST_RESORT_MONITOR_SOCKET)?);
    }
    let launch = Launch { has_monitor: monitor, ..launch(&plan, &order) };
    tracing::info!(argv = ?plan.argv, "the machine is prepared");
    Ok(Prepared { plan, launch, descriptors: opened, interfaces: stock.interfaces.into_values().collect() })
}

/// The plan in the log; its argv comes when everything is prepared.
fn log_plan(plan: &LaunchPlan) {
    if let Ok(serde_json::Value::Object(mut fields)) = serde_json::to_value(plan) {
        fields.remove("argv");
        tracing::info!(plan = %serde_json::Value::Object(fields), "the plan is made");
    }
}

/// The shim of a bare host, if it has a part in this machine. A node agent has none before the plan is made.
async fn shim(context: &Context) -> Result<Option<AgentClient>, NodeAgentError> {
    let socket = context.layout.order().join(paths::AGENT_SOCKET);
    if context.environment == Environment::Pod || !socket.exists() {
        return Ok(None);
    }
    AgentClient::connect(&socket, context.environment.network_place()).await.map(Some)
}

/// The plan and the planner's last input, for restarts, for `explain` and for the record.
fn keep(directory: &Path, plan: &LaunchPlan, options: &PlanOptions) -> Result<(), PrepareError> {
    let write = |name: &str, bytes: Result<Vec<u8>, serde_json::Error>| {
        let written = bytes.map_err(std::io::Error::from).and_then(|bytes| journal::replace(directory, name, &bytes));
        written.map_err(|source| PrepareError::Open { path: directory.join(name), source })
    };
    write(paths::PLAN, serde_json::to_vec_pretty(plan))?;
    write(paths::OPTIONS, serde_json::to_vec(options))
}

/// `-kernel` and `-initrd` do not support descriptor sets.
fn is_reopened(purpose: &DescriptorPurpose) -> bool {
    matches!(purpose, DescriptorPurpose::Kernel | DescriptorPurpose::Initrd)
}

fn is_log(purpose: &DescriptorPurpose) -> bool {
    matches!(purpose, DescriptorPurpose::SerialLog { .. })
}

fn launch(plan: &LaunchPlan, order: &Order) -> Launch {
    let qemu = &order.facts.qemu;
    let own_paths = qemu.firmware_dirs.iter().chain(&qemu.module_dir).cloned();
    let parent = Path::new(&qemu.binary).parent().map(|parent| parent.display().to_string());
    let system = SYSTEM_DIRECTORIES.into_iter().chain(LOADER_FILES).map(str::to_owned);
    let devices = BASIC_DEVICES.into_iter().chain([KVM_DEVICE]).map(str::to_owned);
    let has_own_network = plan.interfaces.iter().any(|one| matches!(one.binding, BindingPlan::User { .. }));
    let has_iscsi = plan.disks.iter().any(|disk| matches!(disk.source, DiskSource::Iscsi { .. }));
    let needs_network = has_own_network || has_iscsi;
    let resolver = needs_network.then(|| "/etc".to_owned());
    Launch {
        argv: plan.argv.clone(),
        environment: plan.environment.clone(),
        descriptors: plan.descriptor_numbers().collect(),
        reopened: plan.descriptors.iter().filter(|one| is_reopened(&one.purpose)).map(|one| one.number).collect(),
        logs: plan.descriptors.iter().filter(|one| is_log(&one.purpose)).map(|one| one.number).collect(),
        identity: nix::unistd::getuid().ne(&nix::unistd::Uid::from_raw(0)).then(own_identity),
        readable_paths: system.chain(own_paths).chain(parent).chain(resolver).collect(),
        devices: devices.collect(),
        uses_tcp: needs_network,
        has_monitor: false,
        memlock_bytes: plan.resources.memlock_bytes,
        grace_seconds: plan.lifecycle.grace_period_seconds,
        helpers: plan.helpers.iter().map(helpers::describe).collect(),
    }
}
