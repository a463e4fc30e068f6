//! What one supervisor says of its machine. It may have been taken over by its guest: what it sends is bounded and read again here.

use garboard_protocol::control::{Asked, ControlReply, ControlRequest};
use garboard_protocol::statistics::{LONGEST_STATISTICS_BYTES, Statistics};
use garboard_protocol::wire::{self, WireError};
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::{Duration, timeout};

use crate::identity::PodUid;
use crate::supervisors::Connected;

/// How long one supervisor may take: it gives QEMU and the guest agent less. Half of what all have together, so that those that never
/// answer leave time for as many others.
const WITHIN: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
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
    /// It has no such request: it is of an earlier version.
    #[error("the supervisor counts nothing; it is of an earlier version")]
    Earlier,
}

/// Asks.
///
/// # Errors
/// [`AskError`].
pub(super) async fn statistics(supervisors: &Connected, pod: &PodUid) -> Result<Statistics, AskError> {
    timeout(WITHIN, asked(supervisors, pod)).await.unwrap_or(Err(AskError::Slow))
}

async fn asked(supervisors: &Connected, pod: &PodUid) -> Result<Statistics, AskError> {
    // The place is given back at the end.
    let Opened { mut socket, place: _place } = supervisors.open(pod.as_str()).await.map_err(AskError::Unreached)?;
    let asked = Asked { request: ControlRequest::Statistics, claimed_user: None, audit_id: None, number: None };
    let line = wire::encode(&asked).map_err(|error| AskError::Broken(error.into()))?;
    socket.write_all(&line).await.map_err(AskError::Broken)?;
    let most = u64::try_from(LONGEST_STATISTICS_BYTES).unwrap_or(u64::MAX);
    let mut answer = Vec::new();
    BufReader::new(socket.take(most)).read_until(b'\n', &mut answer).await.map_err(AskError::Broken)?;
    read(&answer)
}

/// The answer in a line. One that was cut off is no JSON.
fn read(line: &[u8]) -> Result<Statistics, AskError> {
    match wire::decode(line)? {
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
        | ControlReply::Guest(_) => Err(AskError::Earlier),
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::statistics::{FileSystemStatistics, MOST_FILE_SYSTEMS};

    use super::*;

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
        assert!(matches!(read(&denied), Err(AskError::Earlier)));
    }
}
