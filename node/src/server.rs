//! The agent's socket: which callers may ask, and what they get.
//!
//! ```text
//!  accept ─► identify (caller) ─► room? (budget) ─► launcher pod? (launchers) ─► requests, one at a time
//!                 no ──────────────── no ───────────────── no ──► one message, logged, closed
//! ```
//!
//! Nothing a caller sends names a pod, a VMI or a path: the connection does.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use garboard_agent::line_socket::{LineError, LineSocket};
use garboard_agent::plumbing::Reply;
use garboard_log::otlp;
use garboard_net::GuestAddresses;
use garboard_protocol::agent::{AgentReply, AgentRequest};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::Status;
use garboard_protocol::record::RunRecord;
use tokio::net::UnixStream;
use tracing::Instrument;

use crate::budget::{Budget, Exhausted, RefusalsByPod, SpansByPod};
use crate::caller::{Caller, Processes};
use crate::contain::contained;
use crate::identity::PodUid;
use crate::launchers::{Found, Launchers};
use crate::network;
use crate::order::{Permitted, Work, permitted};
use crate::pod_locks::PodLocks;
use crate::pods::LauncherPod;
use crate::socket::AgentSocket;
use crate::status;
use crate::supervisors::Connected;

/// A caller's namespace, and nothing else, is waiting to be taken.
const DESCRIPTORS: usize = 1;
/// The longest request, bytes: a supervisor's copy of a guest agent's answers is at most a quarter of it.
const LONGEST_REQUEST: usize = 256 * 1024;
/// The longest reason that is sent and logged, characters: it quotes the caller.
const LONGEST_REASON: usize = 400;

/// The receiver of reports.
pub trait Reports: Send + Sync + 'static {
    /// Takes the status of a pod's machine.
    fn note(&self, pod: &LauncherPod, status: Status);

    /// Keeps the record of a pod's run, once.
    fn keep(&self, pod: &LauncherPod, record: RunRecord);
}

/// The agent's half of the agent protocol.
pub struct Server<R> {
    processes: Processes,
    launchers: Launchers,
    reports: R,
    budget: Mutex<Budget>,
    refusals: Mutex<RefusalsByPod>,
    /// Which requests a collector gets a span of.
    spans: Mutex<SpansByPod>,
    /// When which pod has its network changed.
    pod_locks: PodLocks,
    /// Who takes control connections.
    supervisors: Connected,
}

/// What a connection is for after its requests.
enum After {
    /// It is over.
    Nothing,
    /// Control connections are sent on it.
    Serve,
}

/// Room that a connection takes, until it is closed.
struct Room<R> {
    server: Arc<Server<R>>,
    pod: PodUid,
}

impl<R> Drop for Room<R> {
    fn drop(&mut self) {
        lock(&self.server.budget).give_back(&self.pod);
    }
}

impl<R: Reports> Server<R> {
    /// A server of these pods.
    pub fn new(processes: Processes, launchers: Launchers, reports: R, supervisors: Connected) -> Arc<Self> {
        Arc::new(Self {
            processes,
            launchers,
            reports,
            budget: Mutex::default(),
            refusals: Mutex::default(),
            spans: Mutex::default(),
            pod_locks: PodLocks::default(),
            supervisors,
        })
    }

