//! The metrics of controller and node agent: which there are, and the text that Prometheus reads. Pure.
//!
//! ```text
//!   what was observed ─► Exposition::add(metric of the catalogue, labels, value) ─► text ─► who serves it
//! ```
//!
//! Names, labels and types are KubeVirt's (its `docs/observability/metrics.md`, v1.7.0), so that its dashboards and alerts work; what
//! is of ours alone begins with `garboard_`. Not for: collecting (the node agent, the controller), serving, recording rules
//! (`deploy/monitoring`).

#![forbid(unsafe_code)]

pub mod catalogue;
mod exposition;
mod histogram;

pub use catalogue::{Kind, Metric, Server};
pub use exposition::{CONTENT_TYPE, Exposition, LONGEST_VALUE, Labels, as_float};
pub use histogram::{ENDS, Histogram, Seen};
