//! What a machine needs on the host before its processes can start: its directory, a network namespace, a
//! cgroup, which stay from run to run, and the shared directory, which each run has anew. Everything has a name made from the machine's own, so that it can be removed by somebody who knows
//! nothing else.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use garboard_host::cgroup::{self, Cgroup, CpuQuota, Limits};
use garboard_net::{NetNs, VmNetId};
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::paths;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use super::agent_server::AgentServer;
use super::order::{Order, VolumeOrder};
use super::projected;
use super::spawn::MACHINE_UID;

/// The lock a keeper holds for as long as it lives.
const LOCK: &str = "lock";
/// Where the machine's network namespace is pinned.
const NAMESPACE_PIN: &str = "netns";

/// What was made for one machine.
pub(super) struct Premises {
    machine: PathBuf,
    scratch: PathBuf,
    id: Option<VmNetId>,
    cgroup_name: String,
    cgroup: Option<Cgroup>,
    namespace: Option<NetNs>,
    agent: Option<Arc<AgentServer>>,
    listening: Option<JoinHandle<()>>,
    /// Held, not read: whoever finds it free knows that the keeper is dead.
    _lock: Option<Flock<File>>,
}

impl Premises {
    /// Makes everything; what was made before a failure is removed again. Without the lock nothing is touched.
    pub(super) async fn make(order: &Order) -> anyhow::Result<Self> {
        // Before anything is called ours: what another keeper holds is not to be removed.
        let lock = lock(&order.machine)?;
        let mut premises = Self { _lock: Some(lock), ..Self::adopt(order) };
        match premises.fill(order) {
            Ok(()) => Ok(premises),
            Err(error) => {
                let removed = premises.remove().await;
                match removed {
                    Ok(()) => Err(error),
                    Err(left) => Err(error.context(format!("and cleaning up failed: {left:#}"))),
                }
            }
        }
    }

    /// The premises of an order as they may be left over by a keeper that died.
    pub(super) fn adopt(order: &Order) -> Self {
        // No name of Kubernetes has an underscore, so two machines never share a group.
        let name = format!("{}_{}", order.namespace, order.name);
        Self {
            machine: order.machine.clone(),
            scratch: order.scratch.clone(),
            // A UID that is no network ID was refused before anything was plumbed under it.
            id: order.uid.parse().ok(),
            cgroup_name: name,
            cgroup: None,
            namespace: None,
            agent: None,
            listening: None,
            _lock: None,
        }
    }

    fn fill(&mut self, order: &Order) -> anyhow::Result<()> {
        if owner().is_some() {
            let namespace = NetNs::create().context("make the machine's network namespace")?;
            namespace.pin(&self.machine.join(NAMESPACE_PIN)).context("pin the machine's network namespace")?;
            self.namespace = Some(namespace);
        }
        self.cgroup = make_cgroup(&self.cgroup_name, order);
        Ok(())
    }

    /// Makes what a run's processes share, and answers the supervisor.
    pub(super) fn begin_run(&mut self, order: &Order) -> anyhow::Result<()> {
        fill_shared(order, owner())?;
        let agent = match &self.agent {
            // It holds the published ports, which lead to the same address in every run.
            Some(agent) => Arc::clone(agent),
            None => Arc::new(self.new_agent(order)?),
        };
        self.listening = Some(Arc::clone(&agent).start()?);
        self.agent = Some(agent);
        Ok(())
    }

    fn new_agent(&self, order: &Order) -> anyhow::Result<AgentServer> {
        let namespace = self.namespace.as_ref().map(duplicate).transpose()?;
        let id = self.id.clone().context("the machine's UID cannot name its network")?;
        // With a namespace of our own the keeper serves published ports, as a user passt or QEMU does: then they are only
        // asked for here, because we say more clearly which one is taken, and let go at once.
        let listeners = crate::publish::take(&order.options.forwards)?.filter(|_| namespace.is_some());
        Ok(AgentServer::new(order, id, namespace, listeners))
    }

    /// Clears away what a run's processes shared; its record must have been kept.
    pub(super) fn end_run(&mut self, order: &Order) -> anyhow::Result<()> {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
        for directory in [order.shared(), order.volumes_directory()] {
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("clear {} away", directory.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The machine's namespace for PID 1, if it has one of its own.
    pub(super) fn namespace(&self) -> anyhow::Result<Option<OwnedFd>> {
        use std::os::fd::AsFd;
        self.namespace.as_ref().map(|namespace| namespace.as_fd().try_clone_to_owned()).transpose().map_err(Into::into)
    }

    /// Puts a process under the machine's limits.
    pub(super) fn confine(&self, process: Pid) -> anyhow::Result<()> {
        match &self.cgroup {
            Some(cgroup) => cgroup.add(u32::try_from(process.as_raw())?).context("put PID 1 into its cgroup"),
            None => Ok(()),
        }
    }

    /// Removes everything, also what another keeper made. Goes on after a failure and tells them all.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let mut failures = Vec::new();
        let is_root = nix::unistd::geteuid().is_root();
        if let Err(error) = cgroup::remove(&self.cgroup_name) {
            failures.push(format!("cgroup: {:#}", anyhow::Error::from(error)));
        }
        if is_root {
            drop(self.namespace);
            let pin = self.machine.join(NAMESPACE_PIN);
            if let Some(id) = &self.id
                && let Err(error) = garboard_net::remove_all(id, Some(&pin)).await
            {
                failures.push(format!("network: {:#}", anyhow::Error::from(error)));
            }
        }
        for directory in [&self.scratch, &self.machine] {
            let doomed = if *directory == self.machine { set_aside(directory) } else { directory.clone() };
            match std::fs::remove_dir_all(doomed) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    failures.push(format!("{}: {error}", directory.display()));
                }
                _ => {}
            }
            // The namespace's directory stays only while another machine is in it.
            let _ = directory.parent().map(std::fs::remove_dir);
        }
        if failures.is_empty() { Ok(()) } else { anyhow::bail!("something was left behind: {}", failures.join("; ")) }
    }
}

