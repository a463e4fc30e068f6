//! The pause between two runs.

use std::path::Path;
use std::time::Duration;

use garboard_shim_client::pending_restart::is_stop_requested;

use crate::decide::StopRequest;

/// How often a waiting shim looks whether a command stops the machine; a user does not notice the delay.
const LOOK: Duration = Duration::from_millis(100);

/// What the commands have asked for.
pub(crate) fn stop_request(machine: &Path) -> StopRequest {
    if is_stop_requested(machine) { StopRequest::Requested } else { StopRequest::None }
}

/// Waits for the next run's time, or for the request that there be none.
pub(crate) async fn wait(machine: &Path, length: Duration) -> StopRequest {
    let end = tokio::time::Instant::now() + length;
    while stop_request(machine) == StopRequest::None {
        let left = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            return StopRequest::None;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
    StopRequest::Requested
}

#[cfg(test)]
mod tests {
    use garboard_shim_client::pending_restart::request_stop;

    use super::*;

    #[test]
    fn a_pause_ends_when_a_stop_is_requested() {
        let directory = tempfile::tempdir().unwrap();
        let machine = directory.path().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(wait(&machine, Duration::ZERO)), StopRequest::None);
        let stopping = std::thread::spawn({
            let machine = machine.clone();
            move || request_stop(&machine).unwrap()
        });
        assert_eq!(runtime.block_on(wait(&machine, Duration::from_secs(600))), StopRequest::Requested);
        stopping.join().unwrap();
    }
}
