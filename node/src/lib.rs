//! The node agent: the one party on a node that has power over it, and as little of it as does.
//!
//! ```text
//!  kubelet ◄── device ── /dev/kvm, the agent's directory      API server
//!                                                            ▲   │ watches
//!  launcher pod ──► server ── caller, identity, budget       │   ▼
//!        ▲             ├────► network (taps, sockets)     cluster mirror
//!        └─ descriptors┘                                     ▲   │
//!                      └────► writer ── status, merge ───────┘◄──┘
//! ```
//!
//! - Launchers dial the agent, never the reverse; the connection identifies the caller (SO_PEERCRED → control group → pod → VMI).
//! - Interfaces are made in the network namespace that a launcher hands over, and as in its pod's order; no path inside a
//!   pod is ever opened.
//! - A report becomes the status of the one VMI its pod was made for, on this node.
//!
//! What its service account may do to the API server: `docs/operators.md`, "Who may do what"; `deploy/base/node-policy.yaml`
//! narrows it to what is of its node.
//!
//! It keeps nothing: what it needs is read from the API server and reported again by launchers.

pub mod args;
mod ask;
pub mod budget;
pub mod caller;
pub mod cluster;
pub mod confine;
pub mod connections;
pub mod contain;
pub mod controllers;
pub mod device;
pub mod facts;
mod generated;
pub mod heartbeat;
pub mod identity;
pub mod labels;
pub mod launchers;
pub mod metrics;
pub mod mirror;
mod network;
pub mod order;
mod pod_locks;
pub mod pods;
pub mod policy;
pub mod remains;
pub mod run;
mod run_record;
pub mod server;
pub mod socket;
mod start_spans;
pub mod status;
pub mod supervisors;
pub mod verbosity;
mod watched_vmi;
pub mod writer;
