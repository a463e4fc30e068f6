//! A wait between two looks at something that does not report its changes: a child process, an object of the cluster.

use std::time::Duration;

/// Between two looks at a process of ours.
pub(crate) fn briefly() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// Between two questions to the API server.
pub(crate) fn between_questions() {
    std::thread::park_timeout(Duration::from_millis(500));
}
