//! Everything that hangs on a launched QEMU: monitor, console, screen, QMP clients, guest agent, network
//! services. Each is a task of its own that ends with the machine.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use garboard_agent::client::Plumbed;
use garboard_agent::line_socket::next_client;
use garboard_log::Levels;
use garboard_machine::features::Accelerator;
use garboard_plan::{DiskPlan, InterfacePlan, LaunchPlan, ScreenPlan};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{DiskStatus, InterfaceStatus, Link, QmpAccess, Status};
use garboard_protocol::paths::{self, Layout};
use garboard_qmp::agent::Agent;
use garboard_qmp::{FileTranscript, Monitor, TranscriptSink};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tracing::Span;

use super::console::{self, Attach};
use super::control::{Caller, ControlSenders, QmpClient, Way};
use super::driver::{Input, Offer, Planned};
use super::flood::{Flood, Line};
use super::live::Live;
use super::monitor::{MonitorUsers, RetryPolicy};
use super::part::Parts;
use super::prepare::sockets::{SocketError, listen_async};
use super::qmp_places::QmpPlaces;
use super::run::{Context, Environment};
use super::screenshot::Screen;
use super::session::ScreenSession;
use super::statistics::{Counters, Sources};
use super::usb_redirection::{self, Slots};
use super::{broker, credentials, guest_agent, links, monitor, network, qemu_log};

/// Bytes of QMP transcript kept, and as much again of the part before.
const TRANSCRIPT_BYTES: u64 = 2 * 1024 * 1024;
/// The most lines of it that are logged in ten seconds, in a pod.
const LOGGED_LINES: u32 = 200;
/// QEMU's listening sockets exist before QEMU; this is only for a machine under heavy load.
const SERIAL_PATIENCE: Duration = Duration::from_secs(30);

/// The receiving ends of [`ControlSenders`].
pub(crate) struct ControlReceivers {
    console: mpsc::Receiver<Attach>,
    vnc: mpsc::Receiver<OwnedFd>,
    qmp: mpsc::Receiver<QmpClient>,
    agent: watch::Sender<Option<Agent>>,
    monitor: watch::Sender<Option<Monitor>>,
    usb: watch::Sender<Option<Slots>>,
    plan: watch::Sender<Option<Arc<LaunchPlan>>>,
    status: watch::Receiver<Status>,
}

/// Makes the senders and their receivers.
pub(crate) fn open_channels(
    requests: mpsc::Sender<Offer>,
    status: watch::Receiver<Status>,
    levels: Levels,
    layout: &Layout,
) -> (ControlSenders, ControlReceivers) {
    let (console, console_station) = mpsc::channel(4);
    let (vnc, vnc_station) = mpsc::channel(4);
    let (qmp, qmp_station) = mpsc::channel(4);
    let (agent_up, agent) = watch::channel(None);
    let (monitor_up, monitor) = watch::channel(None);
    let (usb_known, usb) = watch::channel(None);
    let (plan_known, plan) = watch::channel(None);
    let (screen, screenshot) = (ScreenSession::default(), Arc::new(Screen::new(monitor.clone())));
    let known = status.clone();
    let qmp_places = QmpPlaces::default();
    let counters = Counters::new(Sources { monitor, plan, agent: agent.clone(), status: status.clone() });
    let senders = ControlSenders {
        requests,
        status,
        console,
        vnc,
        qmp,
        qmp_places,
        agent,
        screen,
        screenshot,
        usb,
        counters,
        levels,
        parts: Parts::of(layout.clone()),
    };
    let receivers = ControlReceivers {
        console: console_station,
        vnc: vnc_station,
        qmp: qmp_station,
        agent: agent_up,
        monitor: monitor_up,
        usb: usb_known,
        plan: plan_known,
        status: known,
    };
    (senders, receivers)
}

