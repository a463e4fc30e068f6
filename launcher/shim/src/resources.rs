//! What a machine needs on the host before its processes can start: its directory, a network namespace, two
//! control groups, which stay from run to run, and the directories of its processes, which each run creates again. Everything has
//! a name made from the machine's own, so that it can be removed by a process that has nothing else.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use garboard_common::private;
use garboard_host::cgroup::{self, Cgroup, CgroupError, CgroupLimits, CpuQuota};
use garboard_net::{NetNs, VmNetId};
use garboard_plan::{InterfaceFacts, PlanOptions};
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::paths;
use garboard_shim_client::lock::{self, HeldLock};
use garboard_shim_client::logs::SUPERVISOR_LOG;
use garboard_shim_client::request::LaunchRequest;
use garboard_shim_client::volume_source::HostVolumeSource;
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use crate::agent_server::AgentServer;
use crate::aside::{self, set_aside};
use crate::{projected, publish};

/// Where the machine's network namespace is pinned.
const NAMESPACE_PIN: &str = "netns";

/// The most memory of a supervisor, bytes, with the files of its record that are kept in memory. It uses less than 20 MiB.
const SUPERVISOR_MEMORY_BYTES: u64 = 256 << 20;
/// The most threads of a supervisor. It has one, and a few more for files that may be slow.
const SUPERVISOR_THREADS: u32 = 128;

/// What was made for one machine.
pub(crate) struct HostResources {
    machine: PathBuf,
    scratch: PathBuf,
    id: Option<VmNetId>,
    cgroup_name: String,
    cgroup: Option<Cgroup>,
    /// Beside the machine's: what a supervisor uses is not taken from its guest, and has an end all the same.
    supervisors: Option<Cgroup>,
    namespace: Option<NetNs>,
    agent: Option<Arc<AgentServer>>,
    listening: Option<JoinHandle<()>>,
    /// Held, not read: while it is free, the shim is dead.
    _lock: Option<HeldLock>,
}

impl HostResources {
    /// Makes everything; what was made before a failure is removed again. Without the lock nothing is touched.
    pub(crate) async fn make(request: &LaunchRequest) -> anyhow::Result<Self> {
        // Before anything is called ours: what another shim holds is not to be removed.
        let lock = hold_lock(&request.machine)?;
        if let Some(runtime) = request.machine.ancestors().nth(2) {
            aside::collect(runtime);
        }
        let mut resources = Self { _lock: Some(lock), ..Self::adopt(request) };
        match resources.fill(request) {
            Ok(()) => Ok(resources),
            Err(error) => {
                let removed = resources.remove().await;
                match removed {
                    Ok(()) => Err(error),
                    Err(left) => Err(error.context(format!("and cleaning up failed: {left:#}"))),
                }
            }
        }
    }

    /// The resources of a launch request as they may be left over by a shim that died.
    pub(crate) fn adopt(request: &LaunchRequest) -> Self {
        // No name of Kubernetes has an underscore, so two machines never share a group.
        let name = format!("{}_{}", request.namespace, request.name);
        Self {
            machine: request.machine.clone(),
            scratch: request.scratch.clone(),
            // A UID that is no network ID was refused before anything was plumbed under it.
            id: request.uid.parse().ok(),
            cgroup_name: name,
            cgroup: None,
            supervisors: None,
            namespace: None,
            agent: None,
            listening: None,
            _lock: None,
        }
    }

    fn fill(&mut self, request: &LaunchRequest) -> anyhow::Result<()> {
        if request.machine_uid.is_some() {
            let namespace = NetNs::create().context("make the machine's network namespace")?;
            namespace.pin(&self.machine.join(NAMESPACE_PIN)).context("pin the machine's network namespace")?;
            self.namespace = Some(namespace);
        }
        self.cgroup = make_cgroup(&self.cgroup_name, &limits(request));
        // Where the machine's could not be made this is no other.
        self.supervisors =
            self.cgroup.as_ref().and_then(|_| make_cgroup(&self.supervisors_name(), &supervisor_limits()));
        Ok(())
    }

    /// Makes what a run's processes share, and answers the supervisor.
    pub(crate) async fn begin_run(&mut self, request: &LaunchRequest) -> anyhow::Result<()> {
        fill_directories(request, &self.options(request).await?)?;
        let agent = match &self.agent {
            // It holds the published ports, which lead to the same address in every run.
            Some(agent) => Arc::clone(agent),
            None => Arc::new(self.new_agent(request)?),
        };
        self.listening = Some(Arc::clone(&agent).start()?);
        self.agent = Some(agent);
        Ok(())
    }

