//! Requests to a running supervisor: its control socket (`garboard_protocol::control`), through the agent of its node.

use std::time::Duration;

use garboard_api::VirtualMachineInstance;
use garboard_log::otlp;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::number::Number;
use garboard_protocol::wire::{self, WireError};
use garboard_tunnel::Stream;
use garboard_tunnel::controller::{Nodes, OpenError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::vmi::history::Place;

/// How long a supervisor that is being replaced, or whose agent is, is tried again: each is back within seconds.
pub(super) const TRY_FOR: Duration = Duration::from_secs(8);
/// Pause between attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// How long an answer may take once the request was sent: a supervisor answers at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// The same of a request that is answered when the guest, or QEMU, has done it: once this and [`TRY_FOR`] are less.
const DONE_WITHIN: Duration = Duration::from_secs(15);

/// The launcher pod of an instance that has one on a node. The UID is that of one run: what is asked reaches no later and
/// no earlier one.
pub(crate) fn place_of(vmi: &VirtualMachineInstance) -> Option<Place> {
    let pods = &vmi.status.as_ref()?.active_pods;
    let (pod_uid, node) = pods.iter().find(|(_, node)| !node.is_empty())?;
    Some(Place { pod_uid: pod_uid.clone(), node: node.clone() })
}

/// Why a supervisor did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// There is no way to it.
    #[error("the launcher of this machine cannot be reached")]
    Unreached(#[from] OpenError),
    /// The connection ended before the answer: the request may have been carried out, or not.
    #[error("the launcher of this machine ended the connection before it answered")]
    Broken(#[source] std::io::Error),
    /// It does not answer.
    #[error("the launcher of this machine did not answer within {} s", within.as_secs())]
    Slow {
        /// The time limit.
        within: Duration,
    },
    /// It answered something else.
    #[error("the launcher of this machine sent an answer that cannot be parsed")]
    Undecodable(#[from] WireError),
    /// It answers without an end.
    #[error("the launcher of this machine sent an answer longer than {} bytes", wire::LONGEST_ANSWER_BYTES)]
    TooLong,
    /// A change was sent, and its answer did not come, however often it was asked for.
    #[error(
        "this was sent to the launcher of this machine, and its answer did not arrive: it may have been done; look at the machine before you ask again"
    )]
    Unknown(#[source] Box<ControlError>),
    /// A supervisor of an earlier version has replaced the one that was asked: it would do it again.
    #[error("an earlier version of the launcher has replaced the one that was asked")]
    Forgotten,
    /// It does not answer with its status.
    #[error("the launcher of this machine does not report its status")]
    NoStatus,
    /// The pod runs another instance.
    #[error("the launcher runs another instance than this one")]
    OtherInstance,
}

/// By whom a request is, for the supervisor's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requester {
    /// The user that the API server has authenticated.
    pub(crate) user: String,
    /// The ID of the user's request in the API server's audit log, escaped and bounded.
    pub(crate) audit_id: Option<String>,
}

/// A supervisor's answer, and the connection, on which a stream may follow. The supervisor is tried again only as long as
/// nothing was sent to it; what changes the machine is sent by [`super::change`].
///
/// # Errors
/// [`ControlError`].
pub(crate) async fn ask(
    nodes: &Nodes,
    place: &Place,
    by: &Requester,
    request: ControlRequest,
) -> Result<(ControlReply, Stream), ControlError> {
    let mut stream = opened(nodes, place).await?;
    let within = answer_within(&request);
    let asked = asked(by, request, None);
    let reply = answered(&mut stream, &asked, within).await?;
    Ok((reply, stream))
}

/// The line of a request.
pub(super) fn asked(by: &Requester, request: ControlRequest, number: Option<Number>) -> Asked {
    Asked { request, claimed_user: Some(by.user.clone()), audit_id: by.audit_id.clone(), number }
}

/// Sends a request on a connection that is open, and reads its answer.
pub(super) async fn answered(
    stream: &mut Stream,
    asked: &Asked,
    within: Duration,
) -> Result<ControlReply, ControlError> {
    let line = wire::encode(asked).map_err(|error| ControlError::Broken(error.into()))?;
    let asking = async {
        stream.write_all(&line).await.map_err(ControlError::Broken)?;
        read_reply(stream).await
    };
    tokio::time::timeout(within, asking).await.unwrap_or(Err(ControlError::Slow { within }))
}

pub(super) const fn answer_within(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::Freeze { .. }
        | ControlRequest::Unfreeze
        | ControlRequest::BackupHook { .. }
        | ControlRequest::Screenshot { .. } => DONE_WITHIN,
        ControlRequest::Status
        | ControlRequest::Watch
        | ControlRequest::Stop { .. }
        | ControlRequest::Prolong { .. }
        | ControlRequest::Pause
        | ControlRequest::Unpause
        | ControlRequest::Reset
        | ControlRequest::SoftReboot
        | ControlRequest::Guest { .. }
        | ControlRequest::Statistics
        | ControlRequest::LogVerbosity { .. }
        | ControlRequest::Show { .. }
        | ControlRequest::Console { .. }
        | ControlRequest::Vnc { .. }
        | ControlRequest::UsbRedir
        | ControlRequest::Qmp { .. }
        | ControlRequest::Probe { .. } => ANSWER_WITHIN,
    }
}

/// Tries once. What the agent does for it is in the trace of what is done here.
pub(super) async fn open(nodes: &Nodes, place: &Place) -> Result<Stream, OpenError> {
    let trace = otlp::traceparent(&tracing::Span::current());
    nodes.open(&place.node, &place.pod_uid, trace.as_deref()).await
}

async fn opened(nodes: &Nodes, place: &Place) -> Result<Stream, OpenError> {
    let end = Instant::now() + TRY_FOR;
    loop {
        match open(nodes, place).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() + PAUSE >= end => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Byte by byte, because what follows the line belongs to a stream.
pub(super) async fn read_reply(stream: &mut Stream) -> Result<ControlReply, ControlError> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await.map_err(ControlError::Broken)? {
            b'\n' => return Ok(wire::decode(&line)?),
            _ if line.len() >= wire::LONGEST_ANSWER_BYTES => return Err(ControlError::TooLong),
            byte => line.push(byte),
        }
    }
}
