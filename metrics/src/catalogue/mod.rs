//! Which metrics there are. Names, types and labels are data that people's queries rest on: `tests.rs` compares them with KubeVirt's.

pub mod controller;
pub mod node;

#[cfg(test)]
mod tests;

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The labels that it may have; an empty value is left out. Metrics of a machine on a node have beside them `kubernetes_vmi_label_…`.
    pub labels: &'static [&'static str],
    /// What it is, in one line.
    pub help: &'static str,
}

/// The types of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, and begins anew with its process.
    Counter,
    /// A value.
    Gauge,
    /// Counts of durations.
    Histogram,
}

/// Who serves a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The controller, at `/metrics`.
    Controller,
    /// A node agent, through the controller, at `/metrics/nodes/NODE`.
    Node,
}

/// All metrics, and who serves them.
pub fn all() -> impl Iterator<Item = (Server, &'static Metric)> {
    let of_controller = controller::ALL.iter().map(|metric| (Server::Controller, *metric));
    of_controller.chain(node::ALL.iter().map(|metric| (Server::Node, *metric)))
}

/// Constants, and the list of all of them.
macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $kind:ident $name:literal [$($label:literal),* $(,)?] $help:literal;)*) => {
        $(
            $(#[$doc])*
            #[doc = $help]
            pub static $constant: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// All of these.
        pub static ALL: &[&Metric] = &[$(&$constant),*];
    };
}
pub(crate) use metrics;
