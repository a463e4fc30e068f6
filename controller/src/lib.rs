//! The cluster's side of a virtual machine.
//!
//! ```text
//!   VirtualMachine ──vm: observe, decide, apply──► VirtualMachineInstance ──vmi: …──► launcher pod
//!        ▲ status                                        ▲ status: scheduling here, the running guest by the node agent
//!   VirtualMachineInstanceReplicaSet ──replica_set: …──► VirtualMachineInstances ──► …
//!   VirtualMachinePool ──pool: …──► VirtualMachines ──► …
//! ```
//!
//! Each reconciler is three files: `observe` looks into the stores (`stores`) and asks the API server
//! for what is not in them, `decide` is pure and sees nothing but what was observed, `apply` does what was decided. What is decided can
//! be printed, compared and tested without a cluster. Nothing here looks into a guest or a node: that is the launcher's and the node
//! agent's.
//!
//! Every replica answers the webhooks and the subresource API; one, the leader (`lease`), reconciles and keeps the webhooks' certificates.

#![forbid(unsafe_code)]

#[cfg(test)]
mod captured;
pub mod certificates;
pub mod context;
pub mod data_volumes;
pub mod descheduler;
pub mod durations;
pub mod events;
pub mod health;
pub mod kubevirt;
pub mod lease;
pub mod metrics;
pub mod nodes;
pub mod pod;
pub mod pool;
pub mod reconciler;
pub mod reconcilers;
pub mod replica_set;
mod requests;
pub mod runs;
pub mod settings;
pub mod shutdown;
pub mod sizes;
pub mod stores;
pub mod subresources;
pub mod time;
pub mod unread;
pub mod unreadable;
pub mod upgrade;
pub mod verbosity;
pub mod vm;
pub mod vmi;
pub mod webhook;
pub mod workqueue;
