//! What a node agent does on a cluster: opens volumes, plumbs interfaces, and hands descriptors to the one
//! supervisor that may ask. Who asks is the connection: only root and the machine's own user are heard.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use garboard_launcher::supervisor::FIRMWARE_VARS_VOLUME;
use garboard_launcher::supervisor::line_socket::{LineError, LineSocket};
use garboard_net::publish::Listeners;
use garboard_net::{Binding, GuestAddresses, LinkName, Masquerade, NetNs, NetPlan, Sockets, UplinkRequest, VmNetId};
use garboard_protocol::agent::{
    AgentReply, AgentRequest, BindingRequest, InterfaceRequest, PlumbedInterface, SocketKind,
};
use garboard_protocol::paths;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::order::{FirmwareVars, Order, VolumeOrder};
use super::spawn::MACHINE_UID;
use crate::volume_files;

/// The namespace's link to the host.
const UPLINK: &str = "eth0";
/// The bridge between it and the tap, KubeVirt's name.
const BRIDGE: &str = "k6t-eth0";

type Reply = (AgentReply<GuestAddresses>, Vec<OwnedFd>);

/// The keeper's half of the agent protocol.
pub(super) struct AgentServer {
    shared: PathBuf,
    id: VmNetId,
    namespace: Option<NetNs>,
    volumes: BTreeMap<String, VolumeOrder>,
    firmware_vars: Option<FirmwareVars>,
    vmi: serde_json::Value,
    listeners: Mutex<Option<Listeners>>,
    plumbed: Mutex<Vec<(InterfaceRequest, NetPlan)>>,
}

impl AgentServer {
    pub(super) fn new(order: &Order, id: VmNetId, namespace: Option<NetNs>, listeners: Option<Listeners>) -> Self {
        Self {
            shared: order.shared(),
            id,
            namespace,
            volumes: order.volumes.clone(),
            firmware_vars: order.firmware_vars.clone(),
            vmi: order.vmi.clone(),
            listeners: Mutex::new(listeners),
            plumbed: Mutex::new(Vec::new()),
        }
    }

    /// Listens in the background, until the task is aborted.
    pub(super) fn start(self: Arc<Self>) -> anyhow::Result<JoinHandle<()>> {
        let path = self.shared.join(paths::AGENT_SOCKET);
        let listener = UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))?;
        let owner = nix::unistd::geteuid().is_root().then_some(MACHINE_UID);
        super::projected::give(&path, owner)?;
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&self);
                tokio::spawn(async move {
                    if let Err(error) = server.converse(stream).await {
                        tracing::debug!(%error, "a conversation with the supervisor ended");
                    }
                });
            }
        }))
    }

    async fn converse(&self, stream: UnixStream) -> Result<(), LineError> {
        let caller = stream.peer_cred()?.uid();
        if caller != 0 && caller != MACHINE_UID && caller != nix::unistd::geteuid().as_raw() {
            tracing::warn!(uid = caller, "somebody else called the agent socket and was not heard");
            return Ok(());
        }
        let mut socket = LineSocket::new(stream);
        loop {
            let request: AgentRequest = socket.receive().await?;
            let (reply, descriptors) = match self.serve(request).await {
                Ok(reply) => reply,
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "the supervisor's request failed");
                    (AgentReply::Refused { reason: format!("{error:#}") }, Vec::new())
                }
            };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            socket.send(&reply, &borrowed).await?;
        }
    }

    async fn serve(&self, request: AgentRequest) -> anyhow::Result<Reply> {
        match request {
            AgentRequest::Volume { name } => {
                if let (true, Some(vars)) = (name == FIRMWARE_VARS_VOLUME, &self.firmware_vars) {
                    return Ok((AgentReply::Volume, vec![volume_files::firmware_vars(vars)?]));
                }
                let order = self.volumes.get(&name).with_context(|| format!("there is no volume {name}"))?;
                let descriptor = volume_files::open(order, &self.vmi, &name)?;
                Ok((AgentReply::Volume, vec![descriptor]))
            }
            AgentRequest::Plumb { interfaces } => self.plumb(interfaces).await,
            AgentRequest::Sockets => self.sockets().await,
        }
    }

    fn namespace(&self) -> anyhow::Result<&NetNs> {
        self.namespace.as_ref().context("this machine has no network namespace: its keeper is not root")
    }

    async fn plumb(&self, requests: Vec<InterfaceRequest>) -> anyhow::Result<Reply> {
        let namespace = self.namespace()?;
        // One at a time: a supervisor that was killed while it was served is followed by one that asks for the same.
        let mut plumbed = self.plumbed.lock().await;
        let plans = requests.iter().map(net_plan).collect::<anyhow::Result<Vec<_>>>()?;
        let request = UplinkRequest { id: self.id.clone(), uplink: UPLINK.parse()?, avoid: guest_ranges(&plans) };
        let uplink =
            garboard_net::ensure_uplink(namespace, &request).await.context("connect the machine to this host")?;
        for obstacle in &uplink.obstacles {
            tracing::warn!(mend = obstacle.mend(), "a firewall of this host drops what is forwarded for the machine");
        }
        let made = garboard_net::plumb(namespace, &plans).await.context("plumb the machine's interfaces")?;
        if let Some(listeners) = self.listeners.lock().await.take() {
            crate::publish::serve(listeners, uplink.guest4.addr().into());
        }
        let mut replies = Vec::new();
        let mut descriptors = Vec::new();
        for (request, interface) in requests.iter().zip(made.interfaces) {
            let (taps, vhosts) = (interface.taps.len(), interface.vhosts.len());
            descriptors.extend(interface.taps.into_iter().chain(interface.vhosts));
            let sockets = push_sockets(interface.sockets, &mut descriptors);
            replies.push(describe(request, (taps, vhosts), sockets, interface.guest));
        }
        *plumbed = requests.into_iter().zip(plans).collect();
        Ok((AgentReply::Plumbed { interfaces: replies }, descriptors))
    }

    async fn sockets(&self) -> anyhow::Result<Reply> {
        let plumbed = self.plumbed.lock().await;
        let plans: Vec<NetPlan> = plumbed.iter().map(|(_, plan)| plan.clone()).collect();
        if plans.is_empty() {
            return Ok((AgentReply::Plumbed { interfaces: Vec::new() }, Vec::new()));
        }
        let opened = garboard_net::sockets(self.namespace()?, &plans).await.context("open the DHCP sockets again")?;
        let mut descriptors = Vec::new();
        let mut replies = Vec::new();
        for ((request, _), (sockets, guest)) in plumbed.iter().zip(opened) {
            let kinds = push_sockets(sockets, &mut descriptors);
            replies.push(describe(request, (0, 0), kinds, guest));
        }
        Ok((AgentReply::Plumbed { interfaces: replies }, descriptors))
    }
}