    /// Serves until the socket fails.
    ///
    /// # Errors
    /// The error of `accept`, other than that there are too many descriptors, which passes.
    pub async fn serve(self: Arc<Self>, mut socket: AgentSocket) -> std::io::Result<()> {
        loop {
            match socket.accept().await {
                // A connection that was dropped by that is closed.
                Ok(stream) => drop(contained("a new connection", || self.accepted(stream))),
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Identifies at once: as long as it takes, the caller's process number may be given to another.
    fn accepted(self: &Arc<Self>, stream: UnixStream) {
        let admitted = match self.processes.identify(&stream) {
            Ok(caller) => match lock(&self.budget).take(&caller.pod) {
                Ok(()) => Ok(caller),
                // Others have it all. A no would end a machine: hung up on without one, its launcher asks again.
                Err(Exhausted::Node) => {
                    self.logs_refusal(Some(&caller), &Exhausted::Node.to_string());
                    return drop(stream);
                }
                Err(exhausted @ Exhausted::Pod) => Err((Some(caller), exhausted.to_string())),
            },
            Err(error) => Err((None, ErrorChain(&error).to_string())),
        };
        let socket = LineSocket::limited(stream, DESCRIPTORS).with_longest_line(LONGEST_REQUEST);
        match admitted {
            Ok(caller) => {
                let room = Room { server: Arc::clone(self), pod: caller.pod.clone() };
                drop(tokio::spawn(Arc::clone(self).admitted(socket, caller, room)));
            }
            Err((caller, reason)) => {
                if self.logs_refusal(caller.as_ref(), &reason) {
                    tokio::spawn(async move {
                        send_refusal(&socket, reason).await;
                        socket.put_away();
                    });
                } else {
                    socket.put_away();
                }
            }
        }
    }

    async fn admitted(self: Arc<Self>, mut socket: LineSocket, caller: Caller, room: Room<R>) {
        if let Some(pod) = self.serve_connection(&mut socket, caller).await {
            // It reads nothing more.
            socket = socket.with_longest_line(0);
            if let Err(error) = self.supervisors.serve(&mut socket, &pod).await {
                tracing::debug!(%pod, error = %ErrorChain(&error), "a supervisor takes no more control connections");
            }
        }
        // Not here: closing a caller's descriptor may block (a file of a file system that hangs). It
        // keeps its room for as long.
        drop(tokio::task::spawn_blocking(move || {
            socket.put_away();
            drop(room);
        }));
    }

    /// Answers requests until the connection is over, or is to be for control connections of a pod.
    async fn serve_connection(&self, socket: &mut LineSocket, caller: Caller) -> Option<PodUid> {
        let pod = match self.launchers.caller(&caller.pod).await {
            Found::Launcher(pod) => pod,
            // Hung up on without a no, a launcher asks again.
            Found::Unknown => return None,
            Found::Nowhere => {
                let reason = "the caller is in no launcher pod of this node";
                if self.logs_refusal(Some(&caller), reason) {
                    send_refusal(socket, reason.to_owned()).await;
                }
                return None;
            }
        };
        self.serve_pod(socket, Arc::new(caller), &pod).instrument(pod.span()).await
    }

    async fn serve_pod(&self, socket: &mut LineSocket, caller: Arc<Caller>, pod: &LauncherPod) -> Option<PodUid> {
        match self.exchange(socket, caller, pod).await {
            Ok(After::Serve) => Some(pod.uid.clone()),
            Ok(After::Nothing) | Err(LineError::Closed) => None,
            Err(error) => {
                let error = short(&ErrorChain(&error).to_string());
                if let Some(silent) = self.answered(&pod.uid) {
                    tracing::warn!(
                        pod = pod.name,
                        namespace = pod.namespace,
                        silent,
                        error,
                        "connection to the launcher failed"
                    );
                }
                None
            }
        }
    }

    async fn exchange(
        &self,
        socket: &mut LineSocket,
        caller: Arc<Caller>,
        pod: &LauncherPod,
    ) -> Result<After, LineError> {
        for number in 1_u64.. {
            let request: AgentRequest = socket.receive().await?;
            if request == AgentRequest::Serve {
                return Ok(After::Serve);
            }
            let span = tracing::info_span!("request", request = number, ask = name(&request));
            if !lock(&self.spans).take(&pod.uid, Instant::now()) {
                otlp::unsent(&span);
            } else if let Some(trace) = &pod.trace {
                otlp::follow(&span, trace);
            }
            let answering = self.answer_or_refuse(socket, request, &caller, pod).instrument(span);
            let Some(Reply { message, descriptors }) = answering.await else { return Ok(After::Nothing) };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            socket.send(&message, &borrowed).await?;
        }
        Ok(After::Nothing)
    }

    async fn answer_or_refuse(
        &self,
        socket: &mut LineSocket,
        request: AgentRequest,
        caller: &Arc<Caller>,
        pod: &LauncherPod,
    ) -> Option<Reply> {
        match self.answer(socket, request, caller, pod).await {
            Ok(reply) => reply,
            Err(error) => Some(self.refusal(pod, &ErrorChain(&*error).to_string()).into()),
        }
    }

    /// Nothing if it is unknown: when the connection is closed without a refusal, a launcher asks again.
    async fn answer(
        &self,
        socket: &mut LineSocket,
        request: AgentRequest,
        caller: &Arc<Caller>,
        pod: &LauncherPod,
    ) -> Result<Option<Reply>, Box<dyn std::error::Error + Send + Sync>> {
        let work = match permitted(request, pod.order.as_deref(), &pod.vmi_uid)? {
            Permitted::Work(work) => work,
            Permitted::Report(status) => {
                self.reports.note(pod, status::bounded(*status));
                return Ok(Some(AgentReply::Noted.into()));
            }
            Permitted::Record(record) => {
                self.reports.keep(pod, record.bounded());
                return Ok(Some(AgentReply::Noted.into()));
            }
        };
        let turn = self.pod_locks.of(&pod.uid, |other| self.launchers.has(other));
        // One at a time: a supervisor that was killed while it was served is followed by one that asks the same.
        let mut turn = turn.lock().await;
        // Its last report is still taken; nothing is made for it any more.
        match self.launchers.find(&pod.uid).await {
            Found::Launcher(_) => {}
            Found::Unknown => return Ok(None),
            Found::Nowhere => return Err("this pod is not there any more".into()),
        }
        // Not earlier: closing what came may take for ever, so that it is dropped on no thread but its own.
        let namespace = network::namespace(network::descriptor(socket)?, Arc::clone(caller)).await?;
        let is_made = matches!(&work, Work::Plumb(_));
        turn.come(is_made).await?;
        let began = Instant::now();
        let reply = network::done(namespace, work).await?;
        if is_made {
            let took_ms = began.elapsed().as_millis();
            tracing::info!(pod = pod.name, namespace = pod.namespace, vmi = pod.vmi, took_ms, "interfaces are made");
        }
        Ok(Some(reply))
    }

    /// The answer to a request that is refused or failed.
    fn refusal(&self, pod: &LauncherPod, reason: &str) -> AgentReply<GuestAddresses> {
        let reason = short(reason);
        if let Some(silent) = self.answered(&pod.uid) {
            tracing::error!(pod = pod.name, namespace = pod.namespace, vmi = pod.vmi, silent, reason, "request failed");
        }
        AgentReply::Refused { reason }
    }

    /// Whether a refusal of this pod is to be logged; then, how many before it were not.
    fn answered(&self, pod: &PodUid) -> Option<u64> {
        lock(&self.refusals).answered(Some(pod), Instant::now())
    }

    /// Logs a refusal, unless there are too many. Whether it is to be sent to the caller too.
    fn logs_refusal(&self, caller: Option<&Caller>, reason: &str) -> bool {
        let pod = caller.map(|caller| &caller.pod);
        let Some(silent) = lock(&self.refusals).answered(pod, Instant::now()) else { return false };
        let (pid, uid) = (caller.map(|caller| caller.pid), caller.map(|caller| caller.uid));
        let pod = caller.map(|caller| caller.pod.to_string());
        tracing::warn!(pid, uid, pod, silent, reason, "connection rejected");
        true
    }
}

/// A request's name on the wire.
fn name(request: &AgentRequest) -> &'static str {
    match request {
        AgentRequest::Volume { .. } => "volume",
        AgentRequest::Plumb { .. } => "plumb",
        AgentRequest::Sockets { .. } => "sockets",
        AgentRequest::Report { .. } => "report",
        AgentRequest::Record { .. } => "record",
        AgentRequest::Serve => "serve",
    }
}

/// A reason, bounded: it may quote the caller.
fn short(reason: &str) -> String {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{} …", &reason[..end]),
        None => reason.to_owned(),
    }
}

async fn send_refusal(socket: &LineSocket, reason: String) {
    let _ = socket.send(&AgentReply::<GuestAddresses>::Refused { reason }, &[]).await;
}

/// Whether accepting may go on: a connection that is gone already, or a table that is full for now.
fn is_passing(error: &std::io::Error) -> bool {
    use nix::libc::{ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    matches!(error.raw_os_error(), Some(ECONNABORTED | EINTR | EMFILE | ENFILE | ENOBUFS | ENOMEM))
}

/// What these protect is whole after every statement, so a panic elsewhere cannot have left it half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
