//! The device plugin: how a pod requests KVM or the agent, and gets it without a `hostPath`.
//!
//! ```text
//!  kubelet.sock   ◄── Register (one for each resource)
//!  garboard-*.sock ──► ListAndWatch: N identical devices, healthy while the node's own one opens
//!                 ──► Allocate: what a container gets (resource)
//! ```
//!
//! The devices are not counted things: any number of guests shares one `/dev/kvm`. They are a permission, handed out as
//! many times as the node's arguments state.

pub mod health;
pub mod kubelet;
mod plugin;
pub mod resource;
pub(crate) mod watch;

pub use kubelet::{Plugins, serve};
pub use resource::Resource;