    /// The planner's input, with what is known only here: what the way out of this host carries. Asked for at each run, as
    /// the supervisor's link is made for each.
    async fn options(&self, request: &LaunchRequest) -> anyhow::Result<PlanOptions> {
        let mut options = request.options.clone();
        if self.namespace.is_some() {
            let mtu = garboard_net::default_link_mtu().await.context("look up the MTU of this host's default route")?;
            let listed = request.vmi["spec"]["domain"]["devices"]["interfaces"].as_array().into_iter().flatten();
            let names = listed.filter_map(|interface| interface["name"].as_str().map(str::to_owned));
            options.interfaces = names.map(|name| (name, InterfaceFacts { mtu: Some(mtu) })).collect();
        }
        Ok(options)
    }

    fn new_agent(&self, request: &LaunchRequest) -> anyhow::Result<AgentServer> {
        let namespace = self.namespace.as_ref().map(duplicate).transpose()?;
        let id = self.id.clone().context("the machine's UID is not a valid network name")?;
        // With a namespace of our own the shim serves published ports, as a user passt or QEMU does: then they are only
        // asked for here, because our message is clearer about which one is taken, and closed at once.
        let listeners = publish::take(&request.options.forwards)?.filter(|_| namespace.is_some());
        Ok(AgentServer::new(request, id, namespace, listeners))
    }