/// Whom the machine's files belong to, if not to the keeper's own user.
fn owner() -> Option<u32> {
    nix::unistd::geteuid().is_root().then_some(MACHINE_UID)
}

/// Takes a directory away at once: nobody may find half of it, its lock gone and its order still there.
fn set_aside(machine: &Path) -> PathBuf {
    let name = machine.file_name().unwrap_or_default().to_string_lossy();
    let aside = machine.with_file_name(format!(".{name}-{}", std::process::id()));
    if std::fs::rename(machine, &aside).is_ok() { aside } else { machine.to_owned() }
}

fn duplicate(namespace: &NetNs) -> anyhow::Result<NetNs> {
    use std::os::fd::AsFd;
    Ok(NetNs::from_fd(namespace.as_fd().try_clone_to_owned()?)?)
}

fn lock(machine: &Path) -> anyhow::Result<Flock<File>> {
    let path = machine.join(LOCK);
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| anyhow::anyhow!("another keeper holds {} ({errno})", path.display()))
}

/// Whether a keeper holds the lock of a machine.
pub(super) fn is_locked(machine: &Path) -> bool {
    let Ok(file) = File::open(machine.join(LOCK)) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Limits are worth having and not worth refusing a start for: `doctor` says what is missing.
fn make_cgroup(name: &str, order: &Order) -> Option<Cgroup> {
    let resources = &order.resources;
    let limits = Limits {
        memory_bytes: resources.memory_limit_bytes,
        cpu_quota: resources.cpu_limit_millis.map(CpuQuota::of_millicpu),
        cpu_shares: Some((resources.cpu_request_millis.saturating_mul(1024) / 1000).clamp(2, 262_144)),
        pids: Some(resources.pids),
    };
    match Cgroup::create(name, &limits) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            tracing::warn!(error = %format!("{:#}", anyhow::Error::from(error)), "the machine runs without limits");
            None
        }
    }
}

fn fill_shared(order: &Order, owner: Option<u32>) -> anyhow::Result<()> {
    let shared = order.shared();
    std::fs::DirBuilder::new().mode(0o700).create(&shared).with_context(|| format!("create {}", shared.display()))?;
    let volumes = order.volumes_directory();
    std::fs::DirBuilder::new().mode(0o711).create(&volumes)?;
    let mut table = VolumeTable::default();
    for (name, volume) in &order.volumes {
        if let Some(place) = place(&volumes, name, volume, owner)? {
            table.places.insert(name.clone(), place);
        }
    }
    std::fs::create_dir_all(&order.scratch).with_context(|| {
        format!("could not create {}; choose another place with --state-dir", order.scratch.display())
    })?;
    projected::give(&order.scratch, owner)?;
    let scratch = VolumePlace::Directory { path: order.scratch.display().to_string() };
    table.places.insert(garboard_launcher::supervisor::SCRATCH_VOLUME.to_owned(), scratch);
    for (name, file) in &order.kernel_files {
        let place = VolumePlace::File { path: file.display().to_string() };
        table.places.insert(format!("{}{name}", garboard_launcher::supervisor::KERNEL_BOOT_PREFIX), place);
    }
    write(&shared, paths::VMI, &order.vmi, owner)?;
    write(&shared, paths::FACTS, &order.facts, owner)?;
    write(&shared, paths::OPTIONS, &order.options, owner)?;
    write(&shared, paths::VOLUMES, &table, owner)?;
    if let Some(stored) = &order.stored {
        write(&shared, paths::STORED, stored, owner)?;
    }
    projected::give(&shared, owner)
}

fn place(volumes: &Path, name: &str, order: &VolumeOrder, owner: Option<u32>) -> anyhow::Result<Option<VolumePlace>> {
    Ok(Some(match order {
        VolumeOrder::Directory { path } => VolumePlace::Directory { path: path.display().to_string() },
        VolumeOrder::File { path } => VolumePlace::File { path: path.display().to_string() },
        VolumeOrder::Opened { .. } | VolumeOrder::HostDisk { .. } => VolumePlace::Descriptor,
        VolumeOrder::Projected { files } => {
            // A name with a slash is ours (`ssh-keys/…`), never a volume's.
            let directory = volumes.join(name.replace('/', "."));
            projected::write(&directory, files, owner)?;
            VolumePlace::Directory { path: directory.display().to_string() }
        }
        VolumeOrder::Made => return Ok(None),
    }))
}

fn write<T: serde::Serialize>(shared: &Path, name: &str, value: &T, owner: Option<u32>) -> anyhow::Result<()> {
    let path = shared.join(name);
    std::fs::write(&path, serde_json::to_vec(value)?).with_context(|| format!("write {}", path.display()))?;
    projected::give(&path, owner)
}