/// The two sockets that use a foreign protocol at once: standard QMP (read-only) and RFB.
pub(crate) fn serve_public_sockets(directory: &Path, senders: &ControlSenders) -> Result<(), SocketError> {
    let qmp = listen_async(directory, paths::QMP_USER_SOCKET)?;
    let vnc = listen_async(directory, paths::VNC_SOCKET)?;
    let (qmp_clients, qmp_places) = (senders.qmp.clone(), senders.qmp_places.clone());
    let vnc_clients = senders.vnc.clone();
    tokio::spawn(accept(qmp, move |stream| {
        let (clients, places) = (qmp_clients.clone(), qmp_places.clone());
        async move {
            let Ok(credentials) = stream.peer_cred() else { return };
            let caller = Caller { uid: credentials.uid(), pid: credentials.pid(), claimed: None, way: Way::Socket };
            let (access, span) = (QmpAccess::ReadOnly, Span::current());
            // It is cut off: QMP has no answer before its greeting. The log has why.
            let Ok(place) = places.take(access, &caller) else { return };
            let _ = clients.send(QmpClient { stream, access, caller, span, place }).await;
        }
    }));
    tokio::spawn(accept(vnc, move |stream| {
        let clients = vnc_clients.clone();
        async move {
            if let Ok(stream) = stream.into_std() {
                let _ = clients.send(stream.into()).await;
            }
        }
    }));
    Ok(())
}

async fn accept<F, Fut>(listener: UnixListener, hand_over: F)
where
    F: Fn(UnixStream) -> Fut,
    Fut: Future<Output = ()>,
{
    loop {
        hand_over(next_client(&listener).await).await;
    }
}

/// Attaches everything to a machine that was launched, by us or by an earlier supervisor.
pub(crate) async fn machine(
    context: &Context,
    plan: Arc<LaunchPlan>,
    receivers: ControlReceivers,
    interfaces: Vec<Plumbed>,
    retry: RetryPolicy,
) {
    let monitor_seen = receivers.monitor.subscribe();
    let own = context.layout.supervisor();
    let live = match retry {
        RetryPolicy::GivenUp => Live::begin(&own, &plan),
        RetryPolicy::TriedAgain => Live::resume(&own, &plan),
    };
    receivers.plan.send_replace(Some(Arc::clone(&plan)));
    let mut links = live.links();
    let now = links::by_interface(&plan, &links.borrow_and_update());
    report_plan(context, &plan, &interfaces, &now).await;
    tokio::spawn(links::report(links, Arc::clone(&plan), context.happened.clone()));
    tokio::spawn(network::serve(interfaces, Arc::clone(&plan), context.environment));
    tokio::spawn(qemu_log::run(context.clone()));
    if !plan.serials.is_empty() {
        tokio::spawn(serve_console(context.clone(), receivers.console));
    }
    if plan.display == ScreenPlan::Vnc {
        tokio::spawn(serve_vnc(receivers.vnc, monitor_seen.clone()));
    }
    open_usb_redirection(context, &plan, &receivers.usb);
    tokio::spawn(broker::serve(receivers.qmp, monitor_seen.clone(), context.clone(), live.clone()));
    credentials::start(context, receivers.agent.subscribe(), receivers.status);
    tokio::spawn(guest_agent::run(context.clone(), monitor_seen, receivers.agent));
    let up = MonitorUsers { monitor: receivers.monitor, live };
    tokio::spawn(monitor::run(context.clone(), plan, open_transcript(context), up, retry));
}

/// Says which slots there are. On a bare host any program that speaks their protocol may have one, as any viewer the screen.
fn open_usb_redirection(context: &Context, plan: &LaunchPlan, known: &watch::Sender<Option<Slots>>) {
    let own = context.layout.supervisor();
    let slots = Slots::of(&own, plan);
    match context.environment {
        Environment::Host if !slots.is_empty() => {
            if let Err(error) = usb_redirection::listen(&own, slots.clone()) {
                tracing::warn!(error = %ErrorChain(&error), "no client can come to the socket for USB redirection");
            }
        }
        Environment::Host | Environment::Pod => {}
    }
    known.send_replace(Some(slots));
}

fn open_transcript(context: &Context) -> Option<Arc<dyn TranscriptSink>> {
    let file = FileTranscript::open(context.layout.supervisor().join(paths::TRANSCRIPT), TRANSCRIPT_BYTES)
        .inspect_err(|error| tracing::warn!(%error, "the QMP transcript file cannot be opened"))
        .ok();
    match context.environment {
        // In a pod, `kubectl logs` shows everything in one place, in order.
        Environment::Pod => Some(Arc::new(LoggedTranscript::beside(file))),
        Environment::Host => file.map(|file| Arc::new(file) as Arc<dyn TranscriptSink>),
    }
}

