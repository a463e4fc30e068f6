//! What the agent itself asks of the supervisors of its node. Each may have been taken over by its guest: what it sends is bounded and read
//! again here.

use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::statistics::{LONGEST_STATISTICS_BYTES, Statistics};
use garboard_protocol::wire::{self, WireError};
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::{Duration, timeout};

use crate::supervisors::Connected;

/// How long one supervisor may take: it gives QEMU and the guest agent less. Half of what all have together for metrics, so that those
/// that never answer leave time for as many others.
const WITHIN: Duration = Duration::from_secs(2);

/// The longest answer that is an answer alone, bytes: `Denied` has a reason, which quotes what was asked.
const LONGEST_ANSWER: usize = 4096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// It cannot be reached.
    #[error("the supervisor cannot be reached: {0:?}")]
    Unreached(Refusal),
    /// The connection broke.
    #[error("the connection to the supervisor broke")]
    Broken(#[source] std::io::Error),
    /// It does not answer.
    #[error("the supervisor did not answer within {} s", WITHIN.as_secs())]
    Slow,
    /// It answers something else, or without an end.
    #[error("the supervisor sent an answer that cannot be parsed")]
    Undecodable(#[from] WireError),
    /// It will not do this: it has no such request, for it is of an earlier version, or its environment is against it.
    #[error("the supervisor denies this; it may be of an earlier version")]
    Denied,
}

/// What is counted of a pod's machine.
///
/// # Errors
/// [`AskError`].
pub(crate) async fn statistics(supervisors: &Connected, pod: &str) -> Result<Statistics, AskError> {
    counted(answer(supervisors, pod, ControlRequest::Statistics, LONGEST_STATISTICS_BYTES).await?)
}

/// Has the supervisor of a pod log as much as a number says.
///
/// # Errors
/// [`AskError`].
pub(crate) async fn set_verbosity(supervisors: &Connected, pod: &str, verbosity: u32) -> Result<(), AskError> {
    done(answer(supervisors, pod, ControlRequest::LogVerbosity { verbosity }, LONGEST_ANSWER).await?)
}

async fn answer(
    supervisors: &Connected,
    pod: &str,
    request: ControlRequest,
    most: usize,
) -> Result<ControlReply, AskError> {
    timeout(WITHIN, asked(supervisors, pod, request, most)).await.unwrap_or(Err(AskError::Slow))
}

async fn asked(
    supervisors: &Connected,
    pod: &str,
    request: ControlRequest,
    most: usize,
) -> Result<ControlReply, AskError> {
    // The place is given back at the end.
    let Opened { mut socket, place: _place } = supervisors.open(pod).await.map_err(AskError::Unreached)?;
    let asked = Asked { request, claimed_user: None, audit_id: None, number: None };
    let line = wire::encode(&asked).map_err(|error| AskError::Broken(error.into()))?;
    socket.write_all(&line).await.map_err(AskError::Broken)?;
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let mut answer = Vec::new();
    BufReader::new(socket.take(most)).read_until(b'\n', &mut answer).await.map_err(AskError::Broken)?;
    // One that was cut off is no JSON.
    Ok(wire::decode(&answer)?)
}

fn counted(reply: ControlReply) -> Result<Statistics, AskError> {
    match reply {
        ControlReply::Statistics(statistics) => Ok(*statistics),
        ControlReply::Denied { .. }
        | ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::AlreadySo
        | ControlReply::Done
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(AskError::Denied),
    }
}

fn done(reply: ControlReply) -> Result<(), AskError> {
    match reply {
        ControlReply::Done | ControlReply::AlreadySo => Ok(()),
        ControlReply::Denied { .. }
        | ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(AskError::Denied),
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::statistics::{FileSystemStatistics, MOST_FILE_SYSTEMS};

    use super::*;

    fn read(line: &[u8]) -> Result<Statistics, AskError> {
        counted(wire::decode(line)?)
    }

    #[test]
    fn more_than_the_most_is_left_out_and_an_answer_without_an_end_is_none() {
        let many = Statistics {
            file_systems: vec![FileSystemStatistics::default(); MOST_FILE_SYSTEMS + 1],
            ..Statistics::default()
        };
        let line = wire::encode(&ControlReply::Statistics(Box::new(many))).unwrap();
        assert_eq!(read(&line).unwrap().file_systems.len(), MOST_FILE_SYSTEMS);
        assert!(matches!(read(&line[..line.len() / 2]), Err(AskError::Undecodable(_))));
        let denied = wire::encode(&ControlReply::Denied { reason: "no".to_owned() }).unwrap();
        assert!(matches!(read(&denied), Err(AskError::Denied)));
    }

    #[test]
    fn levels_that_counted_already_are_set() {
        assert!(done(ControlReply::Done).is_ok() && done(ControlReply::AlreadySo).is_ok());
        assert!(matches!(done(ControlReply::Denied { reason: "no".to_owned() }), Err(AskError::Denied)));
    }
}
