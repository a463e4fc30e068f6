//! The metrics of this replica and of the cluster's machines, at `/metrics`, and those of each node, at `/metrics/nodes/NODE`.
//!
//! ```text
//!   Prometheus ─ TLS ─► server ─► access: TokenReview, SubjectAccessReview ─┬─► exposed: this replica's; machines, if it leads
//!                                                                           └─► the agent of the node, through its connection
//! ```
//!
//! Nothing listens on a node (`docs/adr/0045-metrics-come-up-the-tunnel.md`). Objects are read from the stores that the leader has
//! anyway: a scrape asks the API server nothing but whose token it was sent.

mod access;
mod exposed;
mod instances;
mod machines;
mod phases;
mod server;
mod streams;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garboard_cluster::requests::Requests;
use garboard_metrics::Histogram;

use crate::stores::{Instances, Known, Machines, Pods};
use crate::workqueue::Workqueues;

pub use phases::Phases;
pub use server::run;
pub use streams::{Counted, Kind as StreamKind, Streams};

/// What is counted while this replica serves.
#[derive(Default)]
pub struct Measured {
    /// What it reads while it leads.
    leading: Mutex<Option<Arc<Leading>>>,
    /// How long instances were in each phase, as far as this leader saw.
    pub phases: Phases,
    /// Streams to machines that are open.
    pub streams: Streams,
    /// How long the webhooks took.
    pub admissions: Admissions,
    /// What the reconcilers have to do.
    pub queues: Workqueues,
    /// What this program asks the API server.
    pub requests: Requests,
}

/// How long the webhooks took to judge.
#[derive(Debug, Default)]
pub struct Admissions {
    /// Those that complete what is written.
    pub mutate: Histogram,
    /// Those that judge what is written.
    pub validate: Histogram,
    /// That of evictions.
    pub evict: Histogram,
}

/// The stores of a leader.
pub struct Leading {
    /// VirtualMachines.
    pub machines: Known<Machines>,
    /// VirtualMachineInstances.
    pub instances: Known<Instances>,
    /// Launcher pods.
    pub pods: Known<Pods>,
}

impl Measured {
    /// Nothing yet, but for the requests of a client that counts there.
    #[must_use]
    pub fn of(requests: Requests) -> Self {
        Self { requests, ..Self::default() }
    }

    /// This replica leads, until the answer is dropped.
    pub fn lead(self: &Arc<Self>, stores: Leading) -> Leadership {
        *self.leading() = Some(Arc::new(stores));
        Leadership(Arc::clone(self))
    }

    /// The stores, if this replica leads.
    fn stores(&self) -> Option<Arc<Leading>> {
        self.leading().clone()
    }

    fn leading(&self) -> MutexGuard<'_, Option<Arc<Leading>>> {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time in which this replica leads.
pub struct Leadership(Arc<Measured>);

impl Drop for Leadership {
    fn drop(&mut self) {
        *self.0.leading() = None;
        // The next time it leads, it has not seen what happened meanwhile.
        self.0.phases.forget_all();
    }
}

#[cfg(test)]
mod tests;
