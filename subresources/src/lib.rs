//! The group `subresources.kubevirt.io`: what `virtctl` and the clients of KubeVirt call beside the objects; and our own
//! `subresources.garboard.dev`, which has QMP and the record of a machine that runs. Pure.
//!
//! ```text
//!   method, path ──route──► Endpoint ─┬─ discovery (no rights needed)
//!                                     └─ Call ──access──► SubjectAccessReview ──► start, stop, restart … ──► Change | Refusal
//! ```
//!
//! The controller serves it (its module `subresources`): it reads the objects, asks for the review, and applies the change.
//! KubeVirt's `pkg/virt-api` (v1.7) is the source of routes, codes and messages.

#![forbid(unsafe_code)]

pub mod access;
pub mod body;
pub mod caller;
pub mod discovery;
pub mod duration;
pub mod evacuation;
pub mod expand;
pub mod forward;
pub mod group;
pub mod guestfs;
pub mod instance;
pub mod not_here;
pub mod open_api;
pub mod options;
pub mod power;
pub mod qmp;
pub mod record;
pub mod refusal;
pub mod route;
pub mod routes;
pub mod version;

/// The name of KubeVirt's group.
pub const GROUP: &str = "subresources.kubevirt.io";