    /// Clears away what a run's processes shared; its record must have been kept.
    pub(crate) fn end_run(&mut self, request: &LaunchRequest) -> anyhow::Result<()> {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
        let layout = request.layout();
        for directory in [layout.order(), layout.supervisor(), layout.init(), request.volumes_directory()] {
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("clear {} away", directory.display()));
                }
                _ => {}
            }
        }
        for file in [SUPERVISOR_LOG, paths::JOURNAL] {
            match std::fs::remove_file(request.machine.join(file)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("remove {file}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The machine's namespace for PID 1, if it has one of its own.
    pub(crate) fn namespace(&self) -> anyhow::Result<Option<OwnedFd>> {
        use std::os::fd::AsFd;
        self.namespace.as_ref().map(|namespace| namespace.as_fd().try_clone_to_owned()).transpose().map_err(Into::into)
    }

    /// No name of Kubernetes has an underscore, and a machine's group has one in its name, so this is no machine's.
    fn supervisors_name(&self) -> String {
        format!("{}_supervisor", self.cgroup_name)
    }

    /// Puts a supervisor under its own limits. One that runs without is better than none.
    pub(crate) fn confine_supervisor(&self, process: Pid) {
        let Some(cgroup) = &self.supervisors else { return };
        let added = u32::try_from(process.as_raw()).map_err(anyhow::Error::from).and_then(|id| Ok(cgroup.add(id)?));
        if let Err(error) = added {
            tracing::warn!(
                error = format!("{error:#}"),
                "control groups are not available; the supervisor runs without limits"
            );
        }
    }

    /// How many processes of the machine's own control group the OOM killer has ended so far; nothing where there is none.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        self.cgroup.as_ref()?.usage().ok().map(|usage| usage.oom_kills)
    }

    /// Puts a process under the machine's limits.
    pub(crate) fn confine(&self, process: Pid) -> anyhow::Result<()> {
        match &self.cgroup {
            Some(cgroup) => cgroup.add(u32::try_from(process.as_raw())?).context("put PID 1 into its cgroup"),
            None => Ok(()),
        }
    }

    /// Removes everything, also what another shim made. Goes on after a failure and reports all; only where processes do not end,
    /// their files stay, so that all of it can be tried again.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        let mut failures = Vec::new();
        let is_root = nix::unistd::geteuid().is_root();
        for name in [&self.supervisors_name(), &self.cgroup_name] {
            match cgroup::remove(name) {
                Ok(()) => {}
                Err(error @ CgroupError::StillPopulated { .. }) => {
                    return Err(anyhow::Error::from(error).context(format!("{} is kept", self.machine.display())));
                }
                Err(error) => failures.push(format!("cgroup: {:#}", anyhow::Error::from(error))),
            }
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
                Err(error) if error.kind() != ErrorKind::NotFound => {
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

fn duplicate(namespace: &NetNs) -> anyhow::Result<NetNs> {
    use std::os::fd::AsFd;
    Ok(NetNs::from_fd(namespace.as_fd().try_clone_to_owned()?)?)
}

fn hold_lock(machine: &Path) -> anyhow::Result<HeldLock> {
    lock::hold(machine).map_err(|error| {
        let is_held = error.kind() == ErrorKind::WouldBlock;
        let doing = if is_held { "another shim holds the lock of" } else { "take the lock of" };
        anyhow::Error::from(error).context(format!("{doing} {}", machine.display()))
    })
}

fn limits(request: &LaunchRequest) -> CgroupLimits {
    let resources = &request.resources;
    CgroupLimits {
        memory_bytes: resources.memory_limit_bytes,
        cpu_quota: resources.cpu_limit_millis.map(CpuQuota::of_millicpu),
        cpu_shares: Some((resources.cpu_request_millis.saturating_mul(1024) / 1000).clamp(2, 262_144)),
        pids: Some(resources.pids),
    }
}

fn supervisor_limits() -> CgroupLimits {
    CgroupLimits {
        memory_bytes: Some(SUPERVISOR_MEMORY_BYTES),
        pids: Some(SUPERVISOR_THREADS),
        ..CgroupLimits::default()
    }
}

/// Missing limits do not prevent a start: `doctor` lists what is missing.
fn make_cgroup(name: &str, limits: &CgroupLimits) -> Option<Cgroup> {
    match Cgroup::create(name, limits) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::from(error));
            tracing::warn!(name, error, "control group could not be created; its processes run without limits");
            None
        }
    }
}

fn fill_directories(request: &LaunchRequest, options: &PlanOptions) -> anyhow::Result<()> {
    let (layout, owner) = (request.layout(), request.machine_uid);
    for directory in [layout.supervisor(), layout.init()] {
        projected::make_own(&directory, owner).with_context(|| format!("create {}", directory.display()))?;
    }
    let directory = layout.order();
    projected::make_directory(&directory, owner)?;
    let volumes = request.volumes_directory();
    private::make_passage(&volumes)?;
    let mut table = VolumeTable::default();
    for (name, volume) in &request.volumes {
        if let Some(place) = place(&volumes, name, volume, owner)? {
            table.places.insert(name.clone(), place);
        }
    }
    // The end of another machine takes the directory above with it if it was the last one there.
    let made = private::beneath_passage(&request.scratch, || projected::make_own(&request.scratch, owner));
    made.with_context(|| {
        format!("could not create {}; choose another place with --state-dir", request.scratch.display())
    })?;
    let scratch = VolumePlace::Directory { path: request.scratch.display().to_string() };
    table.places.insert(garboard_protocol::volumes::SCRATCH_VOLUME.to_owned(), scratch);
    for (name, file) in &request.kernel_files {
        let place = VolumePlace::File { path: file.display().to_string() };
        table.places.insert(format!("{}{name}", garboard_protocol::volumes::KERNEL_BOOT_PREFIX), place);
    }
    write(&directory, paths::VMI, &request.vmi, owner)?;
    write(&directory, paths::FACTS, &request.facts, owner)?;
    write(&directory, paths::OPTIONS, options, owner)?;
    write(&directory, paths::VOLUMES, &table, owner)?;
    if let Some(stored) = &request.stored {
        write(&directory, paths::STORED, stored, owner)?;
    }
    Ok(())
}

fn place(
    volumes: &Path,
    name: &str,
    source: &HostVolumeSource,
    owner: Option<u32>,
) -> anyhow::Result<Option<VolumePlace>> {
    Ok(Some(match source {
        HostVolumeSource::Directory { path } => VolumePlace::Directory { path: path.display().to_string() },
        HostVolumeSource::File { path } => VolumePlace::File { path: path.display().to_string() },
        HostVolumeSource::Opened { .. } | HostVolumeSource::HostDisk { .. } => VolumePlace::Descriptor,
        HostVolumeSource::Projected { files } => {
            // A name with a slash is ours (`ssh-keys/…`), never a volume's.
            let directory = volumes.join(name.replace('/', "."));
            projected::write(&directory, files, owner)?;
            VolumePlace::Directory { path: directory.display().to_string() }
        }
        HostVolumeSource::Made => return Ok(None),
    }))
}

fn write<T: serde::Serialize>(directory: &Path, name: &str, value: &T, owner: Option<u32>) -> anyhow::Result<()> {
    projected::write_file(&directory.join(name), &serde_json::to_vec(value)?, owner)
}