/// The transcript in the log, beside its file. Its lines are redacted, bounded and printable already.
pub(super) struct LoggedTranscript {
    file: Option<FileTranscript>,
    flood: Mutex<Flood>,
}

impl LoggedTranscript {
    /// In the log, beside a file if there is one.
    pub(super) fn beside(file: Option<FileTranscript>) -> Self {
        Self { file, flood: Mutex::new(Flood::new(LOGGED_LINES)) }
    }
}

impl TranscriptSink for LoggedTranscript {
    fn record(&self, line: &str) {
        // The file is bounded; the node's log is shared.
        let judged = self.flood.lock().unwrap_or_else(PoisonError::into_inner).judge(Instant::now());
        if let Line::Write { left_out } = judged {
            if left_out > 0 {
                tracing::warn!(left_out, "QMP log: lines left out, too many at once");
            }
            tracing::info!(entry = line, "QMP message");
        }
        if let Some(file) = &self.file {
            file.record(line);
        }
    }
}

/// Before the monitor is there: it says what is to be done with a guest that waits.
async fn report_plan(context: &Context, plan: &LaunchPlan, interfaces: &[Plumbed], links: &BTreeMap<String, Link>) {
    let leased = |plan: &InterfacePlan| {
        let plumbed = interfaces.iter().map(|plumbed| &plumbed.interface).find(|interface| interface.name == plan.name);
        let addresses = plumbed.map(|interface| &interface.addresses);
        let ipv4 = addresses.and_then(|all| all.ipv4.as_ref()).map(|lease| lease.address.addr().to_string());
        let ipv6 = addresses.and_then(|all| all.ipv6.as_ref()).map(|lease| lease.address.to_string());
        let planned = plan.planned_address().map(|address| address.to_string());
        planned.or(ipv4).into_iter().chain(ipv6).collect()
    };
    let interfaces = plan.interfaces.iter().map(|interface| InterfaceStatus {
        name: interface.name.clone(),
        interface_name: None,
        mac: interface.mac.clone(),
        addresses: leased(interface),
        info_source: "domain".to_owned(),
        queues: interface.queues,
        link: links.get(&interface.name).copied(),
    });
    let planned = Planned {
        lifecycle: plan.lifecycle.clone(),
        software_emulation: plan.accelerator == Accelerator::Tcg,
        interpreted_by_kvm: plan.interpreted_by_kvm,
        machine: plan.stored.machine_type.clone(),
        memory_bytes: plan.resources.guest_memory_bytes,
        overhead_bytes: plan.resources.overhead.total_bytes,
        vcpus: plan.resources.vcpu_count,
        stored: serde_json::to_value(&plan.stored).ok(),
        disks: plan.disks.iter().map(disk).collect(),
        interfaces: interfaces.collect(),
    };
    let _ = context.happened.send(Input::Planned(Box::new(planned))).await;
}

fn disk(plan: &DiskPlan) -> DiskStatus {
    DiskStatus { volume: plan.volume.clone(), target: plan.target.clone() }
}

async fn serve_console(context: Context, station: mpsc::Receiver<Attach>) {
    let directory = context.layout.supervisor();
    let socket = directory.join(paths::serial_socket(0));
    match tokio::time::timeout(SERIAL_PATIENCE, UnixStream::connect(&socket)).await {
        Ok(Ok(serial)) => console::serve(serial, directory.join(paths::serial_log(0)), station).await,
        Ok(Err(error)) => tracing::error!(%error, "the serial console cannot be reached"),
        Err(_) => tracing::error!("the serial console did not answer in time"),
    }
}

/// Hands each client's socket to QEMU, which listens nowhere itself.
async fn serve_vnc(mut station: mpsc::Receiver<OwnedFd>, mut monitor: watch::Receiver<Option<Monitor>>) {
    let Ok(monitor) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(monitor) = monitor else { return };
    while let Some(client) = station.recv().await {
        if let Err(error) = monitor.add_vnc_client(client).await {
            tracing::warn!(error = %ErrorChain(&error), "QEMU rejected the VNC client");
        }
    }
}
