//! QMP: one reader that survives everything; the guest agent; the debug broker's policy.
//!
//! For: talking to a QEMU that another process started, over sockets that it made. Not for: starting QEMU, deciding
//! what to do with a machine, or anything Kubernetes.
//!
//! ```text
//!            ┌────────────────────────── Monitor ───────────────────────────┐
//!  caller ──►│ command ─► connection (one reader, one writer) ◄─► QEMU      │
//!            │              ├─► event: subscriptions ─► unplug, job         │
//!            │              └─► transcript (through redact)                 │
//!            └──▲───────────────────────────────────────────────────────────┘
//!               │ policy, audit
//!  debugger ──► broker           guest agent ◄─► agent            schema ─► completion, documentation
//! ```
//!
//! | module | for |
//! | --- | --- |
//! | [`wire`] | bytes to lines to messages |
//! | [`connection`](Monitor), [`command`](Request), [`event`](Event) | the monitor |
//! | `fd`, `job`, [`unplug`](Unplugged) | what needs more than one message |
//! | [`transcript`](TranscriptSink), [`redact`] | what is written down |
//! | [`agent`] | the guest agent, which may be hostile |
//! | [`broker`] | other clients beside the supervisor |
//! | [`schema`] | what this QEMU offers; only for interactive use and probing, it is large |
//! | `testing` | a scripted monitor and agent (feature `testing`) |
//!
//! Memory: a connected monitor costs about 20 KiB; replies are handed over as raw JSON and nothing is kept of them. The
//! schema (200 KB of JSON in QEMU 7.2) is never read unless asked for.

#![forbid(unsafe_code)]

pub mod agent;
pub mod broker;
mod command;
mod connection;
mod error;
mod event;
mod fd;
mod job;
pub mod redact;
mod result_set;
pub mod schema;
mod screenshot;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
mod transcript;
mod unplug;
pub mod wire;

pub use command::Request;
pub use connection::{ConnectOptions, Endpoint, Greeting, GreetingVersion, Monitor};
pub use error::{CallError, ConnectError, ShutdownCause, ShutdownReason};
pub use event::{Event, Interest, Notice, Subscription};
pub use fd::{AddedDescriptor, DESCRIPTOR_LIMIT};
pub use garboard_qmp_commands::CommandClass;
pub use job::{JobError, JobStatus, JobWatch};
pub use screenshot::ScreenshotError;
pub use transcript::{FileTranscript, TranscriptSink};
pub use unplug::{UnplugError, Unplugged};

/// The generated command types of QMP.
pub use qapi_qmp as qmp;
