//! What a node agent does on a cluster: opens volumes, plumbs interfaces, and hands descriptors to the one
//! supervisor that may ask. The connection identifies the caller: only root and the machine's own user are served.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use garboard_agent::line_socket::{LineError, LineSocket, next_client};
use garboard_agent::plumbing::{self, Interfaces, Reply};
use garboard_net::publish::Listeners;
use garboard_net::resolv::Resolver;
use garboard_net::{Binding, NetNs, NetPlan, UplinkRequest, VmNetId};
use garboard_protocol::agent::{AgentReply, AgentRequest, InterfaceRequest};
use garboard_protocol::paths;
use garboard_protocol::volumes::FIRMWARE_VARS_VOLUME;
use garboard_shim_client::request::{FirmwareVars, LaunchRequest};
use garboard_shim_client::volume_source::HostVolumeSource;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::volume_files;

/// Longest request, bytes: a machine's interfaces, or its status.
const LONGEST_REQUEST: usize = 256 * 1024;

/// The shim's half of the agent protocol.
pub(crate) struct AgentServer {
    directory: PathBuf,
    machine_uid: Option<u32>,
    id: VmNetId,
    namespace: Option<NetNs>,
    volumes: BTreeMap<String, HostVolumeSource>,
    firmware_vars: Option<FirmwareVars>,
    vmi: serde_json::Value,
    listeners: Mutex<Option<Listeners>>,
    plumbed: Mutex<Plumbed>,
}

/// What was last asked for, and what was made of it.
#[derive(Default)]
struct Plumbed {
    requests: Vec<InterfaceRequest>,
    plans: Vec<NetPlan>,
}

impl AgentServer {
    pub(crate) fn new(
        request: &LaunchRequest,
        id: VmNetId,
        namespace: Option<NetNs>,
        listeners: Option<Listeners>,
    ) -> Self {
        Self {
            directory: request.layout().order(),
            machine_uid: request.machine_uid,
            id,
            namespace,
            volumes: request.volumes.clone(),
            firmware_vars: request.firmware_vars.clone(),
            vmi: request.vmi.clone(),
            listeners: Mutex::new(listeners),
            plumbed: Mutex::default(),
        }
    }

    /// Listens in the background, until the task is aborted.
    pub(crate) fn start(self: Arc<Self>) -> anyhow::Result<JoinHandle<()>> {
        let path = self.directory.join(paths::AGENT_SOCKET);
        let listener = UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))?;
        if let Some(group) = self.machine_uid {
            // In a directory where only we write, so the name still means our socket.
            lchown(&path, None, Some(group))
                .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o660)))
                .with_context(|| format!("let the machine's group use {}", path.display()))?;
        }
        Ok(tokio::spawn(async move {
            loop {
                let (stream, server) = (next_client(&listener).await, Arc::clone(&self));
                tokio::spawn(async move {
                    if let Err(error) = server.answer(stream).await {
                        tracing::debug!(%error, "the connection to the supervisor ended");
                    }
                });
            }
        }))
    }

    async fn answer(&self, stream: UnixStream) -> Result<(), LineError> {
        let caller = stream.peer_cred()?.uid();
        if caller != 0 && Some(caller) != self.machine_uid && caller != nix::unistd::geteuid().as_raw() {
            tracing::warn!(uid = caller, "agent socket: connection of another user rejected");
            return Ok(());
        }
        // No request comes with descriptors, and none is long.
        let mut socket = LineSocket::limited(stream, 0).with_longest_line(LONGEST_REQUEST);
        loop {
            let request: AgentRequest = socket.receive().await?;
            let Reply { message, descriptors } = match self.serve(request).await {
                Ok(reply) => reply,
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "the supervisor's request failed");
                    AgentReply::Refused { reason: format!("{error:#}") }.into()
                }
            };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            socket.send(&message, &borrowed).await?;
        }
    }

    async fn serve(&self, request: AgentRequest) -> anyhow::Result<Reply> {
        match request {
            AgentRequest::Volume { name } => {
                if let (true, Some(vars)) = (name == FIRMWARE_VARS_VOLUME, &self.firmware_vars) {
                    return Ok(volume(volume_files::firmware_vars(vars)?));
                }
                let source = self.volumes.get(&name).with_context(|| format!("volume {name} does not exist"))?;
                Ok(volume(volume_files::open(source, &self.vmi, &name)?))
            }
            AgentRequest::Plumb { interfaces } => self.plumb(interfaces).await,
            // What was plumbed is remembered here.
            AgentRequest::Sockets { .. } => self.sockets().await,
            AgentRequest::Report { .. } => Ok(AgentReply::Noted.into()),
            AgentRequest::Record { .. } => anyhow::bail!("on a bare host the files of a run are its record"),
            AgentRequest::Serve => anyhow::bail!("on a bare host clients connect to the control socket itself"),
        }
    }

    fn namespace(&self) -> anyhow::Result<&NetNs> {
        self.namespace.as_ref().context("this machine has no network namespace: its shim is not root")
    }

    async fn plumb(&self, requests: Vec<InterfaceRequest>) -> anyhow::Result<Reply> {
        let namespace = self.namespace()?;
        // One at a time: a supervisor that was killed while it was served is followed by one that asks for the same.
        let mut plumbed = self.plumbed.lock().await;
        let plans = plumbing::net_plans(&requests)?;
        let request = UplinkRequest {
            id: self.id.clone(),
            uplink: garboard_protocol::agent::UPLINK.parse()?,
            avoid: guest_ranges(&plans),
        };
        let uplink =
            garboard_net::ensure_uplink(namespace, &request).await.context("connect the machine to this host")?;
        let default_link = uplink.default_link.as_deref().unwrap_or("LINK");
        for obstacle in &uplink.obstacles {
            tracing::warn!(
                remedy = obstacle.remedy(default_link),
                "a firewall of this host drops forwarded packets of the machine"
            );
        }
        let reply = plumbing::plumb(namespace, Interfaces { requests: &requests, plans: &plans }, &resolver()).await?;
        if let Some(listeners) = self.listeners.lock().await.take() {
            crate::publish::serve(listeners, uplink.guest4.addr().into());
        }
        *plumbed = Plumbed { requests, plans };
        Ok(reply)
    }

    async fn sockets(&self) -> anyhow::Result<Reply> {
        let plumbed = self.plumbed.lock().await;
        let Plumbed { requests, plans } = &*plumbed;
        if plans.is_empty() {
            return Ok(AgentReply::Plumbed { interfaces: Vec::new() }.into());
        }
        Ok(plumbing::sockets(self.namespace()?, Interfaces { requests, plans }, &resolver()).await?)
    }
}

fn volume(descriptor: OwnedFd) -> Reply {
    Reply { message: AgentReply::Volume, descriptors: vec![descriptor] }
}

fn resolver() -> Resolver {
    garboard_net::resolv::of_host().unwrap_or_default()
}

fn guest_ranges(plans: &[NetPlan]) -> Vec<ipnet::IpNet> {
    let mut ranges = Vec::new();
    for plan in plans {
        if let Binding::Masquerade(masquerade) = &plan.binding {
            ranges.push(masquerade.ipv4.into());
            ranges.push(masquerade.ipv6.into());
        }
    }
    ranges
}