fn describe(
    request: &InterfaceRequest,
    (taps, vhosts): (usize, usize),
    sockets: Vec<SocketKind>,
    addresses: GuestAddresses,
) -> PlumbedInterface<GuestAddresses> {
    let resolver = garboard_net::resolv::of_host().unwrap_or_default();
    PlumbedInterface {
        name: request.name.clone(),
        taps,
        vhosts,
        sockets,
        addresses,
        nameservers: resolver.nameservers.iter().map(ToString::to_string).collect(),
        searches: resolver.searches,
    }
}

fn push_sockets(sockets: Sockets, descriptors: &mut Vec<OwnedFd>) -> Vec<SocketKind> {
    let all = [
        (SocketKind::Dhcp4, sockets.dhcp4),
        (SocketKind::Dhcp6, sockets.dhcp6),
        (SocketKind::RouterAdvertisement, sockets.router_advertisement),
    ];
    let mut kinds = Vec::new();
    for (kind, descriptor) in all {
        if let Some(descriptor) = descriptor {
            kinds.push(kind);
            descriptors.push(descriptor);
        }
    }
    kinds
}

fn net_plan(request: &InterfaceRequest) -> anyhow::Result<NetPlan> {
    let binding = match &request.binding {
        BindingRequest::Bridge => Binding::Bridge,
        BindingRequest::Masquerade { ipv4, ipv6, ports } => Binding::Masquerade(Masquerade {
            ipv4: ipv4.parse().with_context(|| format!("IPv4 range `{ipv4}`"))?,
            ipv6: ipv6.parse().with_context(|| format!("IPv6 range `{ipv6}`"))?,
            ports: ports.iter().map(port).collect::<anyhow::Result<_>>()?,
            reserved_tcp: Vec::new(),
        }),
    };
    Ok(NetPlan {
        interface: request.name.clone(),
        uplink: UPLINK.parse::<LinkName>()?,
        bridge: BRIDGE.parse::<LinkName>()?,
        tap: request.tap.parse()?,
        mac: request.mac.parse()?,
        mtu: None,
        queues: u16::try_from(request.queues).context("too many queues")?,
        binding,
    })
}

fn port((protocol, number): &(String, u16)) -> anyhow::Result<garboard_net::Port> {
    let protocol = match protocol.as_str() {
        "TCP" => garboard_net::Protocol::Tcp,
        "UDP" => garboard_net::Protocol::Udp,
        "SCTP" => garboard_net::Protocol::Sctp,
        other => anyhow::bail!("unknown protocol `{other}`"),
    };
    Ok(garboard_net::Port { protocol, port: (*number).try_into().context("port 0")? })
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
