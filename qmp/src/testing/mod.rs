//! A QEMU monitor and a guest agent for tests: they keep state, use real bytes over real sockets, and can be made to
//! misbehave.
//!
//! For: tests of this crate and of users of a monitor. Not for: checking what QEMU does in a case without a contract test.
//! The fake answers as QEMU 7.2 does where `tests/contract` runs the same suite on both, and refuses what it
//! does not support with `CommandNotFound`.
//!
//! ```text
//! test ──script, emit, write, hang_up► FakeMonitor ──► FakeMachine (state: devices, nodes, descriptors, jobs)
//! code under test ══════ socket ═════════► │ ◄────────────┘
//! ```

mod agent;
mod connection;
mod machine;
mod monitor;

pub use agent::{AgentBehaviour, FakeAgent};
pub use machine::{DescriptorIdentity, FakeMachine, GuestPower, GuestUnplug};
pub use monitor::{Behaviour, FakeMonitor, Received};

use crate::connection::Router;
use crate::transcript::Transcript;
use crate::wire::{LineSplitter, MONITOR_LINE_LIMIT};

/// Feeds bytes to a line splitter and a router with commands on their way, as the reader task would. For the fuzz
/// target.
pub fn route_bytes(chunks: &[&[u8]]) {
    let router = Router::new("fuzz".to_owned(), 0, Transcript::default());
    let mut receivers = Vec::new();
    for _ in 0..4 {
        if let Some((id, receiver)) = router.begin("query-status".into()) {
            router.mark_sent(id);
            receivers.push(receiver);
        }
    }
    let mut listener = router.hub.subscribe(crate::Interest::All);
    let mut splitter = LineSplitter::new(MONITOR_LINE_LIMIT.min(4 << 10));
    for chunk in chunks {
        splitter.push(chunk);
        while let Some(line) = splitter.next_line() {
            router.accept(line);
        }
    }
    router.close();
    let mut closed = 0;
    while let Some(notice) = listener.try_next() {
        closed += u32::from(matches!(notice, crate::Notice::Closed { .. }));
    }
    assert_eq!(closed, 1, "every subscription receives the end exactly once");
}
